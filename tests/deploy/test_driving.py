"""What a car's policy sees, and how its actions become targets: hand-made numbers, and numpy against torch."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gantry_deploy.actions.drive import DriveDecoder
from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_deploy.contract.policy_contract import ActionSpec, PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.builder import TERMS, ObservationBuilder, Signals, make_term
from gantry_deploy.observations.lidar_scan import ScanPooling, bridged
from gantry_deploy.observations.road import DRIVING_TERMS, OBJECT_NUMBERS, term_sizes
from gantry_deploy.observations.route import locate
from gantry_deploy.observations.surroundings import Surroundings, surroundings_row
from gantry_fixtures.drive import drive_contract_for
from gantry_fixtures.training import torch
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec

BMW = robot_spec("bmw_320i")
BASE = drive_contract_for(BMW)
DRIVE = replace(
    BASE.body, lookahead_m=(5.0, 10.0, 20.0), max_objects=2, object_range_m=30.0, bev=BevLayout(48, behind_m=12.0)
)
CONTRACT = replace(BASE, body=DRIVE)
SIZES = term_sizes(DRIVE)
MAKE = {
    "numpy": lambda values: np.asarray(values, np.float32),
    "torch": lambda v: torch.asarray(np.array(v, np.float32)),
}


def signals(make, rows=1, speed=0.0, pose=(0.0, 0.0, 0.0), around=None, **fields):
    zeros = np.zeros((rows, 3))
    velocity = zeros.copy()
    velocity[:, 0] = speed
    values = {
        "joint_pos_rad": np.zeros((rows, 2)),
        "joint_vel_rad_s": np.zeros((rows, 2)),
        "quat_base_to_world_wxyz": np.tile((1.0, 0.0, 0.0, 0.0), (rows, 1)),
        "ang_vel_base_in_base_rad_s": zeros,
        "command": np.zeros((rows, 0)),
        "last_action": np.zeros((rows, 2)),
        "time_s": np.zeros(rows),
        "lin_vel_base_in_base_m_s": velocity,
        "pose_in_world": np.broadcast_to(pose, (rows, 3)),
        **fields,
    }
    seen = Surroundings(**{name: make(v) for name, v in (around or {}).items()})
    return Signals(**{name: make(v) for name, v in values.items()}, surroundings=seen)


def observe(make, name, contract=CONTRACT, **given):
    contract = replace(contract, observations=(make_term(name, term_sizes(contract.body)[name]),))
    return np.asarray(ObservationBuilder(contract, make(np.zeros((1, 1))))(signals(make, **given)))


def road(points, left=2.0, right=1.5, limit=10.0):
    """A route of one car as arrays of one row."""
    points = np.asarray(points, float)[None]
    ones = np.ones(points.shape[:2])
    names = ("route_left_m", "route_right_m", "route_speed_limit_m_s")
    sides = dict(zip(names, (left * ones, right * ones, limit * ones), strict=True))
    return {"route_points_in_world_m": points, **sides}


STRAIGHT = road([(float(x), 0.0) for x in range(-5, 40)])
ANGLES = np.arange(-5, 80) / 20.0
LEFT_CURVE = road(np.stack((20.0 * np.sin(ANGLES), 20.0 * (1.0 - np.cos(ANGLES))), axis=-1))


@pytest.fixture(params=["numpy", "torch"])
def make(request):
    return MAKE[request.param]


def test_a_straight_road_ahead_lies_straight_ahead(make):
    given = {"around": STRAIGHT, "pose": (3.25, 0.5, 0.0)}
    np.testing.assert_allclose(observe(make, "route_points", **given), [[5, -0.5, 10, -0.5, 20, -0.5]], atol=1e-5)
    np.testing.assert_allclose(observe(make, "route_error", **given), [[0.5, 0.0]], atol=1e-6)
    np.testing.assert_allclose(observe(make, "lane_edges", **given), [[1.5, 2.0]], atol=1e-6)
    np.testing.assert_allclose(observe(make, "route_curvature", **given), np.zeros((1, 3)), atol=1e-5)
    np.testing.assert_allclose(observe(make, "route_widths", **given), [[2, 2, 2, 1.5, 1.5, 1.5]], atol=1e-6)


def test_a_turned_car_sees_the_road_turned(make):
    """Heading 90 degrees left of the road, which then runs to the right."""
    given = {"around": STRAIGHT, "pose": (0.0, -1.0, math.pi / 2)}
    np.testing.assert_allclose(observe(make, "route_error", **given), [[-1.0, math.pi / 2]], atol=1e-5)
    np.testing.assert_allclose(observe(make, "route_points", **given)[0, :2], [1.0, -5.0], atol=1e-5)


def test_headings_wrap_around_at_pi(make):
    """A road towards -x, and a car a little to either side of it: 0.1 rad, not two pi minus 0.1."""
    west = road([(-float(x), 0.0) for x in range(-5, 40)])
    for yaw, error in ((math.pi - 0.1, -0.1), (-math.pi + 0.1, 0.1), (math.pi, 0.0), (3.0 * math.pi - 0.2, -0.2)):
        found = observe(make, "route_error", around=west, pose=(0.0, 0.5, yaw))
        # A road to the west has its left side in the south.
        np.testing.assert_allclose(found, [[-0.5, error]], atol=1e-5)


def test_a_left_curve_bends_to_the_left(make):
    found = observe(make, "route_points", around=LEFT_CURVE)[0].reshape(3, 2)
    for place, ahead in zip(found, DRIVE.lookahead_m, strict=True):
        expected = (20.0 * math.sin(ahead / 20.0), 20.0 * (1.0 - math.cos(ahead / 20.0)))
        # A chord of 1 m is 0.1 mm shorter than its arc and runs up to 6 mm inside of it.
        np.testing.assert_allclose(place, expected, atol=0.01)
    np.testing.assert_allclose(observe(make, "route_curvature", around=LEFT_CURVE), np.full((1, 3), 0.05), rtol=0.02)
    mirrored = {**LEFT_CURVE, "route_points_in_world_m": LEFT_CURVE["route_points_in_world_m"] * (1.0, -1.0)}
    np.testing.assert_allclose(observe(make, "route_curvature", around=mirrored), np.full((1, 3), -0.05), rtol=0.02)


def test_the_end_of_a_route_stays_ahead_and_repeated_points_do_no_harm(make):
    ends = road([(0.0, 0.0), (0.0, 0.0), (1.0, 0.0), (2.0, 0.0)] + [(7.0, 0.0)] * 4)
    np.testing.assert_allclose(
        observe(make, "route_points", around=ends, pose=(1.5, 0.0, 0.0)), [[5, 0, 5.5, 0, 5.5, 0]], atol=1e-5
    )
    past = observe(make, "route_error", around=ends, pose=(9.0, 0.5, 0.1))
    np.testing.assert_allclose(past, [[0.5, 0.1]], atol=1e-5)
    assert np.isfinite(observe(make, "route_curvature", around=road([(1.0, 1.0)] * 3))).all()


def test_speed_limits_come_from_the_places_ahead(make):
    limits = np.where(np.arange(-5, 40) < 12, 14.0, 8.0)[None]
    found = observe(make, "route_speed_limits", around={**STRAIGHT, "route_speed_limit_m_s": limits})
    np.testing.assert_allclose(found, [[14.0, 14.0, 8.0]], atol=1e-5)
    between = observe(
        make, "route_speed_limits", around={**STRAIGHT, "route_speed_limit_m_s": limits}, pose=(1.5, 0, 0)
    )
    np.testing.assert_allclose(between, [[14.0, 11.0, 8.0]], atol=1e-5)


def object_row(x, y, yaw=0.0, speed=0.0, taken=1.0):
    return (x, y, yaw, speed, 4.0, 2.0, taken)


def test_objects_ahead_and_behind_stand_in_the_cars_frame_nearest_first(make):
    """The car at (10, 5) heading north at 3 m/s: one ahead going north at 5 m/s, one behind, oncoming from the west."""
    there = [object_row(10, 25, math.pi / 2, 5.0), object_row(10, -3, 0.0, 2.0), object_row(10, 6, taken=0.0)]
    found = observe(make, "objects", around={"objects": [there]}, pose=(10.0, 5.0, math.pi / 2), speed=3.0)
    behind = (-8.0, 0.0, -1.0, 0.0, -3.0, -2.0, 4.0, 2.0, 1.0)
    ahead = (20.0, 0.0, 0.0, 1.0, 2.0, 0.0, 4.0, 2.0, 1.0)
    np.testing.assert_allclose(found.reshape(2, 9), [behind, ahead], atol=1e-5)


def test_objects_out_of_range_or_too_many_are_not_seen(make):
    there = [object_row(31, 0), object_row(12, 0), object_row(-9, 0), object_row(20, 0)]
    found = observe(make, "objects", around={"objects": [there]}).reshape(2, OBJECT_NUMBERS)
    np.testing.assert_allclose(found[:, 0], [-9.0, 12.0])
    alone = observe(make, "objects", around={"objects": [there[:1]]})
    np.testing.assert_array_equal(alone, np.zeros((1, 18)))
    one = observe(make, "objects", around={"objects": [there[1:2]]}).reshape(2, OBJECT_NUMBERS)
    assert one[0, 0] == 12.0
    np.testing.assert_array_equal(one[1], np.zeros(9))


def test_objects_along_a_straight_road_are_told_by_its_length(make):
    """The car at 3.25 m: one 10 m ahead crosses to the left at 3 m/s, one behind to the right comes towards it."""
    there = [object_row(13.25, 2.0, math.pi / 2, 3.0), object_row(0.25, -1.5, math.pi, 4.0)]
    given = {"around": STRAIGHT | {"objects": [there]}, "pose": (3.25, 0.5, 0.3)}
    found = observe(make, "route_objects", **given).reshape(2, 4)
    np.testing.assert_allclose(found, [(-3.0, -1.5, -4.0, 0.0), (10.0, 2.0, 0.0, 3.0)], atol=1e-5)
    # Beyond its ends, and where they are told again and again, a route goes straight on.
    ended = road([(float(min(x, 39)), 0.0) for x in range(-5, 60)])
    for around in (STRAIGHT, ended):
        beyond = {"around": around | {"objects": [[object_row(45.0, 1.0), object_row(8.0, 2.0)]]}, "pose": (30.0, 0, 0)}
        np.testing.assert_allclose(observe(make, "route_objects", **beyond)[0, :2], [15.0, 1.0], atol=1e-5)
    before = {"around": STRAIGHT | {"objects": [[object_row(-12.0, 1.0)]]}, "pose": (0.0, 0, 0)}
    np.testing.assert_allclose(observe(make, "route_objects", **before)[0, :2], [-12.0, 1.0], atol=1e-5)


def test_objects_along_a_curve_are_told_by_its_length(make):
    """A circle of 20 m to the left: a quarter turn is 31.4 m, and who stands 2 m inside of it is to the left."""
    angle = 1.2
    x, y = 18.0 * math.sin(angle), 20.0 - 18.0 * math.cos(angle)
    there = [object_row(x, y, angle, 5.0)]
    found = observe(make, "route_objects", around=LEFT_CURVE | {"objects": [there]}, pose=(0.0, 0.0, 0.0))
    np.testing.assert_allclose(found[0, :4], [20.0 * angle, 2.0, 5.0, 0.0], atol=0.15)
    np.testing.assert_array_equal(found[0, 4:], np.zeros(4))


def test_the_first_object_on_the_route_is_told_from_bumper_to_bumper(make):
    """At 8 m/s behind one that does 5 m/s; somebody nearer stands beside the lane, somebody else behind the car."""
    nose = DRIVE.center_x_in_base_m + 0.5 * DRIVE.length_m
    there = [object_row(20.0, 0.4, 0.0, 5.0), object_row(12.0, 3.0)]
    found = observe(make, "lead_object", around=STRAIGHT | {"objects": [there]}, speed=8.0)
    gap = 18.0 - nose
    np.testing.assert_allclose(found, [[gap, 10.0 / (1.0 + gap), 3.0, 9.0 / (2.0 * gap)]], rtol=1e-5)
    faster = observe(make, "lead_object", around=STRAIGHT | {"objects": [there]}, speed=4.0)
    np.testing.assert_allclose(faster, [[gap, 10.0 / (1.0 + gap), -1.0, 0.0]], rtol=1e-5)
    behind = observe(make, "lead_object", around=STRAIGHT | {"objects": [[object_row(-4.0, 0.0)]]}, speed=8.0)
    np.testing.assert_allclose(behind, [[30.0, 10.0 / 31.0, 0.0, 0.0]], rtol=1e-6)


def test_who_is_about_to_cross_is_met_and_who_stands_aside_is_not(make):
    """Feet point to the route from 3.5 m to its left: the strip ends at 0.8 + 0.3 + 2 m (half of its length)."""
    for speed, met in ((0.0, False), (0.2, False), (1.0, True), (-1.0, False)):
        there = [object_row(15.0, 3.5, -math.pi / 2, speed)]
        found = observe(make, "lead_object", around=STRAIGHT | {"objects": [there]}, speed=10.0)
        assert (found[0, 0] < 30.0) == met, speed
    nose = DRIVE.center_x_in_base_m + 0.5 * DRIVE.length_m
    crossing = observe(
        make, "lead_object", around=STRAIGHT | {"objects": [[object_row(15, 1, math.pi / 2, 1)]]}, speed=10
    )
    gap = 14.0 - nose
    np.testing.assert_allclose(crossing, [[gap, 10.0 / (1.0 + gap), 10.0, 100.0 / (2.0 * gap)]], rtol=1e-5)
    touching = observe(make, "lead_object", around=STRAIGHT | {"objects": [[object_row(4.0, 0.0)]]}, speed=10.0)
    np.testing.assert_allclose(touching, [[0.0, 10.0, 10.0, 10.0]])


def test_the_first_object_round_a_bend_is_on_the_route(make):
    """A circle of 20 m: who stands on it a radian ahead is met after its length, who stands straight ahead is not."""
    nose = DRIVE.center_x_in_base_m + 0.5 * DRIVE.length_m
    there = [object_row(20.0 * math.sin(1.0), 20.0 - 20.0 * math.cos(1.0), 1.0, 0.0), object_row(14.0, 0.0)]
    found = observe(make, "lead_object", around=LEFT_CURVE | {"objects": [there]}, speed=2.0)
    np.testing.assert_allclose(found[0, 0], 18.0 - nose, atol=0.15)


def test_what_stands_in_a_free_slot_does_not_count(make):
    junk = np.full(7, np.nan)
    junk[6] = 0.0
    found = observe(make, "objects", around={"objects": [[junk, object_row(12, 0)]]})
    assert np.isfinite(found).all()
    assert found[0, 0] == 12.0
    alone = observe(make, "lead_object", around=STRAIGHT | {"objects": [[junk, junk]]}, speed=8.0)
    np.testing.assert_allclose(alone, [[30.0, 10.0 / 31.0, 0.0, 0.0]], rtol=1e-6)


def test_a_stop_line_is_seen_up_to_its_range(make):
    for distance, state, seen in ((12.0, 1.0, 12.0), (1e9, 0.0, 50.0)):
        found = observe(make, "stop_line", around={"stop_line": [[distance, state]]})
        np.testing.assert_array_equal(found, [[seen, state]])


def test_a_goal_behind_the_car_is_seen_behind_it(make):
    found = observe(make, "goal_pose", around={"goal_pose": [[0.0, 5.0, math.pi]]}, pose=(0.0, 8.0, math.pi / 2))
    np.testing.assert_allclose(found, [[-3.0, 0.0, 1.0, 0.0]], atol=1e-6)


def test_a_car_is_seen_from_its_goal(make):
    """The goal looks north; the car stands 3 m south of it and 1 m to its right, turned a little left."""
    there = {"around": {"goal_pose": [[2.0, 5.0, math.pi / 2]]}, "pose": (3.0, 2.0, math.pi / 2 + 0.1)}
    np.testing.assert_allclose(observe(make, "pose_in_goal", **there), [[-3.0, -1.0, 0.1]], atol=1e-6)
    round_ = {"around": {"goal_pose": [[0.0, 0.0, -3.0]]}, "pose": (0.0, 0.0, 3.0)}
    np.testing.assert_allclose(observe(make, "pose_in_goal", **round_), [[0.0, 0.0, 6.0 - 2.0 * math.pi]], atol=1e-5)


def test_own_motion(make):
    turning = np.array([[0.0, 0.0, 0.3]])
    assert observe(make, "speed", speed=-1.5)[0, 0] == -1.5
    assert observe(make, "yaw_rate", ang_vel_base_in_base_rad_s=turning)[0, 0] == np.float32(0.3)
    assert observe(make, "steering_angle", joint_pos_rad=[[0.25, 99.0]])[0, 0] == 0.25


def test_a_scan_is_pooled_to_its_nearest_returns_and_to_shares(make):
    layout = LidarLayout(3, -1.5, 1.5, 10.0)
    contract = replace(CONTRACT, body=replace(DRIVE, lidar=layout))
    scan = [[10.0, 4.0, 9.0, 9.0, 12.0, 10.0]]
    np.testing.assert_allclose(observe(make, "lidar", contract, around={"scan_ranges_m": scan}), [[0.4, 0.9, 1.0]])
    with pytest.raises(ContractError, match="5 beams, expected 3 or a whole multiple"):
        observe(make, "lidar", contract, around={"scan_ranges_m": [[1.0] * 5]})


def test_a_scanner_of_another_layout_is_pooled_by_angle(make):
    """Nine beams from -2 to 2 rad, half a radian apart, to three of 1 rad each from -1.5 to 1.5."""
    pool = ScanPooling(LidarLayout(3, -1.5, 1.5, 10.0), 9, -2.0, 0.5, make([0.0]))
    #                    -2   -1.5 -1   -0.5 0    0.5  1    1.5  2
    ranges = make([[0.1, 7.0, 5.0, 6.0, 3.0, 8.0, 9.0, 4.0, 0.2]])
    np.testing.assert_allclose(np.asarray(pool(ranges)), [[5.0, 3.0, 4.0]])
    odd = make([[0.1, np.inf, np.inf, np.nan, -np.inf, np.nan, np.nan, np.nan, 0.2]])
    np.testing.assert_array_equal(np.asarray(pool(odd)), [[10.0, 0.0, np.nan]])


def test_the_small_cars_scanner_pools_as_in_training():
    """1080 beams of 4.7 rad to 108: the same groups of ten, whether by index or by angle, and clockwise as well."""
    layout = LidarLayout(108, -2.35, 2.35, 30.0)
    ranges = np.random.default_rng(0).uniform(0.5, 30.0, (2, 1080))
    groups = ranges.reshape(2, 108, 10).min(axis=-1)
    step = 4.7 / 1079
    np.testing.assert_array_equal(ScanPooling(layout, 1080, -2.35, step, ranges)(ranges), groups)
    np.testing.assert_array_equal(ScanPooling(layout, 1080, 2.35, -step, ranges)(ranges[:, ::-1]), groups)
    # A coarser one has no beam in the second share of half a radian; the one that is next to its middle stands in.
    coarse = ScanPooling(LidarLayout(4, -1.0, 1.0, 30.0), 3, -1.0, 1.0, ranges)
    np.testing.assert_array_equal(coarse(np.array([[3.0, 5.0, 7.0]])), [[3.0, 5.0, 5.0, 7.0]])
    with pytest.raises(ContractError, match=r"covers -1.571 to 1.571 rad, the contract's scan -2.350 to 2.350"):
        ScanPooling(layout, 181, -math.pi / 2, math.pi / 180, ranges)


@pytest.mark.parametrize("first_rad", [0.0, 3.0, -3.1, 6.2, -6.2])
@pytest.mark.parametrize("clockwise", [False, True])
def test_a_scanner_of_a_whole_turn_is_read_wherever_it_begins(first_rad, clockwise):
    """Each beam reads 1 m and its angle's place between -pi and pi, which tells what belongs where."""
    layout = LidarLayout(90, -2.0, 2.0, 30.0)
    step = (-1.0 if clockwise else 1.0) * 2.0 * math.pi / 720
    angles = first_rad + step * np.arange(720)
    ranges = 10.0 + np.arctan2(np.sin(angles), np.cos(angles))
    found = ScanPooling(layout, 720, first_rad, step, ranges)(ranges[None])[0]
    lower = 10.0 - 2.0 + 4.0 / 90 * np.arange(90)
    assert ((found >= lower - 1e-9) & (found < lower + 2.0 * math.pi / 720)).all()


