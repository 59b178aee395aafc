"""Cars in foreign simulators, without one: routes from lanes, pedals, the backend, and how rides are scored."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.cli.command import UsageError, jsonable
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.drive_metrics import drive_scores
from gantry_deploy.perception.road import Route
from gantry_fixtures.drive import curved_route, drive_bundle, drive_contract_for
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.external_sims.car import HeldOutCar, Motion, accel_between, motion_at_rear_axle
from gantry_sim.driving.external_sims.command import METADRIVE
from gantry_sim.driving.external_sims.comparison import Found, HeldOutCfg, condition_scores, result_of, table_lines
from gantry_sim.driving.external_sims.lanes import Lane, Stretch, choose_lanes, curvature, route_along, way_along
from gantry_sim.driving.external_sims.metadrive import ending_of, pedal_gains
from gantry_sim.driving.external_sims.meter import Reversals, Ride, RideMeter, episodes_of
from gantry_sim.driving.external_sims.riding import Scene, refuse_other_senses, ride
from gantry_sim.driving.external_sims.servo import PedalGains, SpeedServo

BMW = robot_spec("bmw_320i")
DT_S = 0.1


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Small tensors."""


def straight(x0, x1, y, width=3.5):
    xs = np.linspace(x0, x1, max(2, round(abs(x1 - x0)) + 1))
    return Lane(np.stack((xs, np.full_like(xs, y)), axis=-1), width)


def road(x0, x1, *ys):
    return [straight(x0, x1, y) for y in ys]


def test_a_lane_that_goes_on_is_kept():
    roads = [road(0, 50, 7.0, 3.5, 0.0), road(50, 90, 7.0, 3.5, 0.0)]
    assert choose_lanes(roads, 1) == [Stretch(1, 1), Stretch(1, 1)]


def test_a_lane_that_ends_is_left_on_the_longest_road_before():
    """The left lane does not go on in the third road; the change to the middle one has room on the second alone."""
    roads = [road(0, 20, 7.0, 3.5, 0.0), road(20, 120, 7.0, 3.5, 0.0), road(120, 160, 3.5, 0.0)]
    assert choose_lanes(roads, 0) == [Stretch(0, 0), Stretch(0, 1), Stretch(0, 0)]


def test_two_changes_may_be_needed():
    roads = [road(0, 100, 7.0, 3.5, 0.0), road(100, 160, 0.0)]
    assert choose_lanes(roads, 0) == [Stretch(0, 2), Stretch(0, 0)]


def test_roads_that_do_not_meet_are_refused():
    with pytest.raises(GantryError, match="No lane of road 0 goes on in road 1"):
        choose_lanes([road(0, 50, 0.0), road(60, 90, 0.0)], 0)
    with pytest.raises(GantryError, match="stand on lane 1"):
        choose_lanes([road(0, 50, 0.0)], 1)


def test_a_way_steps_over_to_the_next_lane():
    """On a road of 100 m the change takes the 40 m in the middle; half way it is between the lanes."""
    roads = [road(0, 100, 3.5, 0.0), road(100, 130, 0.0)]
    points, width = way_along(roads, [Stretch(0, 1), Stretch(0, 0)])
    np.testing.assert_allclose(np.hypot(*np.diff(points, axis=0).T), 1.0, atol=0.01)
    np.testing.assert_allclose(points[0], (0.0, 3.5), atol=1e-9)
    np.testing.assert_allclose(points[-1], (130.0, 0.0), atol=1e-9)
    y = np.interp([29.0, 50.0, 71.0], *points.T)
    np.testing.assert_allclose(y, (3.5, 1.75, 0.0), atol=1e-3)
    np.testing.assert_array_equal(width, 3.5)


def test_bends_lower_the_limit():
    """A quarter of a circle of 20 m to the left: curvature 1/20, so that 2.5 m/s^2 are reached at sqrt(50) m/s."""
    angle = np.linspace(0.0, math.pi / 2, 33)
    points = 20.0 * np.stack((np.sin(angle), 1.0 - np.cos(angle)), axis=-1)
    inside = slice(6, -6)
    np.testing.assert_allclose(curvature(points)[inside], 0.05, rtol=5e-3)
    np.testing.assert_allclose(curvature(points[::-1])[inside], -0.05, rtol=5e-3)
    width = np.full(len(points), 3.0)
    route = route_along(points, width, 10.0)
    np.testing.assert_allclose(route.speed_limit_m_s[inside], math.sqrt(50.0), rtol=5e-3)
    assert route.speed_limit_m_s[0] == 10.0
    assert (route.left_m == 1.5).all()
    np.testing.assert_array_equal(route_along(points, width, 5.0).speed_limit_m_s, 5.0)


