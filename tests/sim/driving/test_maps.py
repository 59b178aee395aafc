"""Lane maps: geometry of every lane, links between them, room between roads, and what a seed decides."""

import functools
import math

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.driving.maps.curves import Curve, Piece, Pose, bend, connect
from gantry_sim.driving.maps.generate import SPLIT_SEEDS, MapConfig, lane_map, split_seeds
from gantry_sim.driving.maps.graph import (
    CURVATURE,
    IN_JUNCTION,
    LEFT,
    LIMIT,
    RIGHT,
    ROAD_LEFT,
    ROAD_RIGHT,
    YAW,
)
from gantry_sim.driving.maps.lines import Line, edges, route_along
from gantry_sim.driving.maps.lots import LotConfig, parking_lot
from gantry_sim.driving.maps.routes import random_route
from gantry_sim.driving.maps.tracks import TrackConfig, comes_near_itself, race_track
from gantry_sim.driving.sensors.boxes import overlap

SEEDS = range(14)


@functools.cache
def some_maps():
    return [lane_map(seed) for seed in SEEDS]


def lanes_of(lane_maps):
    return [(found, index, lane) for found in lane_maps for index, lane in enumerate(found.lanes)]


def turn(angle):
    return abs(math.remainder(float(angle), 2 * math.pi))


def circle(points):
    """Curvature of the circle through three points in a row, by their triangle (Menger)."""
    a, b, c = points[:-2], points[1:-1], points[2:]
    area2 = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
    sides = np.hypot(*(b - a).T) * np.hypot(*(c - b).T) * np.hypot(*(c - a).T)
    return 2 * area2 / sides


def test_an_arc_between_clothoids_ends_where_fine_integration_says():
    curve = Curve(Pose(1.0, 2.0, 0.3), bend(1.2, 40.0, 0.3))
    s = (np.arange(400_000) + 0.5) * 1e-4
    yaw = 0.3 + np.cumsum(curve.curvature(s)) * 1e-4 - 0.5e-4 * curve.curvature(s)
    assert curve.end.x == pytest.approx(1.0 + np.cos(yaw).sum() * 1e-4, abs=1e-6)
    assert curve.end.y == pytest.approx(2.0 + np.sin(yaw).sum() * 1e-4, abs=1e-6)
    assert curve.end.yaw == pytest.approx(1.5, abs=1e-12)


def test_a_parallel_of_a_circle_is_a_circle():
    quarter = Curve(Pose(0.0, 0.0, 0.0), [Piece(10 * math.pi, 1 / 20, 1 / 20)])
    inner, outer = quarter.parallel(4.0), quarter.parallel(-4.0)
    np.testing.assert_allclose(np.hypot(inner[:, 0], inner[:, 1] - 20.0), 16.0, atol=1e-9)
    np.testing.assert_allclose(outer[:, CURVATURE], 1 / 24, atol=1e-12)
    assert np.hypot(*np.diff(inner[:, :2], axis=0).T).std() < 1e-6
    with pytest.raises(GantryError, match="folds"):
        quarter.parallel(20.0)


def test_a_connection_reaches_the_other_pose_and_refuses_what_it_cannot():
    start, end = Pose(-9.0, 1.0, 0.2), Pose(4.0, 13.0, 1.7)
    curve = Curve(start, connect(start, end))
    assert (curve.end.x, curve.end.y, curve.end.yaw) == pytest.approx((4.0, 13.0, 1.7), abs=1e-6)
    with pytest.raises(GantryError, match="tangents"):
        connect(start, Pose(-12.0, 13.0, 1.7))
    with pytest.raises(GantryError, match="straight"):
        connect(start, start.ahead(5.0, 1.0))


def test_every_kind_of_block_occurs_and_unknown_ones_are_named():
    kinds = {junction.kind for found in some_maps() for junction in found.junctions}
    assert kinds == {"x", "t", "roundabout"}
    with pytest.raises(UnknownNameError, match="roundabout"):
        MapConfig(blocks={"roundabuot": 1.0})
    assert not lane_map(3, MapConfig(blocks={"straight": 1.0, "arc": 3.0, "s": 2.0})).junctions


