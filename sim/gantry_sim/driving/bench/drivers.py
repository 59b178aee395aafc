"""Drivers in a table beside trained policies: those that learned nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gantry_sim.driving.cfg import RANDOM, RULES, SCAN, STEADY
from gantry_sim.driving.drivers.baselines import constant_speed, random_actions
from gantry_sim.driving.drivers.racers import gap_driver
from gantry_sim.driving.env import DriveEnv

Act = Callable[[DriveEnv, Any], Tensor]
"""(environment, observations) -> actions ``(N, 2)``."""
BASELINES = (RULES, STEADY, RANDOM)
"""Drivers that learned nothing, see :mod:`gantry_sim.driving.drivers.baselines`."""
RACERS = (RULES, SCAN, STEADY, RANDOM)
"""Those on tracks, see :mod:`gantry_sim.driving.drivers.racers`."""


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
        None where it cannot drive at all, see :attr:`~gantry_sim.driving.cfg.CarTaskCfg.drivers`.
    """
    if name not in env.cfg.drivers:
        return None
    if name == RANDOM:
        generator = torch.Generator(env.device).manual_seed(seed)
        return lambda env, _: random_actions(env.num_envs, generator)
    return {RULES: lambda env, _: env.scene.scripted_actions(), SCAN: by_scan, STEADY: steady}[name]


def steady(env: DriveEnv, _: Any) -> Tensor:
    """Actions ``(N, 2)`` along the line at constant speed; only where there is a line."""
    line, manners, cars = env.scene.line_ahead(), env.scene.manners, env.cars
    assert line is not None
    assert manners is not None
    speeds = manners.steady_m_s, manners.gain_hz
    return constant_speed(cars.pose, cars.speed_m_s, line, env.cfg.driver, *speeds, manners.rules)


def by_scan(env: DriveEnv, _: Any) -> Tensor:
    """Actions ``(N, 2)`` that follow the gap, by the noisy scan and speed that a policy is told of."""
    told: Any = env.signals
    ranges_m, speed_m_s = told.surroundings.scan_ranges_m, told.lin_vel_base_in_base_m_s[:, 0]
    return gap_driver(ranges_m, speed_m_s, env.cfg.lidar, env.cfg.driver)


def lane_width_m(env: DriveEnv) -> float | None:
    """Mean width of the lanes or tracks around the cars, m; None where there are none."""
    line = env.scene.line_ahead()
    return None if line is None else float((line.left_m + line.right_m).mean())
