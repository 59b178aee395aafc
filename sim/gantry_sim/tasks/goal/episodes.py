"""Episodes of the goal tasks: starts and differences between environments (AME-2, App. B), goals, and levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from mjlab.envs import mdp as envs_mdp
from mjlab.managers.command_manager import CommandTerm, CommandTermCfg
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.rewards import NEAR_M
from gantry_sim.tasks.goal.robots import GoalRobotCfg
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.terrains.grid import terrain_sites


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


CONE_SLACK_M = 0.1
"""Goals may lie so far outside their cone."""


@dataclass(kw_only=True)
class GoalCommandCfg(CommandTermCfg):
    """Goals of the tiles' :class:`~gantry_sim.terrains.grid.TerrainSites`."""

    resampling_time_range: tuple[float, float] = (1e9, 1e9)
    """Never within an episode."""

    def build(self, env: Any) -> GoalCommand:
        """Make the term."""
        return GoalCommand(self, env)


class GoalCommand(CommandTerm):
    """Draws a goal at each reset; what it means for the robot is :attr:`GoalState.command`."""

    @property
    def command(self) -> Tensor:
        """(N, 4) as of the newest state."""
        env: GantryEnv = self._env  # type: ignore[assignment]
        return GoalState.of(env).command

    def _resample_command(self, env_ids: Tensor) -> None:
        env: GantryEnv = self._env  # type: ignore[assignment]
        state = GoalState.of(env)
        terrain = env.scene.terrain
        assert terrain is not None
        level, column = terrain.terrain_levels[env_ids], terrain.terrain_types[env_ids]
        spawn, goals = state.sites.spawn[level, column], state.sites.goals[level, column]
        narrow, wide = state.cfg.randomize.goal_cone_rad
        allowed = in_cone(goals[..., :2] - spawn[:, None, :2], spawn[:, 3], narrow + state.ramp * (wide - narrow))
        choice = pick(allowed)
        half = state.cfg.randomize.goal_heading_rad
        yaw = spawn[:, 3] + (torch.rand(len(env_ids), device=env.device) * 2.0 - 1.0) * half
        state.set_goals(env_ids, goals[torch.arange(len(env_ids), device=env.device), choice], yaw)

    def _update_command(self, env_ids: Tensor | None = None) -> None:
        """Nothing: the command follows from the state."""

    def _update_metrics(self) -> None:
        """Nothing: the curriculum keeps the scores."""


def in_cone(offset: Tensor, yaw: Tensor, half_angle_rad: float) -> Tensor:
    """Whether points lie in a cone ahead, (k, g) bool.

    Args:
        offset: (k, g, 2) from the cone's tip, m.
        yaw: (k,) direction of the cone.
        half_angle_rad: Its half angle.
    """
    cos, sin = torch.cos(yaw)[:, None], torch.sin(yaw)[:, None]
    ahead = cos * offset[..., 0] + sin * offset[..., 1]
    aside = cos * offset[..., 1] - sin * offset[..., 0]
    return (ahead > 0) & (aside.abs() <= ahead * math.tan(half_angle_rad) + CONE_SLACK_M)


def pick(allowed: Tensor) -> Tensor:
    """A random one of the allowed entries of each row (k, g), any if none is, (k,)."""
    weight = torch.where(allowed.any(dim=1, keepdim=True), allowed, True).to(torch.float32)
    return torch.multinomial(weight, 1)[:, 0]


FAR_M = 4.0
"""A robot that ends farther from its goal than this moves down: the mean distance at the start is about twice that
on our tiles, and this on the paper's."""
PROMOTE_ABOVE = 0.5
"""Running success that moves up."""
LEAVING_LEVEL = 1
"""A robot that moves up from this level of the school leaves it; one that comes back starts there."""


