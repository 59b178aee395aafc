"""Conversion of an operator's request to the command that a policy was trained to follow (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.contract.policy_contract import CommandSpec
from gantry_mapping.elevation.ops import namespace

Array = Any

GOAL_REACH_M = 2.0
"""An actor sees no goal farther away than this (AME-2, Sec. IV): it walks towards a point ahead of it."""


def shape_command(spec: CommandSpec, requested: Array, previous: Array, dt_s: float) -> Array:
    """Limit a command to the trained range and to its rate of change.

    Args:
        spec: Ranges and rates.
        requested: Shape (N, c).
        previous: Shape (N, c), the last shaped command.
        dt_s: Time since ``previous``.

    Returns:
        Shape (N, c).
    """
    xp = namespace(requested)

    def row(values: tuple[float, ...]) -> Array:
        return xp.asarray([values], dtype=requested.dtype, device=device(requested))

    shaped = xp.minimum(xp.maximum(requested, row(spec.lower)), row(spec.upper))
    if any(rate > 0 for rate in spec.max_rate):
        step = row(tuple(rate * dt_s if rate > 0 else float("inf") for rate in spec.max_rate))
        shaped = previous + xp.minimum(xp.maximum(shaped - previous, -step), step)
    return shaped


def goal_command(
    pos_goal_in_world: Array, yaw_goal_rad: Array, pos_base_in_world: Array, quat_base_to_world_wxyz: Array
) -> Array:
    """A goal as ``command/body/pose``: its place in the base's yaw frame, sine and cosine of the heading error.

    Args:
        pos_goal_in_world: Shape (N, 3), m; its height is not looked at.
        yaw_goal_rad: Shape (N,), heading asked for, in the world.
        pos_base_in_world: Shape (N, 3), m.
        quat_base_to_world_wxyz: Shape (N, 4), unit quaternions.

    Returns:
        Shape (N, 4): x and y in m, sine and cosine of goal minus base heading.
    """
    xp = namespace(pos_base_in_world)
    sin_yaw, cos_yaw = heading(quat_base_to_world_wxyz)
    away = pos_goal_in_world - pos_base_in_world
    sin_goal, cos_goal = xp.sin(yaw_goal_rad), xp.cos(yaw_goal_rad)
    return xp.stack(
        (
            cos_yaw * away[:, 0] + sin_yaw * away[:, 1],
            cos_yaw * away[:, 1] - sin_yaw * away[:, 0],
            sin_goal * cos_yaw - cos_goal * sin_yaw,
            cos_goal * cos_yaw + sin_goal * sin_yaw,
        ),
        axis=-1,
    )


def heading(quat_base_to_world_wxyz: Array) -> tuple[Array, Array]:
    """Sine and cosine of the yaw of unit quaternions (N, 4), each (N,): heading of the base's x axis in the world
    frame, seen from above; 0 and 1 where it points straight up or down.
    """
    xp = namespace(quat_base_to_world_wxyz)
    w, x, y, z = (quat_base_to_world_wxyz[:, i] for i in range(4))
    ahead, aside = 1.0 - 2.0 * (y * y + z * z), 2.0 * (w * z + x * y)
    norm = xp.sqrt(ahead * ahead + aside * aside)
    known = norm > 1e-6
    safe = xp.where(known, norm, xp.ones_like(norm))
    return xp.where(known, aside / safe, xp.zeros_like(norm)), xp.where(known, ahead / safe, xp.ones_like(norm))


def shorten_goal(command: Array, reach_m: float = GOAL_REACH_M) -> Array:
    """Goal command (N, 4) with its distance from the base limited to ``reach_m`` in the same direction,
    in its yaw frame.
    """
    xp = namespace(command)
    distance = xp.sqrt(xp.sum(command[:, :2] * command[:, :2], axis=-1))
    share = reach_m / xp.maximum(distance, xp.full_like(distance, reach_m))
    return xp.concat((command[:, :2] * share[:, None], command[:, 2:]), axis=-1)
