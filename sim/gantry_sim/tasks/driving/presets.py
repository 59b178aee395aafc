"""The driving tasks, each with a preset for a laptop and one for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.robots import robot_spec
from gantry_policies.on_policy.config import PpoCfg
from gantry_sim.driving.cfg import CarTaskCfg, DriveCfg
from gantry_sim.driving.drivers.teachers import DRIVE_GUIDE
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import evaluate_drive, held_out, record_drive
from gantry_sim.driving.maps.generate import MapConfig
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.reward import RewardCfg, reward_kind
from gantry_sim.driving.scenes.registry import drive_contract
from gantry_sim.driving.track_cfg import RaceCfg
from gantry_sim.driving.traffic.lights import LightsCfg
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg, TrafficShares
from gantry_sim.tasks import catalogue
from gantry_sim.tasks.catalogue import TaskInfo
from gantry_sim.tasks.registry import Preset, ScriptedPolicy, Task

ROADS = {"straight": 1.0, "arc": 2.0, "s": 1.0}
"""Blocks of roads without junctions."""


def _few_samples() -> PpoCfg:
    """PPO with numbers instead of pictures, small networks and large minibatches."""
    return PpoCfg(
        total_steps=4_000_000,
        steps_per_env=64,
        epochs=4,
        minibatch_samples=4096,
        learning_rate=7e-4,
        final_learning_rate_factor=0.1,
        clip=0.2,
        entropy=0.001,
        gamma=0.99,
        normalize=True,
        hidden=(128, 128),
        critic_hidden=(128, 128),
        distribution="beta",
        guide=DRIVE_GUIDE,
    )


def cpu_lane() -> Preset:
    """Following a route alone, where losing the rest of it is enough of a reason to stay on the road."""
    return Preset(
        env=DriveCfg(history=3, reward=RewardCfg(steering_smoothness=0.5, infraction_hint=0.0)), learner=_few_samples()
    )


def cpu_traffic() -> Preset:
    """Roads among others: users that drive ahead, stand, cut in, come towards, walk across, and things at the edge."""
    env = DriveCfg(
        num_envs=512,
        history=3,
        maps=MapConfig(blocks=ROADS, min_route_m=320.0),
        episode_s=90.0,
        blocked_s=30.0,
        traffic=TrafficCfg(shares=TrafficShares(crossing=0.0)),
        reward=RewardCfg(steering_smoothness=0.5, infraction_hint=10.0),
    )
    learner = replace(
        _few_samples(),
        total_steps=8_000_000,
        steps_per_env=32,
        entropy_decay=0.99,
        gamma=0.995,  # Waiting behind a standing user has to be worth it.
        hidden=(256, 128),
        critic_hidden=(256, 128),
    )
    return Preset(env, learner)


def cpu_junction() -> Preset:
    """Towns with lights, crossing traffic and roundabouts."""
    few = cpu_traffic()
    traffic = TrafficCfg(lights=LightsCfg(green_s=(5.0, 9.0)))
    env = replace(few.env, maps=MapConfig(min_route_m=320.0), traffic=traffic, episode_s=120.0, blocked_s=60.0)
    # Red lights last up to half a minute: with a smaller discount factor, driving past them pays.
    return Preset(env, replace(few.learner, total_steps=20_000_000, gamma=0.998))


def cpu_park() -> Preset:
    """Standing in a free slot among parked cars."""
    learner = replace(
        _few_samples(),
        total_steps=10_000_000,
        epochs=5,
        minibatch_samples=2048,
        hidden=(256, 256),
        critic_hidden=(256, 256),
        guide=replace(DRIVE_GUIDE, imitation_iterations=60, fade_iterations=200),
    )
    return Preset(ParkCfg(rate_hz=5.0, substeps=4), learner)


def cpu_race() -> Preset:
    """A small car on race tracks, by what its scanner sees."""
    return Preset(RaceCfg(), replace(_few_samples(), total_steps=6_000_000))


def at_size(few: Callable[[], Preset]) -> Callable[[], Preset]:
    """A preset at the size of CaRL's batches (arXiv 2504.17838)."""

    def preset() -> Preset:
        cpu = few()
        learner = replace(
            cpu.learner,
            total_steps=100_000_000,
            steps_per_env=16,
            minibatch_samples=16_384,
            learning_rate=2.5e-4,
            epochs=3,
            clip=0.1,
            entropy=0.01,
            hidden=(256, 256),
            critic_hidden=(256, 256),
        )
        return Preset(replace(cpu.env, num_envs=4096, map_count=512), learner)

    return preset


def differing(few: Callable[[], Preset]) -> Callable[[], Preset]:
    """A preset on cars that differ more."""

    def preset() -> Preset:
        usual = few()
        return replace(usual, env=replace(usual.env, randomization=usual.env.randomization.wide()))

    return preset


def with_pictures(few: Callable[[], Preset]) -> Callable[[], Preset]:
    """A preset that sees the road and others from above, as CaRL does, in place of numbers of others."""

    def preset() -> Preset:
        many = at_size(few)()
        env = replace(many.env, num_envs=1024, map_count=256, bev=BevLayout(pixels=128, metres_per_pixel=0.5))
        learner = replace(
            many.learner, network="bev", critic_network="bev", activation="relu", chunk_rows=4096, steps_per_env=32
        )
        return Preset(env, learner)

    return preset


def _make_env(cfg: Any, device: str, seed: int) -> Any:
    assert isinstance(cfg, CarTaskCfg)
    return DriveEnv(cfg, device, seed)


def _require(cfg: Any) -> None:
    assert isinstance(cfg, CarTaskCfg)
    reward_kind(cfg.reward.kind).require(cfg.reward)


def _around(cfg: Any, dynamics: RobotDynamics) -> Any:
    return replace(cfg, randomization=cfg.randomization.around(dynamics, *robot_spec(cfg.robot).joint_names))


def _slow_start(cfg: Any) -> str:
    if not isinstance(cfg, ParkCfg) or cfg.way is None:
        return ""
    return f"First the ways to the slots of {cfg.map_count} lots are worked out; 256 of them take one to two minutes."


def _task(info: TaskInfo, cpu: Callable[[], Preset], *, scripted: bool = True) -> Task:
    sizes = {"cpu": cpu, "gpu": at_size(cpu), "gpu-bev": with_pictures(cpu)}
    sizes |= {f"{name}-wide": differing(sizes[name]) for name in ("cpu", "gpu")}
    return Task(
        name=info.name,
        summary=info.summary,
        robot=info.robot,
        presets={name: sizes[name] for name in info.presets},
        make_env=_make_env,
        contract=drive_contract,
        evaluation=held_out,
        evaluate=evaluate_drive,
        record=record_drive,
        teacher=drive_contract,
        scripted=ScriptedPolicy() if scripted else None,
        around=_around,
        require=_require,
        slow_start=_slow_start,
    )


DRIVE_LANE = _task(catalogue.DRIVE_LANE, cpu_lane)
DRIVE_TRAFFIC = _task(catalogue.DRIVE_TRAFFIC, cpu_traffic)
DRIVE_JUNCTION = _task(catalogue.DRIVE_JUNCTION, cpu_junction)
DRIVE_RACE = _task(catalogue.DRIVE_RACE, cpu_race, scripted=False)
DRIVE_PARK = _task(catalogue.DRIVE_PARK, cpu_park)
