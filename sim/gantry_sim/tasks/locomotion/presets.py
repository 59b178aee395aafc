"""The velocity tasks by robot and ground, each with a preset for a laptop and one for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.evaluation.metrics import planar_velocity_error_m_s, yaw_rate_error_rad_s
from gantry_deploy.observations.mirrors import MirrorMap, mirror_action, mirror_feet
from gantry_hardware.robots import robot_spec
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.symmetry import mirror_actor, mirror_frame
from gantry_sim.envs.managed import ManagedBatch
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks import catalogue
from gantry_sim.tasks.catalogue import TaskInfo
from gantry_sim.tasks.locomotion.evaluation import evaluate_velocity, record_velocity
from gantry_sim.tasks.locomotion.ground import SCAN_RESOLUTION_M, SCAN_SIZE_M
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg
from gantry_sim.tasks.locomotion.machine.state import KNOWN
from gantry_sim.tasks.locomotion.robots import legged_robot_cfg
from gantry_sim.tasks.locomotion.state import LocomotionState
from gantry_sim.tasks.locomotion.terms import SensorNoiseCfg
from gantry_sim.tasks.locomotion.velocity import velocity_contract, velocity_env_cfg
from gantry_sim.tasks.locomotion.velocity_cfg import VelocityCfg
from gantry_sim.tasks.registry import Preset, Task


def cpu_flat(robot: str) -> Preset:
    """Few samples: feet-only collisions, pyramidal cone, 10 ms physics, small networks."""
    return Preset(
        env=VelocityCfg(robot=robot, num_envs=1024, physics_dt_s=0.01, feet_only=True, pyramidal=True),
        learner=PpoCfg(total_steps=3_000_000, learning_rate=2e-3, final_learning_rate_factor=0.5),
    )


def differing(env: VelocityCfg) -> VelocityCfg:
    """The same task on machines that differ, with the loads and pushes that they may meet: a stiffer position loop, a
    quicker gait, and a history that tells one machine from another.

    Friction grows with the robot's motors; the numbers are those of a Go2.
    """
    robot, measured = robot_spec(env.robot), robot_spec("go2")
    scale = float(np.median(robot.array("effort_limit_nm")) / np.median(measured.array("effort_limit_nm")))
    load = robot.mass_kg / measured.mass_kg
    return replace(
        env,
        machine=MachineCfg.wide(scale),
        added_mass_kg=(-1.0 * load, 3.0 * load),
        push_m_s=1.0,
        history=3,
        bandwidth=1.4,
        gait_frequency_hz=2.5,
    )


def cpu_wide(robot: str) -> Preset:
    """Few samples on machines that differ."""
    preset = cpu_flat(robot)
    return replace(preset, env=differing(preset.env))


def gpu_wide(robot: str) -> Preset:
    """mjlab's scale: every collision shape, elliptic cone, 5 ms physics, 4,096 environments, machines that differ."""
    preset = gpu_flat(robot)
    return replace(preset, env=differing(preset.env))


def gpu_flat(robot: str) -> Preset:
    """mjlab's scale: every collision shape, elliptic cone, 5 ms physics, pushes, 4,096 environments."""
    return Preset(
        env=VelocityCfg(robot=robot, num_envs=4096, physics_dt_s=0.005, feet_only=False, pyramidal=False, push_m_s=0.5),
        learner=PpoCfg(
            total_steps=300_000_000,
            epochs=5,
            gamma=0.99,
            desired_kl=0.01,
            hidden=(512, 256, 128),
            critic_hidden=(512, 256, 128),
            normalize=True,
        ),
    )


def cpu_rough(robot: str) -> Preset:
    """Few samples on uneven ground: every collision shape, but the cheap cone, and a longer training."""
    flat = cpu_flat(robot)
    env = replace(
        flat.env,
        rough=True,
        feet_only=False,
        num_envs=1024,
        lin_vel_x_m_s=(-0.8, 0.8),
        lin_vel_y_m_s=(-0.4, 0.4),
        reward_weights={"tilt": -0.5, "vertical_velocity": -0.5, "height": -10.0},
        acceptance=Acceptance(max_lin_vel_error_m_s=0.2, max_yaw_rate_error_rad_s=0.3, max_fall_rate=0.05),
    )
    return Preset(env, replace(flat.learner, total_steps=5_000_000))


def gpu_rough(robot: str) -> Preset:
    """mjlab's scale on uneven ground."""
    flat = gpu_flat(robot)
    few = cpu_rough(robot).env
    env = replace(flat.env, rough=True, terrain_levels=10, reward_weights=few.reward_weights, acceptance=few.acceptance)
    return Preset(env, replace(flat.learner, total_steps=1_000_000_000))


def cpu_humanoid(robot: str) -> Preset:
    """The few-sample recipe for two legs: smaller first actions, narrower commands, stepping and following worth more.

    The gait's balance walks from the first step, and a history of three readings tells where the body is going to.
    Weak pushes teach to stand. After 6.3 million steps one episode in twenty still ends in a fall, one in six with the
    full model (docs/experiments/walking.md).
    """
    flat = cpu_flat(robot)
    env = replace(
        flat.env,
        physics_dt_s=0.005,
        lin_vel_x_m_s=(-0.3, 0.6),
        lin_vel_y_m_s=(-0.2, 0.2),
        yaw_rate_rad_s=(-0.5, 0.5),
        com_offset_m=0.015,
        # A memoryless network cannot average noise away, and a body on two feet falls by what a quadruped shrugs off.
        noise=SensorNoiseCfg(joint_pos_rad=0.005, joint_vel_rad_s=0.5, ang_vel_rad_s=0.1, tilt_rad=0.02),
        reset_joint_rad=0.03,
        history=3,
        standing_share=0.2,
        push_m_s=0.3,
        track_width_m_s=0.3,
        reward_weights={"contact_matches_clock": 2.0, "swing_height": 2.0},
        acceptance=Acceptance(max_lin_vel_error_m_s=0.2, max_yaw_rate_error_rad_s=0.3, max_fall_rate=0.05),
    )
    return Preset(
        env, replace(flat.learner, total_steps=12_000_000, learning_rate=7e-4, init_std=0.1, entropy=3e-4, gamma=0.99)
    )


