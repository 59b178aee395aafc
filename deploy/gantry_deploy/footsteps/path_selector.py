"""Path selection to a goal: to where the map shows ground for the feet of both sides and no wall (Array API standard).

Straight ways in a fan ahead of the base are compared by the ground that the feet would find along them; the best one
stands in the place of the straight line to the goal. It looks no further than the map does, and remembers nothing.
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import PathSelectorSpec
from gantry_deploy.contract.parts import MapWindow
from gantry_deploy.footsteps.map_search import vertex
from gantry_deploy.footsteps.terrain_lookup import cells_of, neighbourhood, shares_at
from gantry_mapping.elevation.ops import namespace

Array = Any

FAN_RAD, PATHS, POINTS = 0.7, 13, 7
"""Paths that are compared lie within this of straight ahead: their number, and the points that are looked at on each.
"""
GO_M, NEAR_M = 0.4, 0.4
"""The base goes by the ground as near as the first, and faces the path that all of it asks for; nearer than the second
to the goal it goes straight, farther than twice that by the ground alone."""
LACK, WALL, STRAIGHT = 5.0, 30.0, 2.0
"""Costs per metre of a path, as its length is: where the feet of one side find no ground, where a wall is near, and of
a path that leads aside, times how much longer it is."""
MOST_LACK = 0.8
"""Share of lacking ground: where every path has a point that lacks more, the straight one is as good."""
TURN_RAD = (0.5, 1.0)
"""Bearings to the goal: full speed to a far goal below the first, turn in place above the second and move only to where
feet find ground: beside and behind the base there may be none. Only for maps with an uncertainty, made from a camera.
"""


class PathSelector:
    """Selection of the path to a goal: goals are turned aside.

    Args:
        spec: Reach of the paths, and the ground that feet find.
        window: Which cells the map has.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, spec: PathSelectorSpec, window: MapWindow, like: Array) -> None:
        xp = namespace(like)

        def asarray(values: Any) -> Array:
            return xp.asarray(values, dtype=like.dtype, device=device(like))

        self._spec = spec
        self._step_rad = 2.0 * FAN_RAD / (PATHS - 1)
        angles = [-FAN_RAD + i * self._step_rad for i in range(PATHS)]
        self._angles = asarray(angles)
        self._numbers = xp.arange(1, PATHS - 1, dtype=xp.int64, device=device(like))[:, None]
        reach = [spec.reach_m * (i + 1) / POINTS for i in range(POINTS)]
        each = cells_of(window, like)

        def shares(axes: tuple[int, ...], aside_m: float) -> Array:
            """Weight of each cell at each point, (cells, ways x points), if cells are averaged along these axes."""
            spread = each
            for axis in axes:
                spread = neighbourhood(spread, axis)
            return shares_at(window, spread, [(x, x * math.tan(a) + aside_m) for a in angles for x in reach])

        # Feet find ground in the whole of their stance's way; a wall is passed with some distance.
        self._sides = [shares((1, 1, 1, 2), side) for side in (-spec.track_m, spec.track_m)]
        self._middle = shares((1, 2, 1, 2), 0.0)
        near = [float(r <= GO_M + 1e-6) for r in reach]
        self._weights = asarray([[n / sum(near), 1.0 / len(reach)] for n in near])
        self._looks = len(window.channels) > 1

    def __call__(self, goal: Array, ground: Array, lowest_m: Array, highest_m: Array) -> Array:
        """Goals (N, 2, 4) to go to, and to face, as far away as the one that is asked for.

        Args:
            goal: (N, 4) x, y, m, sine and cosine of the heading's error, in the base's yaw frame.
            ground: (N, rows, cols) the map's heights, m.
            lowest_m: (N, 1); the lowest standing sole's.
            highest_m: (N, 1); the highest one's.
        """
        xp = namespace(goal)
        distance = xp.sqrt(goal[:, 0] * goal[:, 0] + goal[:, 1] * goal[:, 1])
        bearing = xp.atan2(goal[:, 1], goal[:, 0])
        lacks, walls = self._lacks(ground, lowest_m, highest_m)
        costs = LACK * lacks * xp.sqrt(lacks) + WALL * walls
        # Before a ledge there is no ground whichever way one goes.
        worst = xp.min(xp.max(lacks, axis=2), axis=1)
        away = 1.0 - xp.cos(self._angles - bearing[:, None])
        best = self._best(costs @ self._weights + (STRAIGHT * away)[..., None])
        # A robot that is near, or has yet to turn round, keeps its way.
        share = _far(distance, NEAR_M)
        share = share * xp.astype((xp.abs(bearing) < FAN_RAD) & (worst < MOST_LACK), share.dtype)
        angle = bearing[:, None] + share[:, None] * (best - bearing[:, None])
        flat = xp.stack((xp.cos(angle), xp.sin(angle)), axis=-1) * distance[:, None, None]
        return xp.concat((flat, xp.stack((goal[:, 2:], goal[:, 2:]), axis=1)), axis=-1)

    def goes(self, goal: Array, near_m: float) -> Array:
        """Share (N, 1) of its velocity that the base is to move at, 0 to 1, on its way to goals (N, 4) that it turns to
        if they are farther than ``near_m``, altogether from twice that on."""
        xp = namespace(goal)
        distance = xp.sqrt(goal[:, 0] * goal[:, 0] + goal[:, 1] * goal[:, 1])
        if not self._looks:
            return xp.ones_like(distance)[:, None]
        full, none = (math.cos(angle) for angle in TURN_RAD)
        ahead = limited((goal[:, 0] / limited(distance, 1e-6, None) - none) / (full - none), 0.0, 1.0)
        return (1.0 - _far(distance, max(near_m, NEAR_M)) * (1.0 - ahead))[:, None]

    def _lacks(self, ground: Array, lowest_m: Array, highest_m: Array) -> tuple[Array, Array]:
        """At points along each way, (N, ways, points): shares of ground that is missing on the worse side, and of
        walls."""
        xp, spec = namespace(ground), self._spec
        ground = xp.reshape(ground, (ground.shape[0], -1))
        wall = xp.astype(ground > highest_m + spec.wall_m, ground.dtype)
        solid = xp.astype(ground > lowest_m - spec.deep_m, ground.dtype) - wall
        shape = (ground.shape[0], PATHS, POINTS)
        lacks = limited(1.0 - xp.minimum(*(solid @ side for side in self._sides)), 0.0, None)
        return xp.reshape(lacks, shape), xp.reshape(wall @ self._middle, shape)

    def _best(self, costs: Array) -> Array:
        """The cheapest angles (N, 2) of costs (N, ways, 2), between the ways by the parabola through three of them."""
        xp, before, here, after = namespace(costs), costs[:, :-2], costs[:, 1:-1], costs[:, 2:]
        places = vertex(before, here, after, 1.0) * self._step_rad + self._angles[1:-1, None]
        best = limited(xp.argmin(costs, axis=1), 1, costs.shape[1] - 2)
        return xp.sum(xp.where(self._numbers == best[:, None], places, xp.zeros_like(places)), axis=1)


def _far(distance: Array, near_m: float) -> Array:
    """0 where a goal is nearer than that, 1 where it is twice as far."""
    return limited((distance - near_m) / near_m, 0.0, 1.0)
