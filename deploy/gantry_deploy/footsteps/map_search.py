"""Map search for feet and paths: the cheapest foothold around a place, and the cheapest direction of a fan.

A regression policy averages multi-modal targets: between two planks, where stepping on either is right, it outputs
the gap. So the best foothold near its output is searched for. The decoder searches the map window, the scripted policy
of the goal tasks the true ground; each brings the costs of its ground (Array API standard, batched).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import LegSpec
from gantry_deploy.contract.parts import MapWindow
from gantry_deploy.footsteps.terrain_lookup import carried_shares
from gantry_mapping.elevation.ops import gather, namespace

Array = Any

GRID_M = 0.04
"""Spacing of the candidate places."""
KEPT_M = (0.06, 0.24)
"""Distances from the predicted touchdown: up to the first a place costs nothing, beyond the second no more."""
BESIDE_M = 0.04
"""Distance by which a place may be further in than asked for at no cost."""


@dataclass(frozen=True)
class FootholdCosts:
    """Costs of the foothold search, squares of distances [m^2]; from a search over goals reached by a Go2."""

    lack_m2: float = 0.16
    """Cost of a place without ground."""
    edge_share: float = 0.2
    """Share of the four cells around a place that may lack ground without its being as bad as none."""
    ahead_m_s: float = 0.0168
    """Gain of a metre ahead, per m/s."""
    inward_m: float = 0.32
    """Cost of a metre to below the body, beyond :data:`BESIDE_M`."""
    together: float = 6.0
    """Weight of the squared shift, across their line, of two feet that land together."""
    keep: float = 4.0
    """Weight of the squared distance from the predicted touchdown, growing over the swing: between two places that are
    as good, a foot would land between them."""


class FootholdSearch:
    """Search for the cheapest places around given ones, such that two feet that land together still carry.

    Args:
        legs: Two in front and two behind.
        radius_m: Radius of the search.
        like: Any floating array of the namespace, dtype and device to work on.
        costs: Weights.
    """

    def __init__(
        self, legs: tuple[LegSpec, ...], radius_m: float, like: Array, costs: FootholdCosts | None = None
    ) -> None:
        xp = namespace(like)

        def asarray(values: Any) -> Array:
            return xp.asarray(values, dtype=like.dtype, device=device(like))

        self.costs = costs = costs or FootholdCosts()
        """Weights."""
        around = _disc(radius_m)
        self._around = asarray(around)
        sides = [math.copysign(1.0, leg.side_m) for leg in legs]
        # What a place costs whatever the ground: how far it is, and how far in.
        self._still = asarray(
            [[x * x + y * y + costs.inward_m * max(-side * y - BESIDE_M, 0.0) for x, y in around] for side in sides]
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

    def candidates(self, places: Array) -> Array:
        """Places (N, f, k, 2) of the search around places (N, f, 2), m in the level frame."""
        return places[:, :, None] + self._around

    def on_map(
        self,
        window: MapWindow,
        ground: Array,
        places: Array,
        vel: Array,
        limits_m: tuple[Array, Array],
        towards: Array,
        progress: Array,
    ) -> Array:
        """Offsets (N, f, 2), m in the level frame, from places to the cheapest ones on the ground of a map window.

        Args:
            window: Cells of the map.
            ground: (N, rows, cols) the map's heights, m.
            places: (N, f, 2), m in the level frame.
            vel: As of :meth:`__call__`, with ``towards`` and ``progress``.
            limits_m: (N, 1) each; cells carry above the first and below the second.
            towards: See there.
            progress: See there.
        """
        xp, tried, share = namespace(places), self.candidates(places), self.costs.edge_share
        lacks = 1.0 - carried_shares(window, ground, xp.reshape(tried, (tried.shape[0], -1, 2)), *limits_m)
        lacks = xp.reshape(lacks, tried.shape[:3])
        lacks = limited(lacks / share, None, 1.0) + share * lacks
        return self(self.costs.lack_m2 * lacks, tried, vel, towards, progress)

    def __call__(self, cost: Array, candidates: Array, vel: Array, towards: Array, progress: Array) -> Array:
        """Offsets (N, f, 2), m in the level frame, from the places asked for to the cheapest candidates.

        Args:
            cost: (N, f, k) costs of the ground at the candidates, m^2.
            candidates: (N, f, k, 2), m in the level frame.
            vel: (N, 2) velocity of the base in it, m/s: ahead is better.
            towards: (N, f, 2) where feet in the air will touch down, m in the level frame.
            progress: (N, f) share of the swing that is over: so much does ``towards`` count.
        """
        xp, costs = namespace(candidates), self.costs
        cost = cost + self._still
        cost = cost - costs.ahead_m_s * (vel @ xp.matrix_transpose(self._around))[:, None]
        if costs.keep > 0.0:
            away = candidates - towards[:, :, None]
            away = limited(xp.sqrt(xp.sum(away * away, axis=-1)) - KEPT_M[0], 0.0, KEPT_M[1] - KEPT_M[0])
            cost = cost + costs.keep * progress[..., None] * away * away
        picks, tries = xp.argmin(cost, axis=2), self._around.shape[0]
        found = []
        # The line of two feet that land together carries the base: its middle is to stay where it is across it.
        for these, mates, across in self._pairs:
            theirs = gather(self._across, (found[0] if found else xp.take(picks, mates, axis=1)) + mates * tries)
            moved = 0.5 * (across - theirs[..., None])
            found.append(xp.argmin(xp.take(cost, these, axis=1) + costs.together * moved * moved, axis=2))
        picks = xp.take(xp.concat(found, axis=1), self._order, axis=1)
        return xp.reshape(xp.take(self._around, xp.reshape(picks, (-1,)), axis=0), (*picks.shape, 2))


def vertex(before: Array, here: Array, after: Array, most: float) -> Array:
    """Place of the lowest point of the parabola through three neighbouring costs, of their shape: 0 for the middle one,
    1 for the next, within ``most`` of the middle."""
    return limited(0.5 * (before - after) / limited(before - 2.0 * here + after, 1e-6, None), -most, most)


def _disc(radius_m: float) -> list[tuple[float, float]]:
    """Places of the grid within a radius, x and y, m."""
    reach = int(radius_m / GRID_M + 1e-6)
    line = [i * GRID_M for i in range(-reach, reach + 1)]
    return [(x, y) for x in line for y in line if x * x + y * y <= radius_m**2 + 1e-9]
