"""Drivers in a table beside trained policies: those that learned nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gantry_sim.driving.cfg import CarTaskCfg
from gantry_sim.driving.drivers.baselines import RuleCfg, constant_speed, random_actions, rule_based
from gantry_sim.driving.drivers.racers import gap_driver
from gantry_sim.driving.drivers.teachers import rule_actions
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.maps.projection import Window, window
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.scenes.road_scene import AHEAD, BEHIND, RoadScene
from gantry_sim.driving.scenes.track_scene import TrackScene
from gantry_sim.driving.track_cfg import RaceCfg

Act = Callable[[DriveEnv, Any], Tensor]
"""(environment, observations) -> actions ``(N, 2)``."""

RULES, SCAN, STEADY, RANDOM = "by rules", "by its scan", "constant speed", "random"
BASELINES = (RULES, STEADY, RANDOM)
"""Drivers that learned nothing, see :mod:`gantry_sim.driving.drivers.baselines`."""
RACERS = (RULES, SCAN, STEADY, RANDOM)
"""Those on tracks, see :mod:`gantry_sim.driving.drivers.racers`."""


@dataclass(frozen=True)
class Manners:
    """Style of drivers that follow a line in one kind of surroundings."""

    rules: RuleCfg
    """Style of the scripted driver; the one at constant speed looks as far ahead."""
    steady_m_s: float
    """Speed of the driver at constant speed."""
    gain_hz: float = 1.0
    """Gain of the speed controller."""


ON_ROADS = Manners(RuleCfg(), 8.0)
ON_TRACKS = Manners(
    RuleCfg(lookahead_s=0.35, lookahead_m=(1.0, 3.0), accel_m_s2=4.0, brake_m_s2=4.0, lateral_accel_m_s2=3.0), 2.0, 4.0
)
"""A car of a tenth of the size, along the middle of its track."""


def able(name: str, cfg: CarTaskCfg) -> bool:
    """Whether a driver of :data:`RACERS` can drive on a task: one needs a scan of walls, another a line."""
    if name == SCAN:
        return isinstance(cfg, RaceCfg)
    return name != STEADY or not isinstance(cfg, ParkCfg)


def baseline(name: str, env: DriveEnv, seed: int) -> Act | None:
    """A driver of :data:`RACERS` for an environment.

    They know the exact state and the line, and the scripted driver what traffic's own drivers would know in the car's
    place, or on a parking lot the shortest way; policies are told less. The one by its scan is told what a policy is,
    and knows nothing else. They use no more of the car than policies may.

    Args:
        name: Which.
        env: Where it is to drive.
        seed: Of the driver at random.

    Returns:
        None where it cannot drive at all, see :func:`able`.
    """
    if not able(name, env.cfg):
        return None
    if name == RANDOM:
        generator = torch.Generator(env.device).manual_seed(seed)
        return lambda env, _: random_actions(env.num_envs, generator)
    on_track = isinstance(env.scene, TrackScene)
    if name == RULES and not on_track:
        return lambda env, _: rule_actions(env)
    if name == SCAN:
        return by_scan
    spec, manners = env.cfg.driver, ON_TRACKS if on_track else ON_ROADS

    def act(env: DriveEnv, _: Any) -> Tensor:
        line, pose, speed = line_ahead(env), env.cars.pose, env.cars.speed_m_s
        assert line is not None
        if name == RULES:
            return rule_based(pose, speed, line, None, spec, manners.rules)
        return constant_speed(pose, speed, line, spec, manners.steady_m_s, manners.gain_hz, manners.rules)

    return act


def by_scan(env: DriveEnv, _: Any) -> Tensor:
    """Follow the gap, by the noisy scan and speed that a policy is told of."""
    assert isinstance(env.cfg, RaceCfg)
    told: Any = env.signals
    ranges_m, speed_m_s = told.surroundings.scan_ranges_m, told.lin_vel_base_in_base_m_s[:, 0]
    return gap_driver(ranges_m, speed_m_s, env.cfg.lidar, env.cfg.driver)


def line_ahead(env: DriveEnv) -> Window | None:
    """The middle of the lane or track around the cars; None where there is neither."""
    scene = env.scene
    if isinstance(scene, RoadScene):
        return window(scene.routes, scene.route, scene.place.index, behind=BEHIND, count=BEHIND + AHEAD)
    if isinstance(scene, TrackScene):
        return window(scene.tracks, scene.track, scene.place.index, behind=BEHIND, count=BEHIND + AHEAD)
    return None


def lane_width_m(env: DriveEnv) -> float | None:
    """Mean width of the lanes or tracks around the cars; None where there are none."""
    line = line_ahead(env)
    return None if line is None else float((line.left_m + line.right_m).mean())