@pytest.mark.parametrize(
    ("beams", "first", "step"),
    [(271, -135.0, 1.0), (360, 0.0, 1.0), (1081, -135.0, 0.25), (9, 1000.0, 0.5), (3, math.inf, 0.5)],
)
def test_angles_that_are_no_radians_are_refused(beams, first, step):
    with pytest.raises(ContractError, match="Are they degrees"):
        ScanPooling(LidarLayout(3, -1.5, 1.5, 10.0), beams, first, step, np.zeros(1))


def test_a_scanner_that_looks_backward_is_refused_with_what_it_leaves_out():
    layout = LidarLayout(108, -2.35, 2.35, 30.0)
    with pytest.raises(ContractError, match=r"covers 0\.000 to 4\.000 rad, .* -2\.2\d\d to 0\.000 rad are left out"):
        ScanPooling(layout, 401, 0.0, 0.01, np.zeros(1))


def test_a_scan_of_a_million_ranges_is_pooled_without_a_table_of_all_pairs():
    ranges = np.full((1, 1_000_000), 5.0)
    found = ScanPooling(LidarLayout(108, -2.35, 2.35, 30.0), 1_000_000, -2.35, 4.7e-6, ranges)(ranges)
    np.testing.assert_array_equal(found, np.full((1, 108), 5.0))


