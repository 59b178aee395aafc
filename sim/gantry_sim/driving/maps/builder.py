"""Laying roads: lanes beside a middle line, links at their ends, and the ground that is already taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gantry_sim.driving.maps.curves import Curve, Pose, turned_around
from gantry_sim.driving.maps.graph import Junction, Lane, LaneMap, StopLine

FloatArray = NDArray[np.float64]

_CLEARANCE_M = 1.5


@dataclass(frozen=True)
class Socket:
    """An open end where the next block is attached."""

    pose: Pose
    """Middle of the road, looking out of the map."""

    arriving: tuple[int, ...]
    """Lanes that end here, the one next to the middle first."""

    leaving: tuple[int, ...]
    """Lanes that begin here and lead into the map, the one next to the middle first."""

    block: int
    """Block that it belongs to."""


@dataclass
class DraftLane:
    """A lane whose links are still being made; fields as in ``Lane``."""

    points: FloatArray
    """Shape (n, 10)."""

    road: int
    """Road or junction."""

    successors: list[int] = field(default_factory=list)
    """Filled by ``MapBuilder.link``."""

    left: int = -1
    """Lane to the left."""

    right: int = -1
    """Lane to the right."""

    opposite: int = -1
    """Lane of the other direction."""


@dataclass(frozen=True)
class Discs:
    """Ground that a block covers, as discs."""

    centres_m: FloatArray
    """Shape (n, 2), world."""

    radii_m: FloatArray
    """Shape (n,)."""

    from_socket_m: FloatArray
    """Shape (n,), how far from the end at which it is attached."""


def discs_along(curve: Curve, half_width_m: float) -> Discs:
    """Ground of a road around its middle line, with some room to spare."""
    s = np.linspace(0.0, curve.length_m, max(2, round(curve.length_m / 3.0)))
    return Discs(curve.position(s), np.full(len(s), half_width_m + _CLEARANCE_M), s)


def joined(parts: Sequence[Discs]) -> Discs:
    """Discs of several parts as one."""
    return Discs(
        np.concatenate([part.centres_m for part in parts]),
        np.concatenate([part.radii_m for part in parts]),
        np.concatenate([part.from_socket_m for part in parts]),
    )


class MapBuilder:
    """Collects lanes until ``finish`` freezes them.

    Args:
        lane_width_m: Width of every lane.
    """

    def __init__(self, lane_width_m: float) -> None:
        self.lane_width_m = lane_width_m
        self.lanes: list[DraftLane] = []
        self.junctions: list[Junction] = []
        self.stop_lines: list[StopLine] = []
        self.roads = 0
        self.blocks: list[Discs] = []

    def is_free(self, ground: Discs, parent: int) -> bool:
        """Whether a block fits: its discs touch none that exist, but for the joint with the block it is attached to."""
        for index, other in enumerate(self.blocks):
            mine = slice(None)
            if index == parent:
                mine = ground.from_socket_m > 2.3 * ground.radii_m + 1.0
            gap = ground.centres_m[mine, None] - other.centres_m
            reach = ground.radii_m[mine, None] + other.radii_m
            if np.any(gap[..., 0] ** 2 + gap[..., 1] ** 2 < reach**2):
                return False
        return True

    def claim(self, ground: Discs) -> int:
        """Take the ground of a new block; returns the block's number."""
        self.blocks.append(ground)
        return len(self.blocks) - 1

    def new_road(self) -> int:
        """A number for the next road or junction."""
        self.roads += 1
        return self.roads - 1

    def link(self, lane: int, successor: int) -> None:
        """Let ``successor`` begin where ``lane`` ends."""
        self.lanes[lane].successors.append(successor)

    def add_lane(self, points: FloatArray, road: int, extents: FloatArray, limit_m_s: float, junction: bool) -> int:
        """Add a lane.

        Args:
            points: Shape (n, 4): x, y, yaw, curvature.
            road: Road or junction it belongs to.
            extents: Shape (2,) or (n, 2): distance to the pavement's left and right edge, m.
            limit_m_s: Speed limit.
            junction: Whether it lies inside a junction.

        Returns:
            Its index.
        """
        half, count = 0.5 * self.lane_width_m, len(points)
        constant = np.tile([half, half, limit_m_s, float(junction)], (count, 1))
        table = np.column_stack([points, constant, np.broadcast_to(extents, (count, 2))])
        self.lanes.append(DraftLane(table, road))
        return len(self.lanes) - 1

    def add_road(self, curve: Curve, count: int, limit_m_s: float, start: Socket | None, block: int) -> Socket:
        """Lay a road of ``count`` lanes per direction (traffic keeps right) along its middle line.

        Args:
            curve: Middle line.
            count: Lanes per direction.
            limit_m_s: Speed limit.
            start: What it is attached to; None if its beginning stays open or is linked later.
            block: Block that it belongs to.

        Returns:
            Its far end. Lanes are added there first, innermost first, then those that come back.
        """
        width, road = self.lane_width_m, self.new_road()
        out: list[int] = []
        back: list[int] = []
        for index in range(count):
            offset = (index + 0.5) * width
            extents = np.array([offset + count * width, count * width - offset])
            out.append(self.add_lane(curve.parallel(-offset), road, extents, limit_m_s, False))
            back.append(self.add_lane(turned_around(curve.parallel(offset)), road, extents, limit_m_s, False))
        for lanes, others in ((out, back), (back, out)):
            for index, lane in enumerate(lanes):
                self.lanes[lane].left = lanes[index - 1] if index > 0 else -1
                self.lanes[lane].right = lanes[index + 1] if index + 1 < count else -1
                self.lanes[lane].opposite = others[index]
        if start is not None:
            for index in range(count):
                self.link(start.arriving[index], out[index])
                self.link(back[index], start.leaving[index])
        return Socket(curve.end, tuple(out), tuple(back), block)

    def finish(self, seed: int) -> LaneMap:
        """The map as it stands."""
        lanes = tuple(
            Lane(lane.points, lane.road, tuple(lane.successors), lane.left, lane.right, lane.opposite)
            for lane in self.lanes
        )
        for lane in lanes:
            lane.points.setflags(write=False)
        return LaneMap(seed, lanes, tuple(self.junctions), tuple(self.stop_lines))
