"""A route from the lanes of a foreign map: which lane to take on each road, and how the way runs along them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gantry_deploy.perception.road import Route
from gantry_hardware.errors import GantryError
from gantry_sim.driving.plane import FloatArray, lengths_along, points_at

JOIN_M = 0.75
"""A lane goes on in another one that begins no farther from its end."""
LATERAL_M_S2 = 2.5
"""Bends lower speed limits to this sideways acceleration, as on our roads."""
CHANGE_M = 40.0
"""A change to the next lane takes this way, or the whole road where that is shorter."""
SPACING_M = 1.0
"""Between the points of a route."""
REACH_M = 4.0
"""A route's curvature is that of points so far before and after the place."""


@dataclass(frozen=True)
class Lane:
    """One lane of a road."""

    points_m: FloatArray
    """Shape (P, 2), its middle, in driving direction, P >= 2."""
    width_m: float
    """From edge to edge."""

    @property
    def length_m(self) -> float:
        """Along its middle."""
        return float(lengths_along(self.points_m)[-1])


@dataclass(frozen=True)
class Stretch:
    """Driven part of one road."""

    enter: int
    """Lane at its beginning, counted from the left."""
    leave: int
    """Lane at its end."""


def lane_of(lane: Any) -> Lane:
    """A lane of highway-env's or MetaDrive's, which have the same methods; its middle about every metre."""
    places = np.linspace(0.0, lane.length, max(2, round(lane.length) + 1))
    points = np.array([lane.position(place, 0.0) for place in places], dtype=np.float64)
    return Lane(points, float(lane.width_at(0.5 * lane.length)))


def choose_lanes(roads: Sequence[Sequence[Lane]], first: int) -> list[Stretch]:
    """The lanes along which roads can be driven with the fewest and least hurried lane changes.

    Args:
        roads: Roads in the order in which they are driven, each with its lanes from left to right.
        first: Lane of the first road on which the car stands.

    Raises:
        GantryError: If no lane of a road goes on in the next one, naming the road.
    """
    if not roads or not 0 <= first < len(roads[0]):
        raise GantryError(f"There are {len(roads)} roads, and the car is said to stand on lane {first} of the first.")
    # cost[k]: of standing on lane k at the beginning of the road; back[i][k]: the lane at the end of road i - 1 before.
    cost = {first: 0.0}
    leave: list[dict[int, tuple[int, int]]] = []
    for number, (road, after) in enumerate(pairwise(roads)):
        found: dict[int, tuple[float, int, int]] = {}
        for end, start in _joints(road, after):
            for begin, spent in cost.items():
                total = spent + _effort(road, begin, end)
                if start not in found or total < found[start][0]:
                    found[start] = (total, begin, end)
        if not found:
            raise GantryError(f"No lane of road {number} goes on in road {number + 1} of the route.")
        cost = {start: total for start, (total, _, _) in found.items()}
        leave.append({start: (begin, end) for start, (_, begin, end) in found.items()})
    lane = min(cost, key=lambda k: (cost[k], k))
    ways = [Stretch(lane, lane)]
    for back in reversed(leave):
        begin, end = back[ways[0].enter]
        ways.insert(0, Stretch(begin, end))
    return ways


def way_along(roads: Sequence[Sequence[Lane]], ways: Sequence[Stretch]) -> tuple[FloatArray, FloatArray]:
    """The way's points (P, 2), every :data:`SPACING_M`, and the lane's width at each (P,).

    A change of lanes is a smooth step from one lane's middle to the other's.

    Args:
        roads: As for :func:`choose_lanes`.
        ways: From there.
    """
    points, widths = [], []
    for road, way in zip(roads, ways, strict=True):
        mine, other = road[way.enter], road[way.leave]
        count = max(2, round(mine.length_m / SPACING_M) + 1)
        share = np.linspace(0.0, 1.0, count)[:, None]
        changes = abs(way.leave - way.enter)
        part = min(1.0, changes * CHANGE_M / max(mine.length_m, 1e-9))
        step = np.clip((share - 0.5) / max(part, 1e-9) + 0.5, 0.0, 1.0)
        step = step * step * (3.0 - 2.0 * step) if changes else np.zeros_like(share)
        points.append((1.0 - step) * _resampled(mine.points_m, count) + step * _resampled(other.points_m, count))
        widths.append(np.full(count, min(mine.width_m, other.width_m)))
    line, width = np.concatenate(points), np.concatenate(widths)
    # Where two roads meet, the last point of one is the first of the other.
    fresh = np.concatenate(([True], np.hypot(*np.diff(line, axis=0).T) > 0.25 * SPACING_M))
    line, width = line[fresh], width[fresh]
    along = lengths_along(line)
    places = np.linspace(0.0, along[-1], max(2, round(along[-1] / SPACING_M) + 1))
    return points_at(line, along, places), np.interp(places, along, width)


def route_along(points_m: FloatArray, width_m: FloatArray, limit_m_s: float | FloatArray) -> Route:
    """A route along these points, with speed limits lowered in bends to :data:`LATERAL_M_S2`.

    Args:
        points_m: Shape (P, 2).
        width_m: Shape (P,), of the lane.
        limit_m_s: On straight roads, one number or (P,).
    """
    bend = np.abs(curvature(points_m))
    limit = np.minimum(limit_m_s, np.sqrt(LATERAL_M_S2 / np.maximum(bend, 1e-6)))
    return Route(points_m, limit, 0.5 * width_m, 0.5 * width_m)


def curvature(points_m: FloatArray) -> FloatArray:
    """Signed curvature (P,), 1/m, left positive in any frame, of the circles through points :data:`REACH_M` before and
    after.

    0 within that distance of the ends.
    """
    along = lengths_along(points_m)
    before, after = (points_at(points_m, along, along + reach) for reach in (-REACH_M, REACH_M))
    a, b, c = points_m - before, after - points_m, after - before
    cross = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    size = np.hypot(*a.T) * np.hypot(*b.T) * np.hypot(*c.T)
    inside = (along >= REACH_M) & (along <= along[-1] - REACH_M) & (size > 1e-9)
    return np.where(inside, 2.0 * cross / np.where(inside, size, 1.0), 0.0)


def _joints(road: Sequence[Lane], after: Sequence[Lane]) -> list[tuple[int, int]]:
    """Pairs (lane of this road, lane of the next one) that meet."""
    return [
        (i, j)
        for i, mine in enumerate(road)
        for j, theirs in enumerate(after)
        if np.hypot(*(theirs.points_m[0] - mine.points_m[-1])) <= JOIN_M
    ]


def _effort(road: Sequence[Lane], begin: int, end: int) -> float:
    """Cost of changing lanes: each change one, more where the road is short."""
    changes = abs(end - begin)
    return changes * (1.0 + CHANGE_M / max(road[begin].length_m, 1.0))


def _resampled(points_m: FloatArray, count: int) -> FloatArray:
    along = lengths_along(points_m)
    return points_at(points_m, along, np.linspace(0.0, along[-1], count))