def gpu_humanoid(robot: str) -> Preset:
    """mjlab's scale for two legs, with the commands of the few-sample preset."""
    flat, few = gpu_flat(robot), cpu_humanoid(robot).env
    env = replace(
        flat.env,
        lin_vel_x_m_s=few.lin_vel_x_m_s,
        lin_vel_y_m_s=few.lin_vel_y_m_s,
        yaw_rate_rad_s=few.yaw_rate_rad_s,
        com_offset_m=few.com_offset_m,
        acceptance=few.acceptance,
    )
    return Preset(env, replace(flat.learner, total_steps=1_000_000_000))


def make_env(cfg: VelocityCfg, device: str, seed: int) -> ManagedBatch:
    """The environments on a device."""
    with quietly():
        return ManagedBatch(GantryEnv(velocity_env_cfg(cfg, seed=seed), device), step_metrics)


def mirror_maps(cfg: VelocityCfg) -> dict[str, MirrorMap]:
    """Left-right symmetry of observations and actions."""
    contract = velocity_contract(cfg)
    foot = mirror_feet(legged_robot_cfg(cfg.robot).spec)
    critic = mirror_frame(contract) + MirrorMap.signs(1, -1, 1) + foot + foot + MirrorMap.signs(1)
    if cfg.machine != MachineCfg():
        critic = critic + MirrorMap.signs(*(1,) * KNOWN)
    if cfg.rough:
        critic = critic + mirror_scan()
    return {"actor": mirror_actor(contract), "critic": critic, "action": mirror_action(contract)}


def mirror_scan() -> MirrorMap:
    """The critic's height scan: rows along y, the first at the right edge, swap from side to side."""
    per_row, rows = (round(size / SCAN_RESOLUTION_M) + 1 for size in SCAN_SIZE_M)
    source = tuple((rows - 1 - row) * per_row + column for row in range(rows) for column in range(per_row))
    return MirrorMap(source, tuple(1.0 for _ in source))


def step_metrics(env: GantryEnv) -> dict[str, torch.Tensor]:
    """Tracking errors of the step just taken, all environments."""
    state = LocomotionState.of(env)
    planar = planar_velocity_error_m_s(state.lin_vel_b, state.command).mean()
    yaw = yaw_rate_error_rad_s(state.ang_vel_b, state.command).mean()
    metrics = {"lin_vel_error_m_s": planar, "yaw_rate_error_rad_s": yaw}
    levels = getattr(env.scene.terrain, "terrain_levels", None)
    return metrics if levels is None else metrics | {"terrain_level": levels.float().mean()}


def evaluation_cfg(cfg: VelocityCfg, *, num_envs: int, full_model: bool = False, standing: bool = False) -> VelocityCfg:
    """Held-out episodes: every command moves, or with ``standing`` none does; ``full_model`` takes all collision shapes
    and the finer physics."""
    share = 1.0 if standing else 0.0
    cfg = replace(cfg, num_envs=num_envs, standing_share=share, push_m_s=0.0, curriculum=False)
    return replace(cfg, feet_only=False, pyramidal=False, physics_dt_s=0.005) if full_model else cfg


def _unmirrored(make: Callable[[str], Preset], robot: str) -> Preset:
    preset = make(robot)
    return replace(preset, learner=replace(preset.learner, mirror="none"))


def _task(
    info: TaskInfo, cpu: Any, gpu: Any, more: Mapping[str, Callable[[str], Preset]] = MappingProxyType({})
) -> Task:
    return Task(
        name=info.name,
        summary=info.summary,
        robot=info.robot,
        presets={name: partial(make, info.robot) for name, make in {"cpu": cpu, "gpu": gpu, **more}.items()},
        make_env=make_env,
        contract=velocity_contract,
        mirror=mirror_maps,
        evaluation=evaluation_cfg,
        evaluate=evaluate_velocity,
        record=record_velocity,
        around=lambda cfg, dynamics: replace(cfg, machine=cfg.machine.around(dynamics, robot_spec(cfg.robot))),
        other_robots=True,
    )


def flat_task(info: TaskInfo, *, mirror: bool = True) -> Task:
    """The velocity task of a quadruped on flat ground, for packages that bring robots of their own.

    Args:
        info: Name, summary and robot.
        mirror: Whether the robot's sides are mirror images, of which both are learned from.
    """
    task = _task(info, cpu_flat, gpu_flat)
    if mirror:
        return task
    presets = {name: partial(_unmirrored, make, info.robot) for name, make in (("cpu", cpu_flat), ("gpu", gpu_flat))}
    return replace(task, presets=presets, mirror=lambda cfg: None)


WIDE = {"cpu-wide": cpu_wide, "gpu-wide": gpu_wide}
"""Presets on machines that differ."""
FLAT_GO1 = _task(catalogue.FLAT_GO1, cpu_flat, gpu_flat, WIDE)
FLAT_GO2 = _task(catalogue.FLAT_GO2, cpu_flat, gpu_flat, WIDE)
FLAT_G1 = _task(catalogue.FLAT_G1, cpu_humanoid, gpu_humanoid)
ROUGH_GO2 = _task(catalogue.ROUGH_GO2, cpu_rough, gpu_rough)
