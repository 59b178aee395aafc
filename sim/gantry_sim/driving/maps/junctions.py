"""Junctions: T and X crossings with light groups, and roundabouts where entering vehicles give way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.builder import MapBuilder, Socket
from gantry_sim.driving.maps.curves import Curve, Piece, Pose, connect, turned_around
from gantry_sim.driving.maps.graph import ROAD_LEFT, ROAD_RIGHT, Junction, StopLine

FloatArray = NDArray[np.float64]

THROUGH_RAD = math.radians(30.0)
"""A change of heading below this is going straight on."""

_TOUCH_M = 2.2


@dataclass(frozen=True)
class Arm:
    """A road at a junction."""

    pose: Pose
    """Middle of the road where it begins, looking away from the junction."""

    incoming: tuple[int, ...]
    """Lanes that lead to the junction, innermost first."""

    outgoing: tuple[int, ...]
    """Lanes that lead away from it, innermost first."""


@dataclass(frozen=True)
class _Connector:
    lane: int
    group: int


def bend_limit_m_s(curvature: float, lateral_m_s2: float = 2.0) -> float:
    """Speed at which a bend of this curvature (1/m) asks for ``lateral_m_s2`` of lateral acceleration."""
    return math.sqrt(lateral_m_s2 / max(abs(curvature), 1e-6))


def open_arm(builder: MapBuilder, pose: Pose, count: int, stub_m: float, limit_m_s: float, block: int) -> Arm:
    """A straight road of ``stub_m`` away from a junction, not linked to it yet."""
    end = builder.add_road(Curve(pose, [Piece(stub_m, 0.0, 0.0)]), count, limit_m_s, None, block)
    return Arm(pose, end.leaving, end.arriving)


def far_end(arm: Arm, stub_m: float, block: int) -> Socket:
    """The open end of what ``open_arm`` laid."""
    return Socket(arm.pose.ahead(stub_m), arm.outgoing, arm.incoming, block)


def near_arm(socket: Socket) -> Arm:
    """The road that a junction is attached to, seen from the junction."""
    return Arm(socket.pose.reversed(), socket.arriving, socket.leaving)


def lane_pose(arm: Arm, index: int, width_m: float, *, incoming: bool) -> Pose:
    """Pose at which a lane meets the junction, looking along it."""
    offset = (index + 0.5) * width_m
    return arm.pose.ahead(0.0, offset).reversed() if incoming else arm.pose.ahead(0.0, -offset)


def _pairs(turn_rad: float, incoming: int, outgoing: int) -> list[tuple[int, int]]:
    """Pairs of lanes that a movement joins: left turns from and to the innermost, right turns the outermost."""
    if abs(turn_rad) < THROUGH_RAD:
        return [(index, index) for index in range(min(incoming, outgoing))]
    return [(0, 0)] if turn_rad > 0.0 else [(incoming - 1, outgoing - 1)]


def _extents(builder: MapBuilder, start: int, end: int, count: int) -> FloatArray:
    """Pavement beside a connector: from that of the lane before to that of the lane after."""
    first = builder.lanes[start].points[-1, [ROAD_LEFT, ROAD_RIGHT]]
    last = builder.lanes[end].points[0, [ROAD_LEFT, ROAD_RIGHT]]
    return first + np.linspace(0.0, 1.0, count)[:, None] * (last - first)


def add_crossing(builder: MapBuilder, arms: Sequence[Arm], centre: Pose, radius_m: float, limit_m_s: float) -> None:
    """Join the arms of a T or X junction in every direction, with stop lines and light groups."""
    road, width = builder.new_road(), builder.lane_width_m
    connectors: list[_Connector] = []
    for group, arm in enumerate(arms):
        for other in arms:
            if other is arm:
                continue
            turn = math.remainder(other.pose.yaw - arm.pose.yaw - math.pi, 2 * math.pi)
            for i, j in _pairs(turn, len(arm.incoming), len(other.outgoing)):
                start, end = arm.incoming[i], other.outgoing[j]
                begin = lane_pose(arm, i, width, incoming=True)
                pieces = connect(begin, lane_pose(other, j, width, incoming=False))
                points = Curve(begin, pieces).parallel(0.0)
                limit = min(limit_m_s, bend_limit_m_s(max(abs(p.end_curvature) for p in pieces)))
                lane = builder.add_lane(points, road, _extents(builder, start, end, len(points)), limit, True)
                builder.link(start, lane)
                builder.link(lane, end)
                connectors.append(_Connector(lane, group))
    opposed = {
        (a, b)
        for a in range(len(arms))
        for b in range(a + 1, len(arms))
        if abs(math.remainder(arms[a].pose.yaw - arms[b].pose.yaw - math.pi, 2 * math.pi)) < THROUGH_RAD
    }
    _register(builder, "x" if len(arms) == 4 else "t", arms, centre, radius_m, connectors, opposed)


def _register(
    builder: MapBuilder,
    kind: str,
    arms: Sequence[Arm],
    centre: Pose,
    radius_m: float,
    connectors: Sequence[_Connector],
    opposed: set[tuple[int, int]] | None,
) -> None:
    """Enter a junction with its conflicts and stop lines; ``opposed`` is None where there are no lights."""
    pairs, groups = _conflicts(builder, connectors)
    lights = opposed is not None
    number = len(builder.junctions)
    builder.junctions.append(
        Junction(
            kind=kind,
            centre_m=(round(centre.x, 4), round(centre.y, 4)),
            radius_m=round(radius_m, 4),
            approaches=tuple(arm.incoming for arm in arms),
            lights=lights,
            connectors=tuple(c.lane for c in connectors),
            connector_groups=tuple(c.group for c in connectors),
            conflicts=tuple(pairs),
            group_conflicts=tuple(sorted(groups - opposed)) if opposed is not None else (),
        )
    )
    for group, arm in enumerate(arms):
        for lane in arm.incoming:
            builder.stop_lines.append(StopLine(lane, number, group if lights else -1))


def _conflicts(
    builder: MapBuilder, connectors: Sequence[_Connector]
) -> tuple[list[tuple[int, int]], set[tuple[int, int]]]:
    """Pairs of connectors that come closer than a car's width, unless they begin together or follow each other."""
    pairs: list[tuple[int, int]] = []
    groups: set[tuple[int, int]] = set()
    lanes = builder.lanes
    for index, one in enumerate(connectors):
        for two in connectors[index + 1 :]:
            if two.lane in lanes[one.lane].successors or one.lane in lanes[two.lane].successors:
                continue
            a, b = lanes[one.lane].points, lanes[two.lane].points
            if np.allclose(a[0, :2], b[0, :2], atol=1e-3):  # They part here; a vehicle that follows here queues.
                continue
            gap = a[:, None, :2] - b[None, :, :2]
            if np.min(gap[..., 0] ** 2 + gap[..., 1] ** 2) < _TOUCH_M**2:
                pairs.append((min(one.lane, two.lane), max(one.lane, two.lane)))
                groups.add((min(one.group, two.group), max(one.group, two.group)))
    return sorted(pairs), {(a, b) for a, b in groups if a != b}