def accelerations(servo, gains, asked, steps):
    """What a car does whose pedals work with these gains, asked for an acceleration from wherever it is."""
    speed, found = 8.0, []
    for _ in range(steps):
        pedal = servo(speed + asked * DT_S, speed)
        felt = pedal * (gains.drive_m_s2 if pedal >= 0.0 else gains.brake_m_s2)
        found.append(felt)
        speed += felt * DT_S
    return np.array(found)


def test_the_servo_of_a_car_as_told_is_exact():
    gains = PedalGains(3.0, 20.0)
    for asked in (1.5, -4.0):
        np.testing.assert_allclose(accelerations(SpeedServo(gains, DT_S), gains, asked, 5), asked)


@pytest.mark.parametrize(("real", "asked"), [(PedalGains(2.8, 14.6), -2.0), (PedalGains(2.8, 32.0), -2.0)])
def test_the_servo_makes_up_for_other_brakes(real, asked):
    """The weakest and the strongest brakes that MetaDrive draws, a third off at first."""
    found = accelerations(SpeedServo(pedal_gains(1100.0), DT_S), real, asked, 30)
    assert abs(found[0] - asked) > 0.3 * abs(asked)
    np.testing.assert_allclose(found[-5:], asked, rtol=0.02)


def test_a_pedal_at_its_end_winds_nothing_up():
    gains = PedalGains(3.0, 20.0)
    servo = SpeedServo(gains, DT_S)
    for _ in range(50):
        assert servo(20.0, 5.0) == 1.0
    assert servo(5.0, 5.0) == pytest.approx(0.0)
    assert servo(0.0, 0.05) == 0.0


def test_the_rear_axle_of_a_car_that_turns_about_it_stands():
    """Facing y, a point 1.5 m ahead moves to the left, which is minus x, at 0.6 rad/s times 1.5 m."""
    found = motion_at_rear_axle(10.0, 21.5, math.pi / 2, (-0.9, 0.0), 0.6, 1.5)
    assert (found.x_m, found.y_m) == pytest.approx((10.0, 20.0))
    assert (found.forward_m_s, found.left_m_s) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_orientation_and_acceleration():
    turned = Motion(0.0, 0.0, math.pi / 2, 0.0, 0.0, 0.0)
    np.testing.assert_allclose(turned.quat_base_to_world_wxyz, (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)))
    nose_down = Motion(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, pitch_rad=0.2)
    np.testing.assert_allclose(nose_down.quat_base_to_world_wxyz, (math.cos(0.1), 0.0, math.sin(0.1), 0.0))
    circling = [Motion(0.0, 0.0, 0.05 * i, 10.0, 0.0, 0.5) for i in range(2)]
    np.testing.assert_allclose(accel_between(*circling, DT_S), (0.0, 5.0))


class Bicycle(HeldOutCar):
    """A kinematic car that reaches every speed at once, and may be stuck."""

    def __init__(self, spec, stuck=False):
        super().__init__(spec, DT_S)
        self.now, self.stuck = Motion(1.0, 0.0, 0.0, 0.0, 0.0, 0.0), stuck

    def motion(self):
        return self.now

    def advance(self, steering_rad, speed_m_s):
        if not self.stuck:
            now, ahead = self.now, speed_m_s * self.dt_s
            rate = speed_m_s * math.tan(steering_rad) / self.car.wheelbase_m
            yaw = now.yaw_rad + 0.5 * rate * self.dt_s
            place = now.x_m + ahead * math.cos(yaw), now.y_m + ahead * math.sin(yaw)
            self.now = Motion(*place, yaw + 0.5 * rate * self.dt_s, speed_m_s, 0.0, rate)


def test_the_backend_keeps_its_promises():
    check_backend(Bicycle(BMW), rate_hz=10.0, max_age_s=0.01)


