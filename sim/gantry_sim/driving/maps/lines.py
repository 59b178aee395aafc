"""A line to drive along, a route through a lane map or a race track, as one table of points."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.graph import IN_JUNCTION, LEFT, LIMIT, RIGHT, YAW, FloatArray, LaneMap, table_digest
from gantry_sim.driving.plane import lengths_along


@dataclass(frozen=True)
class Stop:
    """A stop line on a route."""

    s_m: float
    """Arc length along the route."""

    junction: int
    """Junction of the map."""

    group: int
    """Light group; -1 where one gives way."""

    connector: int
    """Lane that the route takes through the junction."""


@dataclass(frozen=True)
class Line:
    """Points along which a car drives."""

    points: FloatArray
    """Shape (n, 10), about equally spaced, see ``graph.COLUMNS``; the heading is continuous, not wrapped. The last
    point of a closed line is its first one again."""

    closed: bool = False
    """Whether it leads round and round."""

    lanes: NDArray[np.int64] | None = None
    """Lane of the map that each point belongs to, shape (n,); None on a track."""

    stops: tuple[Stop, ...] = ()
    """Stop lines in the order in which they are met."""

    @functools.cached_property
    def s_m(self) -> FloatArray:
        """Arc length at each point along the polyline, shape (n,), m."""
        return lengths_along(self.points[:, :2])

    @property
    def length_m(self) -> float:
        """Length of the polyline."""
        return float(self.s_m[-1])

    def resampled(self, spacing_m: float) -> Line:
        """The same line with equal distances of about ``spacing_m`` between its points.

        Positions come from cubic Hermite polynomials through points and headings, within 1 mm of the curve for bends of
        5 m radius at 1 m spacing; widths and curvature are interpolated, limit and junction are those of the point
        before.
        """
        count = max(2, round(self.length_m / spacing_m) + 1)
        at = np.linspace(0.0, self.length_m, count)
        before = np.clip(np.searchsorted(self.s_m, at + 1e-9, side="right") - 1, 0, len(self.s_m) - 2)
        step = np.diff(self.s_m)[before, None]
        t = np.clip((at - self.s_m[before])[:, None] / step, 0.0, 1.0)
        first, last = self.points[before], self.points[before + 1]
        points = first + t * (last - first)
        ways = [step * np.stack([np.cos(p[:, YAW]), np.sin(p[:, YAW])], axis=1) for p in (first, last)]
        points[:, :2] = (
            (2 * t**3 - 3 * t**2 + 1) * first[:, :2]
            + (t**3 - 2 * t**2 + t) * ways[0]
            + (3 * t**2 - 2 * t**3) * last[:, :2]
            + (t**3 - t**2) * ways[1]
        )
        points[:, [LIMIT, IN_JUNCTION]] = first[:, [LIMIT, IN_JUNCTION]]
        lanes = None if self.lanes is None else self.lanes[before]
        return Line(points, self.closed, lanes, self.stops)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the table, for reports."""
        return table_digest([self.points], [repr((self.closed, self.stops)).encode()])


def edges(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Left and right edge of a table of points, each (n, 2), world, m."""
    normal = np.stack([-np.sin(points[:, YAW]), np.cos(points[:, YAW])], axis=1)
    return points[:, :2] + points[:, LEFT, None] * normal, points[:, :2] - points[:, RIGHT, None] * normal


def route_along(lane_map: LaneMap, lanes: tuple[int, ...], length_m: float | None = None, start_m: float = 0.0) -> Line:
    """The line along lanes that follow each other.

    Args:
        lane_map: Where they are.
        lanes: Each a successor of the one before.
        length_m: Cut at the first point that is at least so far from the beginning; None for all.
        start_m: How far into the first lane it begins, rounded to a point; at least two of its points remain.

    Raises:
        GantryError: A lane does not follow the one before it, or no lane is given.
    """
    if not lanes:
        raise GantryError("A route needs at least one lane.")
    tables: list[FloatArray] = []
    owners: list[NDArray[np.int64]] = []
    for place, index in enumerate(lanes):
        if place > 0 and index not in lane_map.lanes[lanes[place - 1]].successors:
            found = lane_map.lanes[lanes[place - 1]].successors
            raise GantryError(f"Lane {index} does not follow lane {lanes[place - 1]}; its successors are {found}.")
        table = lane_map.lanes[index].points
        if place == 0:
            table = table[min(round(start_m), len(table) - 2) :]
        else:
            table = table.copy()
            # Each lane counts its heading from its own start; along the route it must not jump by whole turns.
            table[:, YAW] += 2 * np.pi * np.round((tables[-1][-1, YAW] - table[0, YAW]) / (2 * np.pi))
            # The joint belongs to the lane that begins there, whose lane width and limit hold from there on.
            tables[-1], owners[-1] = tables[-1][:-1], owners[-1][:-1]
        tables.append(table)
        owners.append(np.full(len(table), index, dtype=np.int64))
    points, owner = np.concatenate(tables), np.concatenate(owners)
    whole = Line(points, lanes=owner)
    if length_m is not None:
        end = min(int(np.searchsorted(whole.s_m, length_m)) + 1, len(points))
        points, owner = points[:end], owner[:end]
    line = Line(points, lanes=owner)
    return Line(points, lanes=owner, stops=_stops(lane_map, line))


def _stops(lane_map: LaneMap, line: Line) -> tuple[Stop, ...]:
    assert line.lanes is not None
    by_lane = {stop.lane: stop for stop in lane_map.stop_lines}
    stops: list[Stop] = []
    for index in np.flatnonzero(np.diff(line.lanes)):
        stop = by_lane.get(int(line.lanes[index]))
        if stop is not None:
            s = float(line.s_m[index + 1])
            stops.append(Stop(s, stop.junction, stop.group, int(line.lanes[index + 1])))
    return tuple(stops)
