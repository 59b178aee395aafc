"""One simulated car as a robot: it keeps a backend's promises, moves by the laws of motion, and tells the truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.observations.surroundings import NO_ROAD, ROAD, ROAD_SOLID
from gantry_deploy.perception.road import RoadView
from gantry_deploy.perception.simulated_road import RAYS_PER_BEAM, make_road_view, road_options
from gantry_deploy.policy.runner import PolicyRunner
from gantry_fixtures.drive import drive_bundle, drive_contract_for
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.scenes.registry import drive_contract
from gantry_sim.driving.sensors.lidar import cast_boxes, rays, scanner_of
from gantry_sim.tasks.registry import find_task

BMW = robot_spec("bmw_320i")
CONTRACT = drive_contract_for(BMW)


class Listener:
    """Keeps the newest of everything."""

    def __init__(self):
        self.told = {}

    def __getattr__(self, name):
        return lambda *values: self.told.update({name.removeprefix("set_"): values})


def road(**options):
    robot = make_backend("road", BMW, map_count=1, **options)
    robot.connect()
    return robot


def drive(robot, seconds, dt_s=0.1):
    """Speeds (n,) every ``dt_s``."""
    begin, speeds = robot.now_s(), []
    for i in range(1, round(seconds / dt_s) + 1):
        robot.sleep_until(begin + i * dt_s)
        speeds.append(robot.read().lin_vel_base_in_base_m_s[0])
    return np.array(speeds)


@pytest.mark.parametrize("options", [{}, {"traffic": True, "model": "single-track-grip", "noise": 1.0}])
def test_it_keeps_every_promise_of_a_backend(options):
    check_backend(make_backend("road", BMW, map_count=1, **options), hold_s=0.2)


def test_a_set_point_is_reached_at_a_constant_acceleration_in_the_response_time():
    robot = road(response_s=0.5)
    robot.obey(0.0, 2.0)
    np.testing.assert_allclose(drive(robot, 1.0), [0.4, 0.8, 1.2, 1.6, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0], atol=1e-3)


def test_a_given_acceleration_is_kept_within_the_limits():
    robot = road()
    robot.obey(0.0, 3.0, 1.0)
    np.testing.assert_allclose(drive(robot, 0.5), [0.1, 0.2, 0.3, 0.4, 0.5], atol=1e-3)
    robot.obey(0.0, 8.0, 1e3)
    assert np.diff(drive(robot, 0.5)).max() <= 0.1 * BMW.body.accel_limit_m_s2 + 1e-3
    robot.obey(0.0, 0.0, 1e3)
    speeds = drive(robot, 1.0)
    assert np.diff(speeds).min() >= -0.1 * BMW.body.brake_limit_m_s2 - 1e-3
    assert speeds[-1] == 0.0
    assert robot.outcome["hardest_braking_m_s2"] == pytest.approx(BMW.body.brake_limit_m_s2, rel=0.01)
    assert robot.outcome["stands"]


def test_braking_takes_the_distance_that_it_must():
    """v^2 / 2b from the speed at which it begins."""
    robot = road()
    robot.obey(0.0, 8.0)
    drive(robot, 2.0)
    before, speed = robot.read(), 8.0
    robot.obey(0.0, 0.0, 4.0)
    drive(robot, 3.0)
    way = np.linalg.norm(robot.read().pos_base_in_world_m - before.pos_base_in_world_m)
    # Within half a physics step at that speed.
    assert way == pytest.approx(speed**2 / 8.0, abs=0.01 * speed)


def test_it_tells_route_objects_and_scan_and_stamps_them():
    robot, listener = road(traffic=True, scan_beams=9, seed=3), Listener()
    robot.tell_road(listener)
    told = listener.told
    route, place = told["route"][0], robot.read().pos_base_in_world_m[:2]
    assert route.along_m[-1] == pytest.approx(300.0, abs=2.0)
    assert np.hypot(*(route.points_in_world_m - place).T).min() < 1.0
    assert (route.left_m > 1.0).all()
    objects, stamp_s, kinds = told["objects"]
    assert len(kinds) == len(objects) > 0
    assert objects.shape[1] == 7
    assert (objects[:, -1] == 1.0).all()
    assert stamp_s == robot.now_s()
    ranges, first, step, _ = told["scan"]
    assert ranges.shape == (9,)
    assert first + 4 * step == pytest.approx(0.0)
    robot.sleep_until(0.5)
    assert told["objects"][1] == pytest.approx(0.5)


def test_it_tells_a_road_map_and_kinds():
    """The map holds road where the route runs, and none far outside; kinds are those of the traffic."""
    robot, listener = road(traffic=True, seed=3, road_cell_m=0.5), Listener()
    robot.tell_road(listener)
    cells, corner, cell_m = listener.told["road"]
    assert cell_m == 0.5
    places = listener.told["route"][0].points_in_world_m
    column, row = np.floor((places - corner) / cell_m).astype(int).T
    assert (cells[row, column] != NO_ROAD).all()
    assert not cells[:4].any()
    assert not cells[:, :4].any()
    assert {ROAD, ROAD_SOLID} <= set(np.unique(cells))
    objects, _, kinds = listener.told["objects"]
    traffic = robot.scene.traffic
    np.testing.assert_array_equal(kinds, traffic.kinds[0][traffic.objects[0, :, 6] > 0.5].numpy())
    assert len(kinds) == len(objects) > 0
    with pytest.raises(GantryError, match="'road_cell_m' are not for it"):
        road(task="drive-park", road_cell_m=0.5)


def test_a_scan_sees_a_box_ahead_at_its_distance():
    """Against the distance to the near side of a car that stands straight ahead, made by hand."""
    robot, listener = road(traffic=True, scan_beams=1, scan_min_rad=-0.1, scan_max_rad=0.1, scan_x_m=1.0), Listener()
    pose = robot.cars.pose[0]
    ahead = 10.0
    traffic = robot.scene.traffic
    objects = traffic.objects.clone()
    objects[..., 6] = 0.0
    x, y, yaw = pose.tolist()
    objects[0, 0] = objects.new_tensor([x + ahead * math.cos(yaw), y + ahead * math.sin(yaw), yaw, 0.0, 4.0, 2.0, 1.0])
    around = robot.scene.surroundings()
    object.__setattr__(around, "objects", objects)
    ranges, _, _ = robot._scan(around)
    assert ranges[0] == pytest.approx(ahead - 2.0 - 1.0, abs=1e-3)
    assert listener.told == {}


def test_a_policy_drives_it_through_the_ordinary_runtime_and_the_log_is_true(tmp_path):
    runner = PolicyRunner(drive_bundle(tmp_path / "bundle", CONTRACT), BMW)
    robot = make_backend("road", BMW, map_count=1, route_m=60.0, **road_options(CONTRACT, CONTRACT.body))
    view = make_road_view(CONTRACT, robot)
    assert isinstance(view, RoadView)
    robot.connect()
    loop, reports = Controller(robot, runner, SafetyMachine(BMW), surroundings=view), []
    loop.tick()
    loop.request("stand")
    loop.run(2.3)
    loop.request("start")
    loop.run(4.0, on_tick=reports.append)
    assert {report.mode for report in reports} == {Mode.POLICY}
    outcome = robot.outcome
    speeds = np.array([report.state.lin_vel_base_in_base_m_s[0] for report in reports])
    assert outcome["top_speed_m_s"] >= speeds.max() - 1e-6
    assert outcome["driven_m"] == pytest.approx(0.1 * speeds.sum(), abs=0.05 * speeds.sum())
    # Seen a tick ago, to the nearest of points a metre apart.
    to_drive = float(robot.scene.to_drive_m[0])
    assert view.left_m == pytest.approx(to_drive - outcome["driven_m"] + 0.1 * speeds[-1], abs=1.0)
    assert outcome["completion"] == pytest.approx(outcome["driven_m"] / to_drive, abs=1e-3)
    assert outcome["events"] == {}
    robot.reset()
    assert robot.outcome["driven_m"] == 0.0


def test_who_leaves_the_road_is_found_out():
    robot = road()
    robot.obey(0.5, 6.0)
    drive(robot, 4.0)
    outcome = robot.outcome
    assert outcome["ended"] == "off_road"
    assert outcome["events"]["off_road"] >= 1
    assert not outcome["finished"]


def test_a_commanded_car_that_stands_is_blocked_after_the_time_of_its_task():
    """One that nobody commands waits; one that has moved in between has the whole time again."""
    robot = road()
    limit_s = robot.cfg.blocked_s
    drive(robot, limit_s + 1.0)
    assert robot.outcome["ended"] == ""
    robot.obey(0.0, 0.0)
    drive(robot, limit_s - 0.5)
    robot.obey(0.0, 2.0)
    drive(robot, 1.0)
    robot.obey(0.0, 0.0)
    stopped_s = robot.now_s()
    drive(robot, limit_s - 0.5)
    assert robot.outcome["ended"] == ""
    drive(robot, 2.0)
    assert robot.outcome["ended"] == "blocked"
    # It takes less than a second to stop.
    assert limit_s <= robot.outcome["ended_s"] - stopped_s <= limit_s + 1.0
    assert not robot.outcome["finished"]


def test_the_same_seed_begins_at_the_same_place():
    def places(seed):
        robot = road(seed=seed)
        robot.reset()
        return robot.read().pos_base_in_world_m

    np.testing.assert_array_equal(places(1), places(1))
    assert not np.array_equal(places(1), places(2))


def test_options_are_checked():
    with pytest.raises(UnknownNameError, match="kinematik"):
        road(model="kinematik")
    with pytest.raises(GantryError, match="has no CarSpec"):
        make_backend("road", robot_spec("go2"))
    with pytest.raises(GantryError, match=r"option 'response_s' is 0\.0"):
        road(response_s=0.0)


def test_a_car_that_parks_begins_in_the_aisle_as_where_scores_are_counted():
    robot = road(task="drive-park")
    aisle, apart = robot.scene.lots.start[0].numpy(), []
    for _ in range(12):
        robot.reset()
        x, y, yaw = robot.scene.cars.pose[0].tolist()
        ahead = robot.spec.body.center_x_in_base_m
        gap = np.array([x + ahead * math.cos(yaw), y + ahead * math.sin(yaw)]) - aisle[:2]
        apart.append(abs(math.cos(aisle[2]) * gap[1] - math.sin(aisle[2]) * gap[0]))
        turn = yaw - aisle[2]
        assert abs(math.sin(turn)) < 0.3, "along the aisle"
    assert max(apart) < 0.5 * aisle[4]


@pytest.mark.slow
def test_a_task_brings_its_own_roads_and_others():
    robot, listener = road(task="drive-traffic"), Listener()
    robot.tell_road(listener)
    assert robot.outcome["task"] == "drive-traffic"
    assert len(listener.told["objects"][0]) > 0
    with pytest.raises(UnknownNameError, match="Did you mean 'drive-lane'"):
        road(task="drive-lain")
    with pytest.raises(GantryError, match="drives no car"):
        road(task="velocity-flat-go2")


@pytest.mark.parametrize(("task", "name"), [("drive-lane", "bmw_320i"), ("drive-race", "f1tenth_vesc")])
def test_a_set_point_a_decision_ahead_is_the_acceleration_that_was_asked_for(task, name):
    """At 10 and at 20 decisions a second, and by the dynamics that the task is learned with."""
    robot = make_backend("road", robot_spec(name), task=task, map_count=1)
    robot.connect()
    dt_s, speeds = robot.cfg.dt_s, [0.0]
    for _ in range(4):
        robot.obey(0.0, speeds[-1] + 1.0 * dt_s)
        speeds += drive(robot, dt_s, dt_s).tolist()
    np.testing.assert_allclose(np.diff(speeds), dt_s, rtol=0.02)
    assert robot.outcome["model"] == find_task(task).preset("cpu").env.model


def test_a_policy_sees_the_scan_and_the_others_that_it_has_learned_with():
    """Rays and the stretch of route behind the car are those of training."""
    layout = LidarLayout(12, -1.5, 1.5, 40.0, 2.0)
    contract = drive_contract(replace(find_task("drive-traffic").preset("cpu").env, lidar=layout))
    robot = make_backend(
        "road", BMW, task="drive-traffic", map_count=2, seed=3, **road_options(contract, contract.body)
    )
    robot.connect()
    view = RoadView(contract)
    robot.tell_road(view)
    met = 0
    for _ in range(4):
        robot.reset()
        robot.obey(0.0, 8.0, 4.0)
        robot.sleep_until(robot.now_s() + 3.0)
        seen = view.newest(robot.read(), robot.now_s(), 1.0)
        origin, direction = rays(scanner_of(layout, RAYS_PER_BEAM), robot.cars.pose)
        others = robot.scene.traffic.objects
        reach = cast_boxes(origin, direction, others[..., [0, 1, 2, 4, 5]], others[..., 6] > 0.5)
        expected = reach.view(1, 12, RAYS_PER_BEAM).amin(-1).clamp(max=40.0).numpy()
        np.testing.assert_allclose(seen.scan_ranges_m, expected, atol=1e-3)
        met += int((expected < 40.0).sum())
        learned = robot.scene.surroundings().route_points_in_world_m[0].numpy()
        np.testing.assert_allclose(seen.route_points_in_world_m[0, : len(learned)], learned, atol=1e-3)
    assert met > 0
