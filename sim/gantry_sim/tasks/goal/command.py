"""The goal command: one goal per episode, from the tile that the robot stands on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from mjlab.managers.command_manager import CommandTerm, CommandTermCfg
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.state import GoalState

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
