"""Scenes of several things and zones: where they lie, with room for the fingers, and what can be pushed there.

Things lie in a band close to the base and zones in a band beyond it, so that no zone lies under a thing. Across, things
are so far apart that an open hand fits between any two. Places are in the arm's base frame, m; y is to the left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_sim.tasks.manipulation.workbench import Workbench

FloatArray = NDArray[np.float64]

THINGS_X_M, THINGS_Y_M = (0.25, 0.32), (-0.16, 0.16)
"""Ranges of the middles of things."""
ZONES_X_M, ZONES_Y_M = (0.385, 0.43), (-0.14, 0.14)
"""Ranges of the middles of zones."""
THINGS_APART_M, ZONES_APART_M = 0.095, 0.10
"""Least distances across, between the middles of two things and of two zones; half an open hand is 63 mm wide."""
YAW_RAD = 0.35
"""Half width of the heading of a thing; the gripper keeps its own."""
CORRIDOR_M = 0.075
"""Least distance of the other things from the line along which a thing is pushed."""
BEHIND_M = 0.06
"""Length of that line behind the thing, where the fingers come down."""
REACH_X_M, REACH_Y_M = (0.2, 0.45), (-0.2, 0.2)
"""Ranges in which the fingers may come down."""


@dataclass(frozen=True)
class Scene:
    """A scene as it lies at the start of an episode, of T things and Z zones, in the order of the bench."""

    things_m: FloatArray
    """Shape (T, 2), middles in the arm's base frame."""
    yaw_rad: FloatArray
    """Shape (T,), headings about the vertical."""
    zones_m: FloatArray
    """Shape (Z, 2), middles in the arm's base frame."""

    def can_be_pushed(self, thing: int, zone: int) -> bool:
        """Whether nothing else stands on the way of a thing to a zone, and the fingers reach the place behind it."""
        start, end = self.things_m[thing], self.zones_m[zone]
        way = (end - start) / np.linalg.norm(end - start)
        behind = start - BEHIND_M * way
        if not (REACH_X_M[0] <= behind[0] <= REACH_X_M[1] and REACH_Y_M[0] <= behind[1] <= REACH_Y_M[1]):
            return False
        others = np.delete(self.things_m, thing, axis=0)
        return bool((_distances(others, behind, end) >= CORRIDOR_M).all())


def draw_scene(bench: Workbench, rng: np.random.Generator) -> Scene:
    """Lay things and zones where chance puts them.

    Args:
        bench: What is laid.
        rng: Source of chance.
    """
    things = _spread(len(bench.things), THINGS_X_M, THINGS_Y_M, THINGS_APART_M, rng)
    yaw = rng.uniform(-YAW_RAD, YAW_RAD, len(bench.things))
    return Scene(things, yaw, _spread(len(bench.zones), ZONES_X_M, ZONES_Y_M, ZONES_APART_M, rng))


def _spread(
    count: int, x_m: tuple[float, float], y_m: tuple[float, float], apart_m: float, rng: np.random.Generator
) -> FloatArray:
    """Places (count, 2), m, in random order, at least so far apart across."""
    room = y_m[1] - y_m[0] - apart_m * (count - 1)
    across = y_m[0] + apart_m * np.arange(count) + np.sort(rng.uniform(0.0, room, count))
    return np.stack((rng.uniform(*x_m, count), rng.permutation(across)), axis=1)


def _distances(points: FloatArray, start: FloatArray, end: FloatArray) -> FloatArray:
    """Distances (k,) of points (k, 2) from the line between two places (2,), m."""
    way = end - start
    share = np.clip((points - start) @ way / (way @ way), 0.0, 1.0)
    return np.asarray(np.linalg.norm(points - (start + share[:, None] * way), axis=1))