def test_small_holes_take_the_nearer_edge_and_large_ones_stay():
    nan, layout = np.nan, LidarLayout(8, -1.6, 1.6, 10.0)  # 0.4 rad each
    scan = np.array([nan, 4.0, nan, 3.0, nan, nan, 5.0, nan])
    found, widest = bridged(layout, scan, 0.5)
    np.testing.assert_array_equal(found, [4.0, 4.0, 3.0, 3.0, nan, nan, 5.0, 5.0])
    assert widest == pytest.approx(0.8)
    np.testing.assert_array_equal(bridged(layout, scan, 0.8)[0], [4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 5.0, 5.0])
    np.testing.assert_array_equal(bridged(layout, scan, 0.0)[0], scan)
    ring = LidarLayout(4, -math.pi, math.pi, 10.0)  # 1.6 rad each: the last is beside the first
    np.testing.assert_array_equal(bridged(ring, np.array([nan, 4.0, 3.0, nan]), 3.2)[0], [3.0, 4.0, 3.0, 3.0])
    np.testing.assert_array_equal(bridged(ring, np.array([nan, 4.0, 3.0, nan]), 1.6)[0], [nan, 4.0, 3.0, nan])
    blind = np.full(8, nan)
    np.testing.assert_array_equal(bridged(layout, blind, 9.0)[0], blind)


