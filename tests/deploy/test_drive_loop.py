"""A car in the control loop: it follows a curve, brakes within its limits whatever is lost, and starts from standstill.

The car is a kinematic bicycle in lock-step; everything between its odometry and its set-points is the runtime's.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.contract.policy_contract import ActionSpec
from gantry_deploy.control.car_idle_commands import CarIdleCommands
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.modes import Role, Transition
from gantry_deploy.control.safety import Mode, SafetyConfig, SafetyMachine
from gantry_deploy.control.ticks import Tick
from gantry_deploy.errors import ContractError, PolicyError, SafetyError, SurroundingsError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.perception.road import RoadView, Route
from gantry_deploy.policy.golden import TARGET_ARRAY
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder, read_recording
from gantry_deploy.testing.legs import linear_model, tiny_bundle
from gantry_fixtures.drive import MockCar, MockEyes, curved_route, drive_bundle, drive_contract_for
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.robots import robot_spec

BMW, SMALL = robot_spec("bmw_320i"), robot_spec("f1tenth")
CONTRACT = drive_contract_for(BMW)
OBS = CONTRACT.observation_size
BRAKE = BMW.body.brake_limit_m_s2
SPEED = 8.0


class Drive:
    """A loop around a car, whoever looks for it, and all that it reported."""

    def __init__(self, folder, spec=BMW, route=None, recorder=None, pose=(0.0, 0.0, 0.0), config=None, **model):
        self.contract = drive_contract_for(spec)
        runner = PolicyRunner(drive_bundle(folder / "bundle", self.contract, **model), spec)
        self.car = MockCar(spec, pose)
        self.car.connect()
        self.view = RoadView(self.contract)
        self.eyes = MockEyes(self.view, self.car)
        self.view.set_route(curved_route(25.0, SPEED) if route is None else route)
        self.loop = Controller(self.car, runner, SafetyMachine(spec, config), recorder, surroundings=self.view)

    def run(self, seconds):
        reports = []
        self.loop.run(seconds, command_input=self.eyes, on_tick=reports.append)
        return reports

    def start(self):
        self.eyes(0.0)
        self.loop.tick()
        self.loop.request("stand")
        self.run(2.3)
        self.loop.request("start")
        return self


@pytest.fixture
def moving(tmp_path):
    """The car four seconds under the pursuit, in the curve."""
    drive = Drive(tmp_path).start()
    drive.run(5.0)
    assert drive.loop.safety.mode is Mode.POLICY
    assert drive.car.speed_m_s > 6.0
    assert drive.car.steering_rad > 0.05
    return drive


def speeds(reports):
    return np.array([report.state.lin_vel_base_in_base_m_s[0] for report in reports])


def set_points(reports):
    return np.array([report.sent.vel_rad_s[1] for report in reports])


def assert_brakes(drive, reports, steering_rad):
    """Whether the car comes to rest at its brake limit and no later, its wheels where they were."""
    damped = [report for report in reports if report.mode is Mode.DAMP]
    begin = speeds(damped)[0]
    assert begin > 6.0
    asked = set_points(damped)
    assert (np.diff(asked) <= 1e-9).all()
    assert (asked <= speeds(damped) + 1e-9).all()
    assert np.diff(asked).min() >= -BRAKE * drive.contract.dt_s - 1e-6
    assert asked[0] >= begin - BRAKE * drive.contract.dt_s - 1e-6
    ticks = math.ceil(begin / BRAKE / drive.contract.dt_s)
    np.testing.assert_array_equal(asked[ticks:], 0.0)
    assert drive.car.speed_m_s == pytest.approx(0.0, abs=1e-9)
    held = np.array([report.sent.pos_rad[0] for report in damped])
    np.testing.assert_allclose(held, steering_rad, atol=1e-3)
    np.testing.assert_array_equal(
        [report.sent.stiffness_nm_rad for report in damped], [BMW.hold_stiffness_nm_rad] * len(damped)
    )


@pytest.mark.parametrize("spec", [BMW, SMALL])
def test_the_simulated_car_passes_the_conformance_kit(spec):
    check_backend(MockCar(spec), hold_s=0.2)


def test_a_car_follows_a_curve(tmp_path):
    """Pure pursuit on 20 m straight and half a circle of 25 m: less than 0.4 m from its middle, at the speed limit."""
    drive = Drive(tmp_path, pose=(0.0, 0.5, 0.0)).start()
    reports = drive.run(10.0)
    assert {report.mode for report in reports} == {Mode.POLICY}
    places = np.array([report.state.pos_base_in_world_m[:2] for report in reports])
    radius = np.hypot(places[:, 0] - 20.0, places[:, 1] - 25.0)[places[:, 0] > 22.0]
    assert len(radius) > 30
    np.testing.assert_allclose(radius, 25.0, atol=0.4)
    assert abs(speeds(reports)[-1] - SPEED) < 0.3
    assert (np.array([report.step.action for report in reports])[:, 0] > 0.0).any()


def test_a_small_car_follows_a_small_curve(tmp_path):
    drive = Drive(tmp_path, SMALL, curved_route(3.0, 2.0, straight_m=3.0)).start()
    reports = drive.run(4.0)
    assert {report.mode for report in reports} == {Mode.POLICY}
    x, y, _ = drive.car.pose
    assert math.hypot(x - 3.0, y - 3.0) == pytest.approx(3.0, abs=0.15)
    assert x > 4.0


def test_where_the_world_has_large_coordinates_nothing_changes(tmp_path):
    """UTM's northings: single precision has steps of half a metre there."""
    far = np.array([500_000.0, 5_400_000.0])
    here = curved_route(25.0, SPEED)
    there = replace(here, points_in_world_m=here.points_in_world_m + far)
    seen = []
    for folder, route, origin in ((tmp_path / "a", here, np.zeros(2)), (tmp_path / "b", there, far)):
        drive = Drive(folder, route=route, pose=(*origin, 0.0)).start()
        seen.append(np.array([report.step.observation for report in drive.run(3.0)]))
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-4)