def test_tables_agree_with_their_own_geometry():
    for _, _, lane in lanes_of(some_maps()):
        table = lane.points
        steps = np.diff(table[:, :2], axis=0)
        gaps = np.hypot(*steps.T)
        assert gaps.max() < 1.5
        # Headings are those of the chords, to the second order in the step.
        chord = np.arctan2(steps[:, 1], steps[:, 0])
        middle = 0.5 * (table[1:, YAW] + table[:-1, YAW])
        assert np.abs(np.remainder(chord - middle + np.pi, 2 * np.pi) - np.pi).max() < 6e-3
        if len(table) > 4 and gaps.min() > 0.7:
            found = circle(table[:, :2])
            assert np.abs(found - table[1:-1, CURVATURE]).max() < 0.02
        # Nothing jumps: curvature changes by no more than the steepest clothoid allows.
        assert np.abs(np.diff(table[:, CURVATURE])).max() < 0.06
        assert np.abs(table[:, CURVATURE]).max() < 1 / 3.0
        assert np.all(table[:, LEFT] + table[:, RIGHT] > 3.1)
        assert np.all(table[:, LIMIT] > 2.0)
        assert np.all(table[:, ROAD_LEFT] >= table[:, LEFT] - 1e-9)
        assert np.all(table[:, ROAD_RIGHT] >= table[:, RIGHT] - 1e-9)


def test_successors_begin_where_a_lane_ends_with_its_heading_and_curvature():
    met = 0
    for found, index, lane in lanes_of(some_maps()):
        for successor in lane.successors:
            after = found.lanes[successor].points[0]
            np.testing.assert_allclose(after[:2], lane.points[-1, :2], atol=1e-6)
            assert turn(after[YAW] - lane.points[-1, YAW]) < 1e-6
            assert after[CURVATURE] == pytest.approx(lane.points[-1, CURVATURE], abs=1e-6)
            met += 1
        if lane.in_junction or any(index == stop.lane for stop in found.stop_lines):
            assert lane.successors
    assert met > 400


def test_neighbours_are_a_lane_apart_and_opposite_lanes_antiparallel():
    seen = {"right": 0, "opposite": 0}
    for found, index, lane in lanes_of(some_maps()):
        width = lane.points[0, LEFT] + lane.points[0, RIGHT]
        if lane.right >= 0:
            other = found.lanes[lane.right]
            assert other.left == index
            assert other.road == lane.road
            offset = other.points[0, :2] - lane.points[0, :2]
            yaw = lane.points[0, YAW]
            assert offset @ [math.sin(yaw), -math.cos(yaw)] == pytest.approx(width, abs=1e-6)
            assert turn(other.points[0, YAW] - yaw) < 1e-6
            seen["right"] += 1
        if lane.opposite >= 0:
            other = found.lanes[lane.opposite]
            assert other.opposite == index
            assert other.road == lane.road
            assert turn(other.points[-1, YAW] - lane.points[0, YAW] - math.pi) < 1e-6
            assert turn(other.points[0, YAW] - lane.points[-1, YAW] - math.pi) < 1e-6
            # Traffic keeps right: what comes the other way is on the left.
            offset = other.points[-1, :2] - lane.points[0, :2]
            assert offset @ [-math.sin(lane.points[0, YAW]), math.cos(lane.points[0, YAW])] > 0.9 * width
            seen["opposite"] += 1
    assert min(seen.values()) > 20