def random_world(rng, rows):
    start = rng.uniform(-200, 200, (rows, 1, 2))
    bend = np.cumsum(rng.normal(0.0, 0.1, (rows, 60)), axis=1) + rng.uniform(-4, 4, (rows, 1))
    steps = np.stack((np.cos(bend), np.sin(bend)), axis=-1)
    points = start + np.cumsum(steps, axis=1)
    pose = np.concatenate((points[:, 20] + rng.normal(0, 0.7, (rows, 2)), rng.uniform(-9, 9, (rows, 1))), axis=1)
    seen = np.concatenate((rng.uniform(-9, 9, (rows, 5, 4)), rng.uniform(1, 5, (rows, 5, 2))), axis=-1)
    seen[..., :2] += pose[:, None, :2]
    taken = (rng.uniform(size=(rows, 5, 1)) < 0.7).astype(float)
    around = {
        "route_points_in_world_m": points,
        **{
            n: 5.0 + np.sin(np.arange(60) / 9.0 + rng.uniform(0, 6, (rows, 1)))
            for n in ("route_speed_limit_m_s", "route_left_m", "route_right_m")
        },
        "objects": np.concatenate((seen, taken), axis=-1),
        "scan_ranges_m": rng.uniform(0, 12, (rows, 36)),
        "stop_line": np.stack((rng.uniform(-5, 99, rows), rng.choice([0.0, 0.5, 1.0], rows)), axis=-1),
        "goal_pose": pose + rng.normal(0, 3, (rows, 3)),
    }
    return pose, around