def test_a_passive_car_is_left_alone_and_an_emergency_stop_brakes_it(tmp_path):
    drive = Drive(tmp_path)
    drive.car.speed_m_s = 9.0  # Somebody else drives it.
    report = drive.loop.tick()
    assert report.mode is Mode.PASSIVE
    assert report.sent is None
    drive.loop.request("estop")
    reports = drive.run(1.5)
    assert {report.mode for report in reports} == {Mode.DAMP}
    assert drive.car.speed_m_s == 0.0


@pytest.mark.parametrize("lost", ["scan", "objects"])
def test_a_lost_input_brakes_to_a_stop_within_the_limits(moving, lost):
    moving.eyes.lost.add(lost)
    reports = moving.run(2.5)
    driven = sum(report.mode is Mode.POLICY for report in reports)
    # At 10 Hz the input is 0.3 s old in the third tick and too old in the fourth.
    assert driven in (2, 3)
    fault = moving.loop.safety.fault
    assert fault.code == "surroundings"
    told = f"the {lost} {'are' if lost == 'objects' else 'is'} 400 ms old, allowed are 300 ms"
    assert fault.text == f"Surroundings: {told} (safety.surroundings_timeout_s)."
    assert_brakes(moving, reports, reports[driven].state.joint_pos_rad[0])


def test_the_age_limit_is_a_setting(tmp_path):
    with pytest.raises(SafetyError, match="surroundings_timeout_s is 0"):
        SafetyConfig(surroundings_timeout_s=0.0)
    drive = Drive(tmp_path, config=SafetyConfig(surroundings_timeout_s=1.0)).start()
    drive.eyes.lost.add("scan")
    assert {report.mode for report in drive.run(0.9)} == {Mode.POLICY}
    assert drive.run(0.4)[-1].mode is Mode.DAMP


def test_an_emergency_stop_in_a_curve(moving):
    steering = moving.car.steering_rad
    moving.loop.request("estop")
    assert_brakes(moving, moving.run(2.5), steering)
    assert moving.loop.safety.fault.code == "operator_stop"


def test_a_hole_in_the_scan_is_bridged_or_told_with_what_it_held():
    """181 beams of a degree; the contract's shares are wider."""
    view = RoadView(CONTRACT, scan_gap_rad=0.3)
    scan = np.full(181, 4.0)
    scan[80:95] = np.nan
    view.set_scan(scan, -0.5 * math.pi, math.radians(1.0), 0.0, "of its 181 ranges 15 are 0")
    view.set_route(curved_route(25.0, SPEED))
    view.set_goal((0.0, 0.0, 0.0))
    view.set_objects(np.zeros((0, 7)), 0.0)
    view.set_stop_line(np.inf, 0.0, 0.0)
    assert view.missing(0.0, 1.0) is None
    scan[60:120] = np.nan
    view.set_scan(scan, -0.5 * math.pi, math.radians(1.0), 0.0, "of its 181 ranges 60 are 0")
    told = view.missing(0.0, 1.0)
    assert "no reading over 1." in told
    assert "up to 0.3 rad are bridged (scan_gap_rad); of its 181 ranges 60 are 0" in told