def test_roads_that_are_not_joined_keep_their_distance():
    for found in some_maps():
        joined = {(a.road, found.lanes[b].road) for a in found.lanes for b in a.successors}
        joined |= {(b, a) for a, b in joined}
        # Roads of one junction meet at it, so they are joined through it.
        joined |= {(a, c) for a, b in joined for b2, c in joined if b == b2}
        by_road = {}
        for lane in found.lanes:
            by_road.setdefault(lane.road, []).append(lane.points[::3, :2])
        roads = {road: np.concatenate(points) for road, points in by_road.items()}
        width = 2 * found.lanes[0].points[0, LEFT]
        for a in roads:
            for b in roads:
                if a < b and (a, b) not in joined:
                    gap = roads[a][:, None] - roads[b]
                    assert np.hypot(gap[..., 0], gap[..., 1]).min() > width, (found.seed, a, b)


def test_crossings_name_their_conflicts():
    crossing = next(junction for found in some_maps() for junction in found.junctions if junction.kind == "x")
    found = next(found for found in some_maps() if crossing in found.junctions)
    middle = {}
    for lane, group in zip(crossing.connectors, crossing.connector_groups, strict=True):
        swept = found.lanes[lane].points[-1, YAW] - found.lanes[lane].points[0, YAW]
        middle.setdefault((group, round(swept / (math.pi / 2))), lane)
    pairs = set(crossing.conflicts)

    def conflict(a, b):
        return (min(middle[a], middle[b]), max(middle[a], middle[b])) in pairs

    # Groups go round counter-clockwise: 0 comes from below, 1 from the right, 2 from above, 3 from the left.
    assert conflict((0, 0), (1, 0))
    assert not conflict((0, 0), (2, 0))
    assert conflict((0, 1), (2, 0))
    assert not conflict((0, -1), (2, -1))
    assert conflict((0, -1), (3, 0))
    assert conflict((2, 1), (0, -1))
    entered = {after: index for index, lane in enumerate(found.lanes) for after in lane.successors}
    assert all(entered[a] != entered[b] for a, b in pairs)  # Who comes from one lane queues there.
    assert crossing.group_conflicts == ((0, 1), (0, 3), (1, 2), (2, 3))
    assert crossing.lights
    groups = {stop.group for stop in found.stop_lines if stop.junction == found.junctions.index(crossing)}
    assert groups == {0, 1, 2, 3}


def test_a_roundabout_is_driven_counter_clockwise_and_left_at_every_arm():
    found = next(found for found in some_maps() if any(j.kind == "roundabout" for j in found.junctions))
    number = next(i for i, junction in enumerate(found.junctions) if junction.kind == "roundabout")
    ring = found.junctions[number]
    assert not ring.lights
    assert {s.group for s in found.stop_lines if s.junction == number} == {-1}
    inside, around_it = set(ring.connectors), 0
    for approach in ring.approaches:
        exits, frontier, visited = set(), [approach[0]], set()
        while frontier:
            lane = frontier.pop()
            visited.add(lane)
            for after in found.lanes[lane].successors:
                if after not in inside:
                    exits.add(after)
                elif after not in visited:
                    frontier.append(after)
        assert len(exits) == len(ring.approaches)
        for lane in visited & inside:
            around = found.lanes[lane].points[:, :2] - ring.centre_m
            at = np.unwrap(np.arctan2(around[:, 1], around[:, 0]))
            assert np.hypot(*around.T).min() > 10.0
            if found.lanes[lane].points[:, CURVATURE].min() > 0.02:
                assert at[-1] > at[0]
                around_it += 1
    assert around_it > 0


def test_a_seed_decides_everything_and_splits_are_disjoint():
    assert lane_map(5).digest == some_maps()[5].digest != some_maps()[6].digest
    ranges = [range(*bounds) for bounds in SPLIT_SEEDS.values()]
    for index, one in enumerate(ranges):
        for other in ranges[index + 1 :]:
            assert one.stop <= other.start or other.stop <= one.start
    assert list(split_seeds("test", 2, first=3)) == [2_000_003, 2_000_004]
    with pytest.raises(UnknownNameError, match="validation"):
        split_seeds("valdation", 1)
    with pytest.raises(GantryError, match="1000000 seeds"):
        split_seeds("train", 1_000_001)