def test_a_row_of_a_torch_batch_is_what_the_robot_sees_alone():
    """Every term; the robot has moved the origin to itself in double precision before."""
    terms = tuple(make_term(name, SIZES[name]) for name in DRIVING_TERMS)
    assert set(DRIVING_TERMS) <= set(TERMS)
    contract = replace(CONTRACT, observations=terms)
    rng = np.random.default_rng(3)
    pose, around = random_world(rng, 64)
    # What both sides are told is the same in single precision.
    pose, around = pose.astype(np.float32), {name: values.astype(np.float32) for name, values in around.items()}
    motion = {"ang_vel_base_in_base_rad_s": rng.normal(size=(64, 3)), "joint_pos_rad": rng.normal(size=(64, 2))}
    torches, arrays = MAKE["torch"], MAKE["numpy"]
    batch = ObservationBuilder(contract, torches(np.zeros((64, 1))))(
        signals(torches, 64, speed=4.0, pose=pose, around=around, **motion)
    ).numpy()
    alone = ObservationBuilder(contract, np.zeros((1, 1), np.float32))
    for row in range(64):
        one = {name: values[row : row + 1] for name, values in {**around, **motion}.items()}
        there, moving = {name: one[name] for name in around}, {name: one[name] for name in motion}
        same = signals(arrays, speed=4.0, pose=pose[row : row + 1], around=there, **moving)
        np.testing.assert_allclose(alone(same)[0], batch[row], rtol=1e-6, atol=1e-6)
        moved = signals(arrays, speed=4.0, pose=(0.0, 0.0, pose[row, 2]), **moving)
        moved.surroundings = surroundings_row(Surroundings(**there), pose[row, :2].astype(float))
        # Places up to 60 m away are told in single precision, which has steps of 4e-6 m there.
        np.testing.assert_allclose(alone(moved)[0], batch[row], rtol=1e-6, atol=5e-6)


