"""Rotations between the frames of mapping, batched, for numpy and torch. Quaternions are unit, w first."""

from __future__ import annotations

from typing import Any

from gantry_mapping.elevation.ops import namespace

Array = Any


def yaw_of(quat_wxyz: Array) -> Array:
    """Yaw of bodies in rad, shape (N,), from orientations (N, 4): the heading of their x axis in the world frame's
    plane.
    """
    xp = namespace(quat_wxyz)
    w, x, y, z = (quat_wxyz[:, i] for i in range(4))
    return xp.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def rotation_matrix(quat_wxyz: Array) -> Array:
    """Rotation matrices (N, 3, 3) of quaternions (N, 4), between the same two frames."""
    return _matrices(namespace(quat_wxyz), _rows(quat_wxyz))


def base_to_base_yaw(quat_base_to_world_wxyz: Array) -> Array:
    """Rotation matrices (N, 3, 3) that take vectors from the base frame to ``base_yaw``: roll and pitch without yaw."""
    xp = namespace(quat_base_to_world_wxyz)
    ahead, left, up = _rows(quat_base_to_world_wxyz)
    yaw = yaw_of(quat_base_to_world_wxyz)
    cos, sin = xp.cos(yaw), xp.sin(yaw)
    turned = tuple(cos * x + sin * y for x, y in zip(ahead, left, strict=True))
    across = tuple(cos * y - sin * x for x, y in zip(ahead, left, strict=True))
    return _matrices(xp, (turned, across, up))


def _rows(quat_wxyz: Array) -> tuple[tuple[Array, Array, Array], ...]:
    """The entries of rotation matrices, (N,) each, row by row."""
    w, x, y, z = (quat_wxyz[:, i] for i in range(4))
    return (
        (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)),
        (2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)),
        (2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)),
    )


def _matrices(xp: Any, rows: tuple[tuple[Array, ...], ...]) -> Array:
    return xp.reshape(xp.stack([entry for row in rows for entry in row], axis=-1), (-1, 3, 3))
