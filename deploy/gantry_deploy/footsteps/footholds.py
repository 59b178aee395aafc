"""Foothold search: places moved to what the map shows, so that two feet that land together still carry.

A regression policy averages multi-modal targets: between two planks, where stepping on either is right, it outputs
the gap. So the best foothold near its output is searched for (Array API standard).
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import FootholdSpec, LegSpec
from gantry_deploy.contract.parts import MapWindow
from gantry_deploy.footsteps.terrain_lookup import carried_shares
from gantry_mapping.ops import gather, namespace

Array = Any

GRID_M = 0.04
"""Distance of the places that are looked at."""
KEPT_M = (0.06, 0.24)
"""Another place is one that is further than this from where a foot is bound; beyond the second it costs no more."""
BESIDE_M = 0.04
"""A place may be so far further in than asked for at no cost."""


class Footholds:
    """Looks for ground around places.

    Args:
        spec: How far, and what counts how much.
        legs: Two in front and two behind.
        window: Which cells the map has.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, spec: FootholdSpec, legs: tuple[LegSpec, ...], window: MapWindow, like: Array) -> None:
        xp = namespace(like)

        def asarray(values: Any) -> Array:
            return xp.asarray(values, dtype=like.dtype, device=device(like))

        self._spec, self._window = spec, window
        self.follow_1_s = spec.follow_1_s
        """Velocity that the body is to add to go after feet that were moved, m/s per m."""
        around = _disc(spec.search_m)
        self._around = asarray(around)
        sides = [math.copysign(1.0, leg.side_m) for leg in legs]
        # What a place costs whatever the ground: how far it is, and how far in.
        self._still = asarray(
            [[x * x + y * y + spec.inward_m * max(-side * y - BESIDE_M, 0.0) for x, y in around] for side in sides]
        )
        corners = [(leg.hip_in_base_m[0] > 0.0, side > 0.0) for leg, side in zip(legs, sides, strict=True)]
        mates = [corners.index((not front, not left)) for front, left in corners]
        lines = [
            (legs[i].stand_x_m - legs[mate].stand_x_m, legs[i].stand_y_m - legs[mate].stand_y_m)
            for i, mate in enumerate(mates)
        ]
        across = asarray([[(x * dy - y * dx) / math.hypot(dx, dy) for x, y in around] for dx, dy in lines])
        front = [i for i, (ahead, _) in enumerate(corners) if ahead]
        feet = [xp.asarray(some, dtype=xp.int64, device=device(like)) for some in (front, [mates[i] for i in front])]
        # Two feet that land together: these, their mates, and how far all their places are across the pair's line.
        self._pairs = [(these, mate, xp.take(across, these, axis=0)) for these, mate in (feet, feet[::-1])]
        self._across, self._order = xp.reshape(across, (-1,)), xp.argsort(xp.concat(feet))

    def __call__(
        self,
        ground: Array,
        places: Array,
        vel: Array,
        lowest_m: Array,
        highest_m: Array,
        bound: Array,
        progress: Array,
    ) -> Array:
        """Offsets by which places are to be moved, (N, f, 2), m.

        Args:
            ground: (N, rows, cols) the map's heights, m.
            places: (N, f, 2), m in the base's yaw frame.
            vel: (N, 2) of the base in it, m/s: ahead is better.
            lowest_m: (N, 1); cells carry above this...
            highest_m: (N, 1); ...and below this.
            bound: (N, f, 2) where feet in the air are bound for.
            progress: (N, f) how much of their way is over: so much does that count.
        """
        xp, spec = namespace(places), self._spec
        count, feet = places.shape[:2]
        tried = xp.reshape(places[:, :, None] + self._around, (count, -1, 2))
        carries = carried_shares(self._window, ground, tried, lowest_m, highest_m)
        lacks = xp.reshape(1.0 - carries, (count, feet, self._around.shape[0]))
        cost = spec.lack_m2 * (limited(lacks / spec.edge_share, None, 1.0) + spec.edge_share * lacks) + self._still
        cost = cost - spec.ahead_m_s * (vel @ xp.matrix_transpose(self._around))[:, None]
        if spec.keep > 0.0:
            away = xp.reshape(tried, (count, feet, -1, 2)) - bound[:, :, None]
            away = limited(xp.sqrt(xp.sum(away * away, axis=-1)) - KEPT_M[0], 0.0, KEPT_M[1] - KEPT_M[0])
            cost = cost + spec.keep * progress[..., None] * away * away
        picks, tries = xp.argmin(cost, axis=2), self._around.shape[0]
        found = []
        # The line of two feet that land together carries the base: its middle is to stay where it is across it.
        for these, mates, across in self._pairs:
            theirs = gather(self._across, (found[0] if found else xp.take(picks, mates, axis=1)) + mates * tries)
            moved = 0.5 * (across - theirs[..., None])
            found.append(xp.argmin(xp.take(cost, these, axis=1) + spec.together * moved * moved, axis=2))
        picks = xp.take(xp.concat(found, axis=1), self._order, axis=1)
        return xp.reshape(xp.take(self._around, xp.reshape(picks, (-1,)), axis=0), (count, feet, 2))


def _disc(radius_m: float) -> list[tuple[float, float]]:
    """Places of the grid within a radius, x and y, m."""
    reach = int(radius_m / GRID_M + 1e-6)
    line = [i * GRID_M for i in range(-reach, reach + 1)]
    return [(x, y) for x in line for y in line if x * x + y * y <= radius_m**2 + 1e-9]