def test_projection_equals_a_search_over_finely_sampled_points():
    pose, around = random_world(np.random.default_rng(4), 16)
    view = locate(around["route_points_in_world_m"], pose)
    for row, points in enumerate(around["route_points_in_world_m"]):
        fine = np.concatenate([np.linspace(a, b, 2001) for a, b in pairwise(points)])
        distance = np.hypot(*(fine - pose[row, :2]).T).min()
        # Inside of a bend the nearest point may be a corner, from which the distance is not square to the road.
        assert abs(view.lateral_m[row]) <= distance + 1e-6
        assert distance == pytest.approx(np.hypot(*view.points_in_car(np.zeros((1, 1)))[row, 0]), abs=1e-5)


def drive(make, decoder, action, speed_m_s):
    """Targets of cars whose odometry has counted 7 m."""
    rows = len(action)
    fields = {"joint_pos_rad": [[0.0, 7.0]] * rows, "lin_vel_base_in_base_m_s": [[v, 0.0, 0.0] for v in speed_m_s]}
    return decoder(make(action), signals(make, rows, **fields))


def test_steering_and_acceleration_are_shares_of_the_limits(make):
    decoder = DriveDecoder(CONTRACT, make([0.0]), BMW)
    told = drive(make, decoder, [[0.5, 0.5], [-1.0, -0.2], [3.0, 9.0], [0.0, -1.0]], [4.0, 4.0, 50.5, 0.3])
    np.testing.assert_allclose(told.pos_rad, [[0.533, 7.0], [-1.066, 7.0], [1.066, 7.0], [0.0, 7.0]], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(told.acc_rad_s2)[:, 1], [5.75, -2.3, 11.5, -11.5], rtol=1e-6)
    # By hand at 10 Hz: 4 + 0.575, 4 - 0.23; the last two are beyond 50.8 and below 0.
    np.testing.assert_allclose(told.vel_rad_s, [[0, 4.575], [0, 3.77], [0, 50.8], [0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(decoder.clip(make([[3.0, -9.0]]))), [[1.0, -1.0]])


def test_only_a_contract_that_allows_it_reverses_and_no_faster_than_the_car(make):
    backwards = replace(CONTRACT, body=replace(DRIVE, allow_reverse=True, reverse_limit_m_s=3.0))
    slow = replace(BMW, body=replace(BMW.body, reverse_limit_m_s=2.0))
    for contract, car, slowest in ((CONTRACT, None, 0.0), (backwards, None, -3.0), (backwards, slow, -2.0)):
        decoder = DriveDecoder(contract, make([0.0]), car)
        assert np.asarray(drive(make, decoder, [[0.0, -1.0]], [-2.9]).vel_rad_s)[0, 1] == pytest.approx(slowest)


def test_of_two_limits_the_smaller_one_counts(make):
    limits = {"steering_limit_rad": 0.3, "accel_limit_m_s2": 2.0, "brake_limit_m_s2": 3.0, "speed_limit_m_s": 5.0}
    decoder = DriveDecoder(CONTRACT, make([0.0]), replace(BMW, body=replace(BMW.body, **limits)))
    told = drive(make, decoder, [[0.2, 1.0], [1.0, -1.0], [0.0, 1.0]], [1.0, 4.0, 4.9])
    # A share of the contract's limit first, so that small actions mean what they meant in training.
    np.testing.assert_allclose(np.asarray(told.pos_rad)[:, 0], [0.2132, 0.3, 0.0], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(told.acc_rad_s2)[:, 1], [2.0, -3.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(told.vel_rad_s)[:, 1], [1.2, 3.7, 5.0], rtol=1e-6)


def test_the_contract_of_a_car_survives_json():
    assert PolicyContract.from_json(CONTRACT.to_json()) == CONTRACT
    text = CONTRACT.to_json().replace('"wheelbase_m"', '"wheel_base_m"')
    with pytest.raises(ContractError, match="Did you mean 'wheelbase_m'"):
        PolicyContract.from_json(text)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"action": ActionSpec("target/joint/position", (1.0, 1.0), (0.0, 0.0), 1.0)}, "target/body/acceleration"),
        ({"action": replace(CONTRACT.action, scale=(2.0, 1.0))}, r"scale is \(2.0, 1.0\), expected \(1.0, 1.0\)"),
        ({"body": lambda: replace(DRIVE, steering_limit_rad=1.2)}, "steering_limit_rad is 1.2, expected at most"),
        ({"body": lambda: replace(DRIVE, brake_limit_m_s2=float("nan"))}, "brake_limit_m_s2 is nan"),
        ({"body": lambda: replace(DRIVE, lookahead_m=(5.0, 5.0))}, "ascending"),
        ({"body": lambda: replace(DRIVE, lidar=LidarLayout(4, 1.0, -1.0, 9.0))}, "from right to left"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(changes, text):
    with pytest.raises(ContractError, match=text):
        replace(CONTRACT, **{name: value() if callable(value) else value for name, value in changes.items()})


def test_a_contract_fits_its_car_alone_and_says_both_sides():
    CONTRACT.check_robot(BMW)
    longer = replace(BMW, body=replace(BMW.body, length_m=5.0))
    with pytest.raises(ContractError, match=r"has length_m 4\.508, robot 'bmw_320i' has 5"):
        CONTRACT.check_robot(longer)
    go2 = robot_spec("go2")
    with pytest.raises(ContractError, match=r"'bmw_320i' is of embodiment 'car', robot 'go2' is of 'legs'"):
        CONTRACT.check_robot(go2)
    action = ActionSpec("target/joint/position", (1.0,) * 2, (0.0,) * 2, 1.0)
    blind = replace(CONTRACT, embodiment="legs", body=None, observations=(), action=action)
    with pytest.raises(GantryError, match=r"is of embodiment 'legs', robot 'bmw_320i' is of 'car'"):
        blind.check_robot(BMW)
    with pytest.raises(ContractError, match="body is a NoneType, expected a DriveSpec for a car"):
        replace(CONTRACT, body=None)


def test_terms_say_what_is_missing():
    for name in ("route_points", "objects", "goal_pose", "stop_line", "lidar"):
        with pytest.raises(ContractError, match=f"'{name}' needs"):
            observe(MAKE["numpy"], name)
