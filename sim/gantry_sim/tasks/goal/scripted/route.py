"""Route of the scripted policy: along the path, at a speed that the ground allows, into the heading, and to rest."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_deploy.footsteps.controller import FOLLOW_1_S
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.scripted.footholds import ScriptedFootholds
from gantry_sim.tasks.goal.scripted.ground import Ground
from gantry_sim.tasks.goal.scripted.paths import Paths
from gantry_sim.tasks.goal.scripted.walk_state import WalkState
from gantry_sim.tasks.goal.state import GoalState

AHEAD_M_S, ASIDE_M_S = (-0.3, 1.2), 0.4
"""Least and greatest velocity to the front, and greatest to either side."""
SPEED_M_S, TURN_RAD_S = 0.6, 1.2039
"""Greatest speed on the path, and turning rate."""
GO_M, FACE_M = 0.3, 0.45
"""Distances ahead on the path to which the base goes, and faces: on a beam it is to come back to the middle without
turning.
"""
NEAR_M, ALIGN_M = 0.6, 0.7
"""Distances from the goal: nearer than the first the base goes straight and may come to rest, nearer than the second it
turns into the goal's heading."""
SLOW_UNEVEN, EVEN_M, SLOWEST = 0.5, 0.08, 0.35
"""Share of the speed that 20 cm between the feet's heights take, beyond the second; what is left at least."""
GAIN_BAD = 0.1079
"""Share of the speed that is added where no place around is good to step on."""


class Route:
    """Route by the true ground and what the last steps found of it: its student sees most of the reasons.

    Args:
        env: Environment of a goal task.
        ground: Its terrain.
        track_m: Distance of the feet's tracks to the side of the base.
    """

    def __init__(self, env: GantryEnv, ground: Ground, track_m: float) -> None:
        self._env = env
        self._paths = paths_of(env, ground, track_m)

    def __call__(
        self, now: WalkState, state: GoalState, feet: ScriptedFootholds, uneven_m: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Velocity (N, 2), m/s in the level frame, and turning rate (N,), rad/s, that the base is to have.

        Args:
            now: The walk.
            state: The task's state, with the goal.
            feet: Ground as the last steps found it.
            uneven_m: (N,) difference of the feet's heights.
        """
        spec = state.contract.command.goal_velocity
        assert spec is not None
        to_goal, distance = state.command[:, :2], state.distance
        near = (distance < NEAR_M)[:, None]
        straight = to_goal / distance.clamp(min=1e-3)[:, None]
        direction = torch.where(near, straight, self._along(now, state, GO_M))
        face = torch.where(near, straight, self._along(now, state, FACE_M))
        heading_error = torch.atan2(state.command[:, 2], state.command[:, 3])
        error = torch.where(distance < ALIGN_M, heading_error, torch.atan2(face[:, 1], face[:, 0]))
        turn = (spec.yaw_gain_s * error).clamp(-TURN_RAD_S, TURN_RAD_S)
        # By what a policy sees and no memory, so that a student can learn when.
        goes = ~((distance < spec.stop_m) & (error.abs() < spec.stop_rad))
        speed = (spec.speed_gain_s * distance).clamp(max=SPEED_M_S)
        speed = speed * torch.where(near[:, 0], 1.0, (0.25 + 0.75 * torch.cos(error)).clamp(min=0.0)) * goes
        vel = _limited(direction * speed[:, None]) * self._share(now, feet, uneven_m)
        follow = FOLLOW_1_S * now.to_level(now.kept(feet.shift_w, torch.zeros_like(feet.shift_w)).mean(1))
        return _limited((vel + follow) * goes[:, None]), turn * goes

    def _along(self, now: WalkState, state: GoalState, look_m: float) -> Tensor:
        """Direction (N, 2) of the path to this far ahead, in the level frame."""
        terrain = self._env.scene.terrain
        assert terrain is not None
        level, column = terrain.terrain_levels, terrain.terrain_types
        goals = state.sites.goals[level, column]
        goal = (goals - state.goal_pos_w[:, None])[..., :2].norm(dim=-1).argmin(1)
        return now.to_level(self._paths.direction(now.pos_w[:, :2], level, column, goal, look_m))

    def _share(self, now: WalkState, feet: ScriptedFootholds, uneven_m: Tensor) -> Tensor:
        """Share (N, 1) of the velocity that is left where the ground is bad and uneven."""
        bad, uneven_m = (now.kept(old, torch.zeros_like(old)) for old in (feet.bad, uneven_m))
        uneven = (1.0 - SLOW_UNEVEN * (uneven_m - EVEN_M).clamp(min=0.0) / 0.2).clamp(min=SLOWEST)
        return ((1.0 + GAIN_BAD * bad) * uneven)[:, None]


def _limited(vel: Tensor) -> Tensor:
    return torch.stack((vel[:, 0].clamp(*AHEAD_M_S), vel[:, 1].clamp(-ASIDE_M_S, ASIDE_M_S)), -1)


def paths_of(env: GantryEnv, ground: Ground, track_m: float) -> Paths:
    """The paths on an environment's terrain; ``track_m`` as for :class:`Route`."""
    sites, terrain = GoalState.of(env).sites, env.scene.terrain
    assert terrain is not None
    assert terrain.cfg.terrain_generator is not None
    length, width = terrain.cfg.terrain_generator.size
    levels, columns = sites.spawn.shape[:2]
    x = (torch.arange(levels, device=env.device) - 0.5 * levels) * length
    y = (torch.arange(columns, device=env.device) - 0.5 * columns) * width
    low = torch.stack(torch.meshgrid(x, y, indexing="ij"), -1)
    return Paths(ground, sites.goals, low, (length, width), track_m)
