"""Early ends of episodes (AME-2, Sec. on terminations): functions ``f(env, ...) -> (N,) bool``."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.state import GoalState

ATTITUDE_GRACE_S = 0.2
"""The attitude does not count for so long after a reset."""
BELOW_FLOOR_M = 0.5
"""A base this far below the lowest floor of its tile has fallen through a virtual one."""
OFF_TILE_M = 0.3
"""A base this far beside its tile has left it."""


def bad_orientation(env: GantryEnv) -> Tensor:
    """Pitched by more than 80 degrees, rolled by more than 44, or upside down."""
    state = GoalState.of(env)
    gravity = state.gravity_b
    bad = (gravity[:, 0].abs() > 0.985) | (gravity[:, 1].abs() > 0.7) | (gravity[:, 2] > 0.0)
    return bad & (state.time_s > ATTITUDE_GRACE_S)


class BaseCollision:
    """The base is hit harder than the robot weighs."""

    def __init__(self, cfg: object, env: GantryEnv) -> None:
        del cfg
        state = GoalState.of(env)
        names = env.scene[state.goal_names.body_sensor].primary_names
        ids = [i for i, name in enumerate(names) if any(re.search(p, name) for p in state.goal_names.base_shapes)]
        self._shapes = torch.tensor(ids, device=env.device)

    def __call__(self, env: GantryEnv, share: float, grace_s: float) -> Tensor:
        """(N,) bool."""
        state = GoalState.of(env)
        force = state.contact_force(state.goal_names.body_sensor)[:, self._shapes].sum(1).norm(dim=-1)
        return (force > share * state.weight_n) & (state.time_s > grace_s)


def thigh_acceleration(env: GantryEnv, limit_m_s2: float, grace_s: float) -> Tensor:
    """A thigh whose foot is on the ground is jolted upwards or downwards."""
    state = GoalState.of(env)
    jolt = (state.motion.thigh_acc.abs() > limit_m_s2) & (state.foot_contact > 0)
    return jolt.any(-1) & (state.time_s > grace_s)


def stagnation(env: GantryEnv, moved_m: float) -> Tensor:
    """Far from the goal and hardly moved in the last seconds."""
    state = GoalState.of(env)
    return (state.motion.moved_m < moved_m) & (state.distance > 1.0)


def fell_through(env: GantryEnv) -> Tensor:
    """Below every floor of the tile."""
    state = GoalState.of(env)
    terrain = env.scene.terrain
    assert terrain is not None
    floor = state.sites.floor_z_m[terrain.terrain_levels, terrain.terrain_types]
    return state.pos_w[:, 2] < floor - BELOW_FLOOR_M


def off_tile(env: GantryEnv, size_m: tuple[float, float]) -> Tensor:
    """Beside the tile: its way is the only one that counts, and neighbours have other floors."""
    state = GoalState.of(env)
    terrain = env.scene.terrain
    assert terrain is not None
    spawn = state.sites.spawn[terrain.terrain_levels, terrain.terrain_types]
    away = (state.pos_w[:, :2] - spawn[:, :2]).abs()
    long, wide = size_m
    return (away[:, 1] > 0.5 * wide + OFF_TILE_M) | (away[:, 0] > long)