def test_wheels_turn_no_faster_than_the_car_steers():
    car = Bicycle(BMW)
    car.connect()
    told = replace(drive_command(car), pos_rad=np.array([0.2, 0.0]))
    car.write(told)
    seen = []
    for _ in range(7):
        car.sleep_until(car.now_s() + DT_S)
        seen.append(car.read().joint_pos_rad[0])
    np.testing.assert_allclose(seen, (0.04, 0.08, 0.12, 0.16, 0.2, 0.2, 0.2))
    assert car.read().joint_vel_rad_s[0] == 0.0


def drive_command(car):
    from gantry_hardware.backends.state import JointCommand

    return JointCommand.position(car.spec, np.zeros(2))


def blind(**changes):
    """The contract of the pursuit that sees its route and objects, and no scan."""
    contract = drive_contract_for(BMW, **changes)
    seen = tuple(term for term in contract.observations if term.name != "lidar")
    return replace(contract, observations=seen, body=replace(contract.body, lidar=None))


def scene(car, route, finish_m, outcome=lambda: (None, {})):
    return Scene(car, route, finish_m, lambda: np.zeros((0, 7)), outcome)


@pytest.fixture(scope="module")
def pursuit(tmp_path_factory):
    return drive_bundle(tmp_path_factory.mktemp("pursuit") / "bundle", blind())


def test_a_ride_to_the_end(pursuit):
    route = curved_route(25.0, 8.0)
    done = ride(pursuit, scene(Bicycle(BMW), route, 80.0))
    assert (done.end, done.completion, done.strict_completion) == ("finished", 1.0, 1.0)
    assert done.driven_m == pytest.approx(80.0 - 11.0)  # The route begins 10 m behind the origin.
    assert done.lateral_rmse_m < 0.4
    assert done.off_route_share == 0.0


def test_a_car_that_is_stuck_is_blocked(pursuit):
    done = ride(pursuit, scene(Bicycle(BMW, stuck=True), curved_route(25.0, 8.0), 80.0))
    assert (done.end, done.completion) == ("blocked", 0.0)
    assert done.infractions["blocked"] == 1
    assert done.duration_s == pytest.approx(15.0)


def test_a_crash_costs_what_the_leaderboard_takes(pursuit):
    car, route = Bicycle(BMW), curved_route(25.0, 8.0)
    finish_m = 51.0  # 40 m from the start.
    done = ride(
        pursuit,
        scene(car, route, finish_m, lambda: ("crashed", {"vehicle": 1}) if car.now.x_m >= 21.0 else (None, {})),
    )
    assert done.end == "crashed"
    assert done.completion == pytest.approx(0.5, abs=0.02)
    scores = drive_scores(episodes_of([done]))
    assert scores.driving_score.mean == pytest.approx(100.0 * done.completion * 0.6)
    assert scores.collided.mean == 1.0


def test_a_policy_that_sees_more_is_refused():
    with pytest.raises(ContractError, match="sees scan; MetaDrive tells route, objects, stop_line"):
        refuse_other_senses(drive_contract_for(BMW), "MetaDrive")
    refuse_other_senses(blind(), "MetaDrive")


def test_a_bundle_of_another_car_is_refused(pursuit):
    with pytest.raises(ContractError, match="f1tenth"):
        ride(pursuit, scene(Bicycle(robot_spec("f1tenth")), curved_route(25.0, 8.0), 80.0))


def test_a_meter_reads_a_straight_ride():
    """At 5 m/s, then 0.5 m to the left: half of the car is 0.805 m wide, 1.305 m are more than the lane's 1.25 m."""
    xs = np.arange(0.0, 121.0)
    ones = np.ones_like(xs)
    route = Route(np.stack((xs, np.zeros_like(xs)), axis=-1), 8.0 * ones, 1.25 * ones, 1.75 * ones)
    car = Bicycle(BMW)
    car.connect()

    def at(x, y):
        car.now = Motion(x, y, 0.0, 5.0, 0.0, 0.0)
        return car.read()

    meter = RideMeter(route, BMW.body, at(10.0, 0.0), 110.0, DT_S)
    for step in range(1, 101):
        meter(at(10.0 + 0.5 * step, 0.5 if step > 50 else 0.0), strict=step >= 80)
    done = meter.ride("late", {})
    assert done.completion == pytest.approx(0.5)
    assert done.strict_completion == pytest.approx(0.4)
    assert done.off_route_share == 0.5
    assert done.lateral_rmse_m == pytest.approx(0.5 * math.sqrt(0.5))
    assert (done.duration_s, done.discomfort_share) == (pytest.approx(10.0), 0.0)
    assert not meter.arrived


