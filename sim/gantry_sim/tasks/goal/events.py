"""Resets of the goal tasks, and what differs between environments (AME-2, App. B)."""

from __future__ import annotations

import math

import torch
from mjlab.envs import mdp as envs_mdp
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.robots import GoalRobotCfg
from gantry_sim.tasks.goal.state import GoalState


def start_on_tile(env: GantryEnv, env_ids: Tensor | None, spawn_height_m: float) -> None:
    """Put robots of environments, indices (k,), near the start of their tiles: facing ahead at first, any way once
    the ramp is at its end.
    """
    state = GoalState.of(env)
    cfg = state.cfg.randomize
    terrain = env.scene.terrain
    assert terrain is not None
    ids = torch.arange(env.num_envs, device=env.device) if env_ids is None else env_ids
    spawn = state.sites.spawn[terrain.terrain_levels[ids], terrain.terrain_types[ids]]

    def uniform(columns: int, half_width: float) -> Tensor:
        return (torch.rand(len(ids), columns, device=env.device) * 2.0 - 1.0) * half_width

    pose = torch.zeros(len(ids), 7, device=env.device)
    pose[:, :3] = spawn[:, :3]
    pose[:, :2] += uniform(2, cfg.start_m)
    pose[:, 2] += spawn_height_m
    yaw = spawn[:, 3] + uniform(1, math.pi * state.ramp * cfg.start_yaw_share)[:, 0]
    pose[:, 3], pose[:, 6] = torch.cos(0.5 * yaw), torch.sin(0.5 * yaw)
    velocity = torch.zeros(len(ids), 6, device=env.device)
    velocity[:, :2] = uniform(2, cfg.start_vel_m_s)
    env.robot.write_root_link_pose_to_sim(pose, env_ids=ids)
    env.robot.write_root_link_velocity_to_sim(velocity, env_ids=ids)


def forget(env: GantryEnv, env_ids: Tensor | None) -> None:
    """Forget the motion of environments, indices (k,), before a reset and draw the map's new drift."""
    ids = torch.arange(env.num_envs, device=env.device) if env_ids is None else env_ids
    GoalState.of(env).reset(ids)


def event_cfgs(cfg: GoalCfg, robot: GoalRobotCfg, foot_geoms: tuple[str, ...]) -> dict[str, EventTermCfg]:
    """Every event of the task."""
    body, random = robot.body, cfg.randomize
    base = SceneEntityCfg("robot", body_names=(body.heavy_body,))
    shift = (-random.com_offset_m, random.com_offset_m)
    joints = (-random.start_joint_rad, random.start_joint_rad)
    return {
        "start": EventTermCfg(func=start_on_tile, mode="reset", params={"spawn_height_m": body.spawn_height_m}),
        "joints": EventTermCfg(
            func=envs_mdp.reset_joints_by_offset,
            mode="reset",
            params={
                "position_range": joints,
                "velocity_range": (0.0, 0.0),
                "asset_cfg": SceneEntityCfg("robot", joint_names=(".*",)),
            },
        ),
        "forget": EventTermCfg(func=forget, mode="reset"),
        "foot_friction": EventTermCfg(
            func=envs_mdp.dr.geom_friction,
            mode="startup",
            params={
                "asset_cfg": SceneEntityCfg("robot", geom_names=foot_geoms),
                "operation": "abs",
                "ranges": random.friction,
                "shared_random": True,
            },
        ),
        "base_mass": EventTermCfg(
            func=envs_mdp.dr.body_mass,
            mode="startup",
            params={"asset_cfg": base, "operation": "add", "ranges": random.added_mass_kg},
        ),
        "base_com": EventTermCfg(
            func=envs_mdp.dr.body_com_offset,
            mode="startup",
            params={"asset_cfg": base, "operation": "add", "ranges": {0: shift, 1: shift}},
        ),
    }