@dataclass(frozen=True)
class Entry:
    """The way from a road into a ring, in the frame of the arm (x outwards from the ring's centre)."""

    points: FloatArray
    """Shape (n, 4), from the road to the ring."""

    begin_m: float
    """Distance of its beginning from the ring's centre, along the arm."""

    angle_rad: float
    """Angle at which it joins the ring, counter-clockwise from the arm."""


def ring_entry(ring_m: float, offset_m: float, tightest_m: float) -> Entry:
    """A right-hand bend that ends on a ring with the ring's own curvature.

    Args:
        ring_m: Radius of the ring's lane.
        offset_m: Of the lane from the middle of the arm.
        tightest_m: Radius of the right-hand bend.

    Raises:
        GantryError: The bend cannot meet the ring.
    """
    peak = 1.0 / tightest_m

    def pieces(hold_m: float) -> list[Piece]:
        return [Piece(4.0, 0.0, -peak), Piece(hold_m, -peak, -peak), Piece(7.0, -peak, 1.0 / ring_m)]

    def centre(hold_m: float) -> Pose:
        return Curve(Pose(0.0, 0.0, 0.0), pieces(hold_m)).end.ahead(0.0, ring_m)

    low, high = 0.0, 0.5 * math.pi * tightest_m
    if not centre(high).y < offset_m < centre(low).y:
        raise GantryError(f"No bend of radius {tightest_m} m leads from {offset_m} m beside the arm to {ring_m=} m.")
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if centre(middle).y > offset_m else (low, middle)
    begin = centre(low).x
    curve = Curve(Pose(begin, offset_m, math.pi), pieces(low))
    return Entry(curve.parallel(0.0), begin, math.atan2(curve.end.y, curve.end.x))


