"""Rotations between the frames of mapping, batched, for numpy and torch. Quaternions are unit, w first."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

Array = Any


def yaw_of(quat_wxyz: Array) -> Array:
    """Yaw of bodies in rad, shape (N,), from orientations (N, 4): the heading of their x axis in the plane."""
    xp = array_namespace(quat_wxyz)
    w, x, y, z = (quat_wxyz[:, i] for i in range(4))
    return xp.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def rotation_matrix(quat_wxyz: Array) -> Array:
    """Rotation matrices (N, 3, 3) of quaternions (N, 4)."""
    xp = array_namespace(quat_wxyz)
    w, x, y, z = (quat_wxyz[:, i] for i in range(4))
    rows = (
        xp.stack((1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)), axis=-1),
        xp.stack((2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)), axis=-1),
        xp.stack((2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)), axis=-1),
    )
    return xp.stack(rows, axis=-2)


def base_to_base_yaw(quat_base_to_world_wxyz: Array) -> Array:
    """Rotation matrices (N, 3, 3) that take vectors from the base frame to ``base_yaw``: roll and pitch without yaw."""
    xp = array_namespace(quat_base_to_world_wxyz)
    full = rotation_matrix(quat_base_to_world_wxyz)
    yaw = yaw_of(quat_base_to_world_wxyz)
    cos, sin = xp.cos(yaw)[:, None], xp.sin(yaw)[:, None]
    rows = (cos * full[:, 0] + sin * full[:, 1], cos * full[:, 1] - sin * full[:, 0], full[:, 2])
    return xp.stack(rows, axis=-2)
