"""A lane map: lanes as tables of points, and how they follow each other, lie side by side and cross."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gantry_sim.driving.plane import FloatArray as FloatArray
from gantry_sim.driving.plane import lengths_along

COLUMNS = (
    "x",
    "y",
    "yaw",
    "curvature",
    "left_m",
    "right_m",
    "speed_limit_m_s",
    "in_junction",
    "road_left_m",
    "road_right_m",
)
"""Columns of a lane's table: world position in m and heading in rad along the driving direction, curvature in 1/m (left
positive), distances to the lane's edges, speed limit, 1 inside junctions, distances to the edges of the pavement."""

X, Y, YAW, CURVATURE, LEFT, RIGHT, LIMIT, IN_JUNCTION, ROAD_LEFT, ROAD_RIGHT = range(len(COLUMNS))


@dataclass(frozen=True)
class Lane:
    """One lane, from where it begins to where it ends, in driving direction. A missing neighbour is -1."""

    points: FloatArray
    """Shape (n, 10), about 1 m apart, see ``COLUMNS``. The heading is not wrapped."""

    road: int
    """Lanes of one road or one junction share this number."""

    successors: tuple[int, ...]
    """Lanes that begin where this one ends, with the same heading and curvature."""

    left: int
    """Lane of the same direction to the left that a car may change to."""

    right: int
    """Lane of the same direction to the right that a car may change to."""

    opposite: int
    """Lane of the same road that leads the other way and lies as far from the road's middle."""

    @functools.cached_property
    def s_m(self) -> FloatArray:
        """Arc length at each point along the polyline, shape (n,), m."""
        return lengths_along(self.points[:, :2])

    @property
    def length_m(self) -> float:
        """Length of the polyline."""
        return float(self.s_m[-1])

    @property
    def in_junction(self) -> bool:
        """Whether it leads through a junction."""
        return bool(self.points[0, IN_JUNCTION])


@dataclass(frozen=True)
class Junction:
    """Meeting of roads: crossings with lights, roundabouts where entering vehicles give way."""

    kind: str
    """"x", "t" or "roundabout"."""

    centre_m: tuple[float, float]
    """World x and y."""

    radius_m: float
    """From the centre to where its roads begin."""

    approaches: tuple[tuple[int, ...], ...]
    """Lanes that lead to it, by road; an approach's place in here is its light group."""

    lights: bool
    """Whether light groups regulate it; otherwise vehicles that enter give way to those inside."""

    connectors: tuple[int, ...]
    """Lanes inside."""

    connector_groups: tuple[int, ...]
    """Approach from which each connector is entered; -1 on the ring of a roundabout and where it is left."""

    conflicts: tuple[tuple[int, int], ...]
    """Pairs of lanes inside (smaller index first) that cross or merge, so that two cars may meet there."""

    group_conflicts: tuple[tuple[int, int], ...]
    """Pairs of groups (smaller index first) that must not be green together. Opposite approaches may: a vehicle that
    turns left gives way to oncoming vehicles, as ``conflicts`` says.
    """


@dataclass(frozen=True)
class StopLine:
    """The end of a lane that leads to a junction."""

    lane: int
    """The lane at whose end it lies."""

    junction: int
    """Index of the junction."""

    group: int
    """Light group within the junction; -1 where there is no light and one gives way."""


@dataclass(frozen=True)
class LaneMap:
    """Lanes, junctions and stop lines of one map."""

    seed: int
    """Seed of its generator."""

    lanes: tuple[Lane, ...]
    """All lanes; others refer to them by their place in here."""

    junctions: tuple[Junction, ...]
    """All junctions."""

    stop_lines: tuple[StopLine, ...]
    """One for each lane that leads to a junction."""

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over tables (to 0.1 mm) and links, for reports: the same digest means the same map."""
        links = [
            repr((lane.road, lane.successors, lane.left, lane.right, lane.opposite)).encode() for lane in self.lanes
        ]
        rest = repr((self.junctions, self.stop_lines)).encode()
        return table_digest([lane.points for lane in self.lanes], [*links, rest])

    @property
    def length_m(self) -> float:
        """All lanes together."""
        return sum(lane.length_m for lane in self.lanes)


def table_digest(tables: Iterable[FloatArray], rest: Iterable[bytes] = ()) -> str:
    """SHA-256 over tables of numbers, rounded to 1e-4, and other bytes."""
    digest = hashlib.sha256()
    for table in tables:
        digest.update(repr(table.shape).encode())
        # Adding 0 turns a rounded -0 into 0, which has other bytes.
        digest.update((np.round(table, 4) + 0.0).astype("<f8").tobytes())
    for part in rest:
        digest.update(part)
    return digest.hexdigest()