def _placed(points: FloatArray, frame: Pose) -> FloatArray:
    """Points (n, 4) of a frame in the world."""
    cos, sin = math.cos(frame.yaw), math.sin(frame.yaw)
    moved = points.copy()
    moved[:, :2] = points[:, :2] @ np.array([[cos, sin], [-sin, cos]]) + [frame.x, frame.y]
    moved[:, 2] += frame.yaw
    return moved


def _way_out(points: FloatArray) -> FloatArray:
    """The way in, mirrored at the arm and driven back: the way from the ring to the road."""
    return turned_around(points * [1.0, -1.0, -1.0, -1.0])


def add_roundabout(
    builder: MapBuilder, arms: Sequence[Arm], centre: Pose, radius_m: float, entries: Sequence[Entry], limit_m_s: float
) -> None:
    """Join arms, in counter-clockwise order, by one ring per lane.

    Args:
        builder: Where to.
        arms: At ``radius_m`` from the centre; all with as many lanes as there are ``entries``.
        centre: Of the ring.
        radius_m: Distance of the arms' beginnings.
        entries: From ``ring_entry``, innermost lane first, each with its straight to ``radius_m`` still missing.
        limit_m_s: Speed limit before bends lower it.
    """
    road, width, count = builder.new_road(), builder.lane_width_m, len(entries)
    connectors: list[_Connector] = []
    for index, entry in enumerate(entries):
        ring_m = 1.0 / float(entry.points[-1, 3])
        limit = min(limit_m_s, bend_limit_m_s(float(np.abs(entry.points[:, 3]).max())))
        extents = np.array([(index + 0.5) * width, (count - index - 0.5) * width])
        joins: list[tuple[float, int, int, bool]] = []  # Angle on the ring, way in or out, its group, whether in.
        way_in = _with_straight(entry.points, radius_m - entry.begin_m)
        for group, arm in enumerate(arms):
            frame = Pose(centre.x, centre.y, arm.pose.yaw)
            enter = builder.add_lane(_placed(way_in, frame), road, extents, limit, True)
            leave = builder.add_lane(_placed(_way_out(way_in), frame), road, extents, limit, True)
            builder.link(arm.incoming[index], enter)
            builder.link(leave, arm.outgoing[index])
            connectors += [_Connector(enter, group), _Connector(leave, -1)]
            joins += [(arm.pose.yaw - entry.angle_rad, leave, group, False)]
            joins += [(arm.pose.yaw + entry.angle_rad, enter, group, True)]
        pieces: list[int] = []
        for place, (angle, _, _, _) in enumerate(joins):
            span = (joins[(place + 1) % len(joins)][0] - angle) % (2 * math.pi)
            begin = centre.ahead(0.0, 0.0, angle - centre.yaw).ahead(ring_m, 0.0, 0.5 * math.pi)
            points = Curve(begin, [Piece(span * ring_m, 1.0 / ring_m, 1.0 / ring_m)]).parallel(0.0)
            pieces.append(builder.add_lane(points, road, extents, limit, True))
            connectors.append(_Connector(pieces[-1], -1))
        for place, (_, lane, _, enters) in enumerate(joins):
            builder.link(pieces[place - 1], pieces[place])
            if enters:
                builder.link(lane, pieces[place])
            else:
                builder.link(pieces[place - 1], lane)
    _register(builder, "roundabout", arms, centre, radius_m, connectors, None)


def _with_straight(points: FloatArray, length_m: float) -> FloatArray:
    """Points of an arm's frame with ``length_m`` of straight before them."""
    count = round(length_m)
    if length_m < 1e-6:
        return points
    x = points[0, 0] + np.linspace(length_m, 0.0, max(count, 1) + 1)[:-1]
    before = np.column_stack([x, np.full_like(x, points[0, 1]), np.full_like(x, math.pi), np.zeros_like(x)])
    return np.concatenate([before, points])