@pytest.mark.parametrize("what", ["object", "scan"])
def test_numbers_that_are_none_brake(moving, what):
    if what == "object":
        moving.eyes.objects = np.array([[30.0, 3.0, np.nan, 1.0, 4.0, 2.0, 1.0]])
    else:
        moving.eyes.scan[:] = np.nan
    reports = moving.run(2.5)
    fault = moving.loop.safety.fault
    assert fault.code == "surroundings"
    assert f"the {'scan is' if what == 'scan' else 'objects are'} not finite" in fault.text
    assert_brakes(moving, reports, reports[0].state.joint_pos_rad[0])


def test_numbers_that_are_none_from_any_source_brake(tmp_path):
    """A source that does not look at its numbers itself."""
    drive = Drive(tmp_path).start()
    seen = drive.view.newest

    def careless(*args):
        return replace(seen(*args), route_left_m=np.full((1, 3), np.inf))

    drive.view.newest = careless
    drive.run(0.2)
    assert drive.loop.safety.fault.text == "Surroundings: route_left_m is not finite: 3 of 3 numbers."


def test_stale_odometry_brakes_by_time_alone(moving):
    """The last reading stays; the set-point runs down from the lower one of what was told and what was known last."""
    told = moving.run(0.1)[-1].sent
    moving.car.freeze()
    reports = moving.run(2.5)
    damped = [report for report in reports if report.mode is Mode.DAMP]
    assert moving.loop.safety.fault.code == "stale_state"
    asked = set_points(damped)
    assert asked[0] <= told.vel_rad_s[1]
    assert (np.diff(asked) <= 0.0).all()
    assert moving.car.speed_m_s == 0.0
    # Where the wheels are cannot be seen; they stay where they were told to be.
    np.testing.assert_allclose(
        [report.sent.pos_rad[0] for report in damped], reports[len(reports) - len(damped) - 1].sent.pos_rad[0]
    )


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        (lambda car: car.set_nan("lin_vel_base_in_base_m_s"), "nan_state", "car's velocity is"),
        (lambda car: car.override(pos_base_in_world_m=None), "nan_state", "car's place is not told"),
        (lambda car: car.set_tilt(1.3), "tilt", "tilted by 1.30 rad"),
    ],
)
def test_a_car_that_is_lost_or_overturned_brakes(moving, fault, code, text):
    fault(moving.car)
    reports = moving.run(2.5)
    assert moving.loop.safety.fault.code == code
    assert text in moving.loop.safety.fault.text
    assert reports[-1].mode is Mode.DAMP
    assert set_points(reports)[-1] == 0.0
    assert moving.car.speed_m_s == 0.0


def test_a_car_needs_no_accelerometer(tmp_path):
    drive = Drive(tmp_path)
    drive.car.override(lin_acc_base_in_base_m_s2=np.zeros(3))
    assert drive.loop.tick().fault is None


def test_the_brake_never_asks_for_more_than_the_car_goes(moving):
    """It hit something: the set-point follows it down, and does not push on when it rolls back."""
    moving.loop.request("estop")
    reports = moving.run(0.2)
    moving.car.speed_m_s = 1.0
    reports = moving.run(0.1)
    assert set_points(reports)[0] == 0.0
    moving.car.speed_m_s = -0.5
    assert moving.run(0.1)[0].sent.vel_rad_s[1] == 0.0


def test_the_wildest_actions_stay_within_the_limits(tmp_path):
    """A network that asks for 50 times as much as there is."""
    drive = Drive(
        tmp_path, SMALL, curved_route(30.0, SPEED), weight=np.zeros((OBS, 2)), bias=np.array([50.0, 50.0])
    ).start()
    reports = drive.run(3.0)
    assert {report.mode for report in reports} == {Mode.POLICY}
    car = SMALL.body
    np.testing.assert_allclose([report.sent.pos_rad[0] for report in reports], car.steering_limit_rad, rtol=1e-6)
    asked = set_points(reports)
    assert asked.max() == pytest.approx(car.speed_limit_m_s)
    assert (asked - speeds(reports)).max() <= car.accel_limit_m_s2 * 0.1 + 1e-5
    # What the network is told of its last actions is within the bounds.
    assert reports[-1].step.action.tolist() == [50.0, 50.0]
    last = OBS - 18 - 27
    np.testing.assert_array_equal(reports[-1].step.observation[last - 4 : last], 1.0)


