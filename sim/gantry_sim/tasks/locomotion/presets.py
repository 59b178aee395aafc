"""The velocity tasks by robot and ground, each with a preset for a laptop and one for a GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from gantry_policies.config import PpoCfg
from gantry_policies.symmetry import MirrorMap, mirror_actor, mirror_joints, mirror_names
from gantry_sim.env import GantryEnv
from gantry_sim.tasks.locomotion.robots import walker
from gantry_sim.tasks.locomotion.state import LocomotionState
from gantry_sim.tasks.locomotion.velocity import VelocityCfg, velocity_contract, velocity_env_cfg
from gantry_sim.tasks.registry import Preset, Task


def cpu_flat(robot: str) -> Preset:
    """Few samples: feet-only collisions, pyramidal cone, 10 ms physics, small networks."""
    return Preset(
        env=VelocityCfg(robot=robot, num_envs=1024, physics_dt_s=0.01, feet_only=True, pyramidal=True),
        learner=PpoCfg(total_steps=2_700_000),
    )


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


def make_env(cfg: VelocityCfg, device: str, seed: int) -> GantryEnv:
    """The environment on a device."""
    return GantryEnv(velocity_env_cfg(cfg, seed=seed), device)


def mirror_maps(cfg: VelocityCfg) -> dict[str, MirrorMap]:
    """Left-right symmetry of observations and actions."""
    contract = velocity_contract(cfg)
    actor = mirror_actor(contract)
    feet = walker(cfg.robot).spec.feet
    foot = mirror_names(feet, tuple(1.0 for _ in feet))
    critic = actor + MirrorMap.signs(1, -1, 1) + foot + foot + MirrorMap.signs(1)
    return {"actor": actor, "critic": critic, "action": mirror_joints(contract.joint_names)}


def step_metrics(env: GantryEnv) -> dict[str, torch.Tensor]:
    """Tracking errors of the step just taken, all environments."""
    state = LocomotionState.of(env)
    planar = (state.lin_vel_b[:, :2] - state.command[:, :2]).norm(dim=-1).mean()
    yaw = (state.ang_vel_b[:, 2] - state.command[:, 2]).abs().mean()
    return {"lin_vel_error_m_s": planar, "yaw_rate_error_rad_s": yaw}


def evaluation_cfg(cfg: VelocityCfg, *, num_envs: int, full_model: bool = False) -> VelocityCfg:
    """Held-out episodes: every command moves; ``full_model`` takes all collision shapes and the finer physics."""
    cfg = replace(cfg, num_envs=num_envs, standing_share=0.0, push_m_s=0.0)
    return replace(cfg, feet_only=False, pyramidal=False, physics_dt_s=0.005) if full_model else cfg


def _task(name: str, summary: str, robot: str, cpu: Any, gpu: Any) -> Task:
    return Task(
        name=name,
        summary=summary,
        robot=robot,
        presets={"cpu": partial(cpu, robot), "gpu": partial(gpu, robot)},
        make_env=make_env,
        contract=velocity_contract,
        mirror=mirror_maps,
        metrics=step_metrics,
        evaluation=evaluation_cfg,
    )


FLAT_GO1 = _task("velocity-flat-go1", "Go1 follows a velocity command on flat ground", "go1", cpu_flat, gpu_flat)
FLAT_GO2 = _task("velocity-flat-go2", "Go2 follows a velocity command on flat ground", "go2", cpu_flat, gpu_flat)