def test_routes_are_as_long_as_asked_for_and_pass_their_stop_lines():
    stops = 0
    for seed in range(6):
        found = lane_map(seed, MapConfig(min_route_m=250.0))
        route = random_route(found, np.random.default_rng(seed), 250.0)
        assert 250.0 <= route.length_m < 252.0
        steps = np.diff(route.points, axis=0)
        assert np.hypot(steps[:, 0], steps[:, 1]).max() < 1.5
        assert np.abs(steps[:, YAW]).max() < 0.5
        assert np.abs(steps[:, CURVATURE]).max() < 0.06
        for stop in route.stops:
            index = int(np.searchsorted(route.s_m, stop.s_m))
            assert route.points[index, IN_JUNCTION] == 1.0
            assert route.points[index - 1, IN_JUNCTION] == 0.0
            assert stop.connector in found.junctions[stop.junction].connectors
            stops += 1
    assert stops > 0
    with pytest.raises(GantryError, match="longest found"):
        random_route(found, np.random.default_rng(0), 1e5)
    with pytest.raises(GantryError, match="does not follow"):
        route_along(found, (0, 0))


def test_resampling_stays_on_the_curve():
    quarter = Curve(Pose(0.0, 0.0, 0.0), [Piece(10 * math.pi, 1 / 5, 1 / 5)]).parallel(0.0)
    line = Line(np.column_stack([quarter, np.ones((len(quarter), 6))]))
    for spacing in (0.37, 1.0):
        points = line.resampled(spacing).points
        assert np.abs(np.hypot(points[:, 0], points[:, 1] - 5.0) - 5.0).max() < 1e-3


def test_tracks_close_smoothly_within_their_bounds():
    for seed in range(6):
        track = race_track(seed)
        table = track.points
        np.testing.assert_allclose(table[0, :2], table[-1, :2], atol=1e-9)
        assert abs(table[-1, YAW] - table[0, YAW]) == pytest.approx(2 * math.pi, abs=1e-9)
        assert np.abs(table[:, CURVATURE]).max() <= 1 / 1.5
        assert np.abs(circle(table[:, :2]) - table[1:-1, CURVATURE]).max() < 0.05
        assert np.abs(np.diff(table[:, CURVATURE])).max() < 0.25
        assert 60.0 <= track.length_m < 120.0
        # No wall stands on the track: every border point is half a width from the middle line, wherever it passes.
        walls = np.concatenate(edges(table))
        gap = walls[:, None] - table[None, :, :2]
        assert np.hypot(gap[..., 0], gap[..., 1]).min() > 0.97 * table[0, LEFT]
    assert race_track(1).digest == race_track(1).digest != race_track(2).digest
    with pytest.raises(GantryError, match="No track"):
        race_track(0, TrackConfig(length_m=(10.0, 11.0)))


def test_a_track_with_a_neck_narrower_than_itself_is_noticed():
    t = np.linspace(0.0, 2 * math.pi, 400, endpoint=False)

    def dumbbell(neck_m):
        y = np.sin(t) * (0.5 * neck_m + 6.0 * np.cos(t) ** 2)
        return np.stack([10.0 * np.cos(t), y], axis=1)

    for neck, near in ((1.5, True), (4.0, False)):
        points = dumbbell(neck)
        spacing = np.hypot(*np.diff(points, axis=0).T).mean()
        assert comes_near_itself(points, spacing, 2.0) == near


def test_lots_leave_their_goal_free():
    for seed in range(8):
        lot = parking_lot(seed)
        assert len(lot.boxes) > 0
        assert not overlap(torch.tensor(lot.goal[None]), torch.tensor(lot.boxes[None])).any()
        assert lot.goal[3] >= 5.0
        assert lot.goal[4] >= 2.5
    assert parking_lot(3).digest == parking_lot(3).digest != parking_lot(4).digest
    with pytest.raises(GantryError, match="do not fit"):
        parking_lot(0, LotConfig(car_m=(6.0, 1.8)))