def test_a_stopped_policy_brakes_then_straightens_and_may_start_again(moving):
    steering = moving.car.steering_rad
    moving.loop.request("stop")
    reports = moving.run(4.0)
    assert {report.mode for report in reports} == {Mode.STAND}
    rolls = speeds(reports) > 0.05
    told = np.array([report.sent.pos_rad[0] for report in reports])
    np.testing.assert_allclose(told[rolls], steering, atol=1e-3)
    assert abs(moving.car.steering_rad) < 1e-3
    assert moving.car.speed_m_s == 0.0
    moving.loop.request("start")
    assert moving.run(0.5)[-1].mode is Mode.POLICY


def test_a_policy_starts_only_from_standstill(moving):
    moving.loop.request("stop")
    moving.run(0.3)
    with pytest.raises(SafetyError, match="still stopping and straightening"):
        moving.loop.request("start")
    moving.run(4.0)
    moving.car.speed_m_s = 0.5  # Down a slope.
    moving.loop.tick()
    with pytest.raises(SafetyError, match=r"the car goes at 0\.50 m/s"):
        moving.loop.request("start")


def test_what_must_be_known_before_a_start_is_asked_for(tmp_path):
    drive = Drive(tmp_path)
    drive.loop.tick()
    drive.loop.request("stand")
    drive.loop.run(2.5)
    with pytest.raises(SafetyError, match="no objects received yet"):
        drive.loop.request("start")
    drive.eyes.lost.add("scan")
    drive.eyes(0.0)
    with pytest.raises(SafetyError, match="no scan received yet"):
        drive.loop.request("start")
    with pytest.raises(ContractError, match="sees route, objects, scan, and this control loop has no source"):
        Controller(drive.car, drive.loop.runner, SafetyMachine(BMW))


def test_a_loop_that_ends_leaves_a_car_that_stands(moving):
    moving.loop.send_final_damping()
    assert moving.car.speed_m_s == pytest.approx(0.0, abs=1e-9)
    assert [command.vel_rad_s[1] for command in moving.car.commands[-3:]] == [0.0] * 3


