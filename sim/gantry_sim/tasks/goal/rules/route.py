"""Route of the scripted walker: along the way, at a speed that the ground allows, into the heading, and to rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_sim.driving.maps.projection import wrapped
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.rules.cfg import WayRules
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.rule_state import RuleState
from gantry_sim.tasks.goal.rules.ways import Ways
from gantry_sim.tasks.goal.state import GoalState

AHEAD_M_S = (-0.3, 1.2)
"""Least and greatest velocity to the front."""
GO_M, FACE_M = 0.3, 0.45
"""Distances ahead on the way to which the base goes, and faces: on a beam it is to come back to the middle without
turning.
"""


@dataclass(frozen=True)
class Footing:
    """Ground as the last steps found it."""

    shift_w: Tensor
    """(N, f, 2) how far footholds were moved from where they would be on a plane, m."""
    bad: Tensor
    """(N,) running share of the ground around footholds that is not good to step on."""
    uneven_m: Tensor
    """(N,) difference of the feet's heights."""


@dataclass(frozen=True)
class Wish:
    """Command for the base."""

    vel_w: Tensor
    """(N, 2) in the world, m/s."""
    turn_rad_s: Tensor
    """(N,) about z."""


class Route:
    """Route by the true ground and what the last steps found of it: its student sees most of the reasons.

    Args:
        env: Environment of a goal task.
        ground: Its terrain.
        rules: Parameters.
    """

    def __init__(self, env: GantryEnv, ground: Ground, rules: WayRules) -> None:
        self._env, self._rules = env, rules
        self._ways = ways_of(env, ground)

    def __call__(self, now: RuleState, state: GoalState, footing: Footing) -> Wish:
        """Next wish for the base."""
        rules, carrot = self._rules, state.contract.command.carrot
        assert carrot is not None
        to_goal = state.goal_pos_w[:, :2] - now.pos_w[:, :2]
        distance = to_goal.norm(dim=-1)
        near = distance < rules.near_m
        straight = to_goal / distance.clamp(min=1e-3)[:, None]
        direction = torch.where(near[:, None], straight, self._along(now, state, GO_M))
        face = torch.where(near[:, None], straight, self._along(now, state, FACE_M))
        bearing = torch.atan2(face[:, 1], face[:, 0])
        error = wrapped(torch.where(distance < rules.face_m, state.goal_yaw, bearing) - now.yaw)
        turn = (carrot.yaw_gain_s * error).clamp(-rules.turn_rad_s, rules.turn_rad_s)
        # By what a policy sees and no memory, so that it can be told when.
        rest = (distance < carrot.stop_m) & (error.abs() < carrot.stop_rad)
        speed = (carrot.speed_gain_s * distance).clamp(max=rules.speed_m_s)
        speed = speed * torch.where(near, 1.0, (0.25 + 0.75 * torch.cos(error)).clamp(min=0.0))
        speed = speed * ~rest
        wanted = self._limited(now, direction * speed[:, None])
        return Wish(self._limited(now, torch.where(rest[:, None], 0.0, self._careful(wanted, footing))), turn * ~rest)

    def _along(self, now: RuleState, state: GoalState, look_m: float) -> Tensor:
        """Direction of the way to this far, (N, 2)."""
        terrain = self._env.scene.terrain
        assert terrain is not None
        level, column = terrain.terrain_levels, terrain.terrain_types
        goals = state.sites.goals[level, column]
        goal = (goals - state.goal_pos_w[:, None])[..., :2].norm(dim=-1).argmin(1)
        return self._ways.direction(now.pos_w[:, :2], level, column, goal, look_m)

    def _careful(self, wanted: Tensor, footing: Footing) -> Tensor:
        """Remaining part of a velocity (N, 2) where the ground is bad and uneven, and to where footholds are, (N,
        2).
        """
        rules = self._rules
        bad = 1.0 - rules.slow_bad * footing.bad
        uneven = (1.0 - rules.slow_uneven * (footing.uneven_m - 0.08).clamp(min=0.0) / 0.2).clamp(min=0.35)
        return wanted * (bad * uneven)[:, None] + rules.follow_feet_s * footing.shift_w.mean(1)

    def _limited(self, now: RuleState, vel: Tensor) -> Tensor:
        ahead = (vel * now.ahead).sum(-1, keepdim=True).clamp(*AHEAD_M_S)
        aside = (vel * now.aside).sum(-1, keepdim=True).clamp(-self._rules.sideways_m_s, self._rules.sideways_m_s)
        return ahead * now.ahead + aside * now.aside


def ways_of(env: GantryEnv, ground: Ground) -> Ways:
    """The ways on an environment's terrain."""
    sites, terrain = GoalState.of(env).sites, env.scene.terrain
    assert terrain is not None
    assert terrain.cfg.terrain_generator is not None
    length, width = terrain.cfg.terrain_generator.size
    levels, columns = sites.spawn.shape[:2]
    x = (torch.arange(levels, device=env.device) - 0.5 * levels) * length
    y = (torch.arange(columns, device=env.device) - 0.5 * columns) * width
    low = torch.stack(torch.meshgrid(x, y, indexing="ij"), -1)
    return Ways(ground, sites.goals, low, (length, width))
