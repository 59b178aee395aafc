"""StepState pose over the ground ahead and below: the nose over the edge that comes next, the belly over the one
below (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import BodyPoseSpec
from gantry_deploy.contract.parts import MapWindow
from gantry_deploy.footsteps.terrain_lookup import cells_of, shares_at
from gantry_mapping.elevation.ops import namespace

Array = Any

BELLY_M, BELLY_POINTS, SOON_M = 0.3, 9, 0.03
"""Reach before and behind the base, and number of points, at which the ground below is looked at; a little ahead of
now.
"""
AHEAD_POINTS, SIDES_M = 6, (-0.12, -0.04, 0.04, 0.12)
"""Points at which the ground ahead of the nose is looked at: number along, and distances aside."""
STEEPEST_RAD = 1.0
"""Largest pitch of the base that counts."""
FREE_M, WALL_M = 0.1, 0.45
"""Heights over the lower front sole: a step up to the first is none to the nose, from the second on it is a wall."""
NOSE_UP_RAD, HEIGHT_M_RAD = 0.45, 0.1
"""Largest angle by which the nose is raised, and additional height of the base per rad of it."""
BELLY_UP_M = 0.12
"""Largest height by which the base is raised for the ground below it."""


class BodyPoseAdapter:
    """Raises the base and its nose for a step that the map shows.

    Args:
        spec: Where the ground is looked at, and the body's size.
        window: Which cells the map has.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, spec: BodyPoseSpec, window: MapWindow, like: Array) -> None:
        ahead = [(x, y) for x in _evenly(*spec.ahead_m, AHEAD_POINTS) for y in SIDES_M]
        below, each = _evenly(-BELLY_M, BELLY_M, BELLY_POINTS), cells_of(window, like)
        self._spec, self._ahead = spec, shares_at(window, each, ahead)
        self._under = shares_at(window, each, [(x + SOON_M, 0.0) for x in below])
        self._below = namespace(like).asarray([below], dtype=like.dtype, device=device(like))

    def __call__(self, ground: Array, front_sole_m: Array, pose: Array) -> Array:
        """Offsets of the base's height, m, pitch and roll, rad, (N, 3).

        Args:
            ground: (N, rows, cols) the map's heights over the base in the level frame, m.
            front_sole_m: (N,) the lower front sole's, m.
            pose: (N, 3) height over the present one, pitch and roll that the soles ask for.
        """
        xp, spec = namespace(pose), self._spec
        zero = xp.zeros_like(pose[:, :1])
        cells = xp.reshape(ground, (ground.shape[0], -1))
        edge = xp.max(cells @ self._ahead, axis=1)
        step = edge - front_sole_m
        up = limited((step - FREE_M) / spec.nose_m, 0.0, NOSE_UP_RAD)
        up = xp.where(step < WALL_M, up, zero[:, 0])  # a wall is gone around
        rises = xp.tan(limited(up - pose[:, 1], -STEEPEST_RAD, STEEPEST_RAD))[:, None] * self._below
        lacks = xp.max(cells @ self._under + spec.belly_m - rises, axis=1) - pose[:, 0]
        higher = xp.maximum(HEIGHT_M_RAD * up, limited(lacks, 0.0, BELLY_UP_M))
        return xp.stack((higher, -up, zero[:, 0]), axis=-1)


def _evenly(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]