def test_a_loop_that_breaks_tells_speed_zero_at_once(moving):
    def broken(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moving.loop.run(1.0, command_input=moving.eyes, on_tick=broken)
    assert moving.car.commands[-1].vel_rad_s[1] == 0.0


def test_a_route_that_crosses_itself_is_followed_in_order(tmp_path):
    """A figure of eight: where it crosses, the nearest point may be on the other branch."""
    t = np.linspace(0.0, 2.0 * np.pi, 600)
    points = np.stack((30.0 * np.sin(t), 15.0 * np.sin(2.0 * t)), axis=-1)
    ones = np.ones(600)
    view = RoadView(drive_contract_for(BMW))
    view.set_route(Route(points, ones, ones, ones))
    robot = MockRobot(BMW)
    robot.connect()
    for index in (*range(0, 290, 4), 300):
        x, y = points[index]
        robot.override(pos_base_in_world_m=np.array([x, y, 0.0]))
        view.set_objects(np.zeros((0, 7)), 0.0)
        view.set_scan(np.ones(181), -0.5 * math.pi, math.radians(1.0), 0.0)
        window = view.newest(robot.read(), 0.0, 0.3).route_points_in_world_m[0]
    # At the crossing, half way round, and not back at the start.
    np.testing.assert_allclose(window[np.hypot(*(window - points[300]).T).argmin()], points[300], atol=0.3)
    assert np.hypot(*(window[-1] - points[20]).T) > 10.0


def test_a_route_or_goal_that_makes_no_sense_is_refused():
    ones = np.ones(3)
    line = np.stack((np.arange(3.0), np.zeros(3)), axis=-1)
    with pytest.raises(SurroundingsError, match=r"points have shape \(3, 3\)"):
        Route(np.zeros((3, 3)), ones, ones, ones)
    with pytest.raises(SurroundingsError, match="3 points are all the same place"):
        Route(np.ones((3, 2)), ones, ones, ones)
    with pytest.raises(SurroundingsError, match="left_m is not finite"):
        Route(line, ones, ones * np.nan, ones)
    with pytest.raises(SurroundingsError, match=r"right_m has shape \(2,\), expected 3 rows"):
        Route(line, ones, ones, np.ones(2))
    view = RoadView(CONTRACT)
    with pytest.raises(SurroundingsError, match=r"goal has shape \(2,\), expected \(3,\)"):
        view.set_goal((1.0, 2.0))
    with pytest.raises(SurroundingsError, match=r"Objects have shape \(2, 6\)"):
        view.set_objects(np.zeros((2, 6)), 0.0)


def test_a_bundle_runs_on_its_kind_of_robot_alone(tmp_path):
    drives = drive_bundle(tmp_path / "a", CONTRACT)
    with pytest.raises(ContractError, match=r"is of embodiment 'car', robot 'go2' is of 'legs'"):
        PolicyRunner(drives, robot_spec("go2"))
    walks = replace(
        CONTRACT,
        embodiment="legs",
        body=None,
        observations=CONTRACT.observations[:3],
        action=ActionSpec("target/joint/position", (1.0, 1.0), (0.0, 0.0), 1.0),
    )
    write_bundle(tmp_path / "b", contract=walks, model_bytes=linear_model(walks), golden={})
    bundle = load_bundle(tmp_path / "b")
    with pytest.raises(ContractError, match=r"is of embodiment 'legs', robot 'bmw_320i' is of 'car'"):
        PolicyRunner(bundle, BMW)
    with pytest.raises(ContractError, match="is of embodiment 'legs', robot 'bmw_320i'"):
        PolicyRunner(tiny_bundle(tmp_path / "c"), BMW)


def test_a_bundle_repeats_what_training_recorded(tmp_path):
    bundle = drive_bundle(tmp_path / "bundle", CONTRACT)
    stages = []
    _, runner = check_static(lambda: bundle, stages.append)
    found = {stage.name: stage.value for stage in stages}
    assert list(found) == ["manifest", "contract", "network", "observation", "joint targets", "episodes"]
    assert max(found[name] for name in ("network", "observation", "joint targets", "episodes")) <= 1e-5
    with pytest.raises(ContractError, match="backend 'mock' tells of no road"):
        run_episodes(runner, RolloutConfig(backend="mock"))


def test_what_was_recorded_otherwise_is_refused(tmp_path):
    bundle = drive_bundle(tmp_path / "bundle", CONTRACT)
    nudged = {**bundle.golden, TARGET_ARRAY: bundle.golden[TARGET_ARRAY] + np.float32(0.01)}
    with pytest.raises(PolicyError, match=r"joint target differ by 0\.01"):
        check_static(lambda: replace(bundle, golden=nudged), lambda stage: None)
    strange = {**bundle.golden, "around/objects": np.zeros((24, 3, 6))}
    with pytest.raises(PolicyError, match=r"'around/objects' has shape \(24, 3, 6\)"):
        check_static(lambda: replace(bundle, golden=strange), lambda stage: None)


def test_a_drive_is_recorded(tmp_path):
    recorder = Recorder(tmp_path / "drive.mcap", CONTRACT, BMW, lossless=True)
    with recorder:
        reports = Drive(tmp_path, recorder=recorder).start().run(1.0)
    recording = read_recording(tmp_path / "drive.mcap")
    seen = recording["/policy/observation"]["data"].reshape(-1, OBS)
    np.testing.assert_array_equal(seen, [report.step.observation for report in reports])
    assert recording["/gantry/status"]["mode"][-1] == "POLICY"


def test_a_car_that_still_speeds_up_is_not_told_to_go_faster_once_it_brakes():
    """The tick of a fault brakes; the next one enters DAMP, and the car's answer may be later than both."""
    car = MockCar(BMW, speed_m_s=8.0)
    car.connect()
    idle = CarIdleCommands(BMW, None, SafetyConfig(), 0.1)
    tick = Tick(0.0, Transition(1, Mode.POLICY, Mode.DAMP), car.read(), np.zeros(0), None, Role.TASK)
    idle.begin_brake(tick)
    first = idle.brake(tick)
    car.speed_m_s = 8.5
    car.sleep_until(0.1)
    tick = replace(tick, now_s=0.1, state=car.read(), last=first, last_role=Role.BRAKE)
    idle.begin_brake(tick)
    second = idle.brake(tick)
    assert first.vel_rad_s[1] == pytest.approx(8.0 - 0.1 * BRAKE)
    assert second.vel_rad_s[1] == pytest.approx(8.0 - 0.2 * BRAKE)