class GoalLevels:
    """Judges the episodes that end; called before a reset.

    With a *school*, every robot begins on that terrain, is sent to its own column when it has done well there, and
    comes back when it fails on its column's lowest level. Few samples then go into terrain that is still too hard.
    """

    def __init__(self, cfg: Any, env: Any) -> None:
        terrain = env.scene.terrain
        bound = GoalState.of(env).cfg.ground.trained_levels if cfg is not None else None
        if bound is not None:
            terrain.max_terrain_level = min(bound, terrain.max_terrain_level)
        self._home = terrain.terrain_types.clone()
        self._school = school_columns(terrain, cfg.params.get("school", ()) if cfg is not None else ())
        if len(self._school):
            away = ~torch.isin(self._home, self._school)
            _move(terrain, torch.nonzero(away).flatten(), self._random_columns(int(away.sum())), None)
        # The first episode of an environment starts somewhere in its middle; it is not judged.
        self._judged = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)

    def _random_columns(self, count: int) -> Tensor:
        return self._school[torch.randint(len(self._school), (count,), device=self._school.device)]

    def _change_terrain(self, env: Any, env_ids: Tensor, up: Tensor, down: Tensor) -> Tensor:
        """Send robots home from school and back; those that moved, (k,) bool."""
        terrain = env.scene.terrain
        level, column = terrain.terrain_levels[env_ids], terrain.terrain_types[env_ids]
        at_home = column == self._home[env_ids]
        leaves = up & ~at_home & (level >= LEAVING_LEVEL)
        returns = down & at_home & (level == 0) & ~torch.isin(column, self._school)
        _move(terrain, env_ids[leaves], self._home[env_ids[leaves]], 0)
        _move(terrain, env_ids[returns], self._random_columns(int(returns.sum())), LEAVING_LEVEL)
        return leaves | returns

    def __call__(self, env: Any, env_ids: Tensor, newest: float, school: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """Move robots; mean levels over all and by kind of terrain.

        Args:
            env: The environment.
            env_ids: (k,) episodes that end.
            newest: Weight of the newest episode in the running success.
            school: Kinds or groups of terrain that robots begin on; as at the beginning.
        """
        del school
        state = GoalState.of(env)
        terrain = env.scene.terrain
        judged = self._judged[env_ids]
        ended_early = env.termination_manager.terminated[env_ids]
        arrived = (state.distance[env_ids] < NEAR_M) & ~ended_early
        before = state.success_ema[env_ids]
        success = torch.where(judged, (1.0 - newest) * before + newest * arrived, before)
        up = judged & arrived & (success > PROMOTE_ABOVE)
        down = judged & ~up & (state.distance[env_ids] > FAR_M)
        if len(self._school):
            moved = self._change_terrain(env, env_ids, up, down)
            success = torch.where(moved, 0.0, success)  # of this terrain it knows nothing yet
            up, down = up & ~moved, down & ~moved
        state.success_ema[env_ids] = success
        terrain.update_env_origins(env_ids, up, down)
        self._judged[env_ids] = True
        levels = terrain.terrain_levels.float()
        kinds = state.sites.kinds
        found = {"mean": levels.mean()}
        for kind in dict.fromkeys(kinds):
            columns = torch.tensor([i for i, name in enumerate(kinds) if name == kind], device=levels.device)
            found[kind] = levels[torch.isin(terrain.terrain_types, columns)].mean()
        return found


def school_columns(terrain: Any, names: tuple[str, ...]) -> Tensor:
    """Columns of a terrain of these kinds or groups of kinds, all of which it may lack."""
    sites = terrain_sites(terrain)
    found = [
        i for i, (kind, group) in enumerate(zip(sites.kinds, sites.groups, strict=True)) if {kind, group} & {*names}
    ]
    return torch.tensor(found, dtype=torch.long, device=terrain.terrain_types.device)


def _move(terrain: Any, env_ids: Tensor, columns: Tensor, level: int | None) -> None:
    """Put environments (k,) on columns (k,), and on a level if one is given."""
    terrain.terrain_types[env_ids] = columns
    if level is not None:
        terrain.terrain_levels[env_ids] = min(level, terrain.max_terrain_level - 1)
    terrain.env_origins[env_ids] = terrain.terrain_origins[
        terrain.terrain_levels[env_ids], terrain.terrain_types[env_ids]
    ]