def test_turning_back_is_counted_beyond_a_threshold():
    counter = Reversals(0.02)
    for value in (0.0, 0.01, 0.05, 0.04, 0.1, 0.05, 0.06, 0.045, 0.1, 0.1):
        counter(value)
    assert counter.count == 2  # Down from 0.1, and up again from 0.045.


def test_what_metadrive_says_as_an_end():
    names = ("crash_vehicle", "crash_object", "crash_building", "crash_human", "crash_sidewalk")
    nothing = dict.fromkeys((*names, "out_of_road", "arrive_dest"), False)
    assert ending_of({}) == ending_of(nothing) == (None, {})
    assert ending_of(nothing | {"arrive_dest": True}) == ("finished", {})
    assert ending_of(nothing | {"out_of_road": True}) == ("off_road", {})
    assert ending_of(nothing | {"crash_sidewalk": True}) == ("off_road", {})
    assert ending_of(nothing | {"crash_vehicle": True, "out_of_road": True}) == ("crashed", {"vehicle": 1})
    assert ending_of(nothing | {"crash_human": True, "crash_object": True}) == (
        "crashed",
        {"pedestrian": 1, "static": 1},
    )


def driven(end, completion, **infractions):
    nothing = {"pedestrian": 0, "vehicle": 0, "static": 0, "blocked": 0}
    return Ride(end, completion, 300.0 * completion, 40.0, nothing | infractions, 0.0, 0.25, 0.1, 1.5, completion / 2)


def test_conditions_stand_beside_our_own_simulator(pursuit):
    """By hand: (100 + 50 x 0.6) / 2 = 65 points in traffic, 95 - 65 = 30 lost."""
    found = [
        Found(0.0, "bundle", [driven("finished", 1.0), driven("off_road", 0.4)]),
        Found(0.1, "bundle", [driven("finished", 1.0), driven("crashed", 0.5, vehicle=1)]),
        Found(0.1, "metadrive"),
    ]
    own = condition_scores(Found(0.0, "bundle", [driven("finished", 1.0), driven("late", 0.9)])) | {
        "task": "drive-lane"
    }
    result = result_of(pursuit, HeldOutCfg(maps=2), found, own)
    alone, traffic = (item["scores"] for item in result["conditions"])
    assert (alone["driving_score"]["mean"], traffic["driving_score"]["mean"]) == pytest.approx((70.0, 65.0))
    assert (alone["ends"], traffic["ends"]) == ({"finished": 1, "off_road": 1}, {"finished": 1, "crashed": 1})
    assert (alone["off_road"]["mean"], alone["crashed"]["mean"], traffic["crashed"]["mean"]) == (0.5, 0.0, 0.5)
    assert traffic["strict_completion"]["mean"] == 37.5
    assert result["lost"] == pytest.approx({"0": 25.0, "0.1": 30.0})
    assert json.loads(json.dumps(jsonable(result)))["asked"]["maps"] == 2
    lines = table_lines(result)
    assert lines[0].split() == ["traffic", "0", "traffic", "0.1", "own:", "drive-lane"]
    score = next(line for line in lines if line.startswith("driving score"))
    assert [cell.split()[0] for cell in score.removeprefix("driving score").split("]")[:3]] == ["70.0", "65.0", "95.0"]
    assert any("carla-2.0" in line for line in lines)


def asked(*arguments):
    parser = argparse.ArgumentParser()
    METADRIVE.add_arguments(parser)
    return METADRIVE.run(parser.parse_args(list(arguments)))


def test_mistakes_are_answered_first():
    with pytest.raises(UsageError, match="--maps is 0"):
        asked("somewhere", "--maps", "0")
    with pytest.raises(UsageError, match="densities from 0 to 1"):
        asked("somewhere", "--traffic", "0,2")


@pytest.mark.skipif(importlib.util.find_spec("metadrive") is not None, reason="MetaDrive is installed")
def test_without_the_package_the_command_says_how_to_get_it():
    with pytest.raises(GantryError, match=r"pip install 'gantry-rl\[metadrive\]'"):
        asked("somewhere")
