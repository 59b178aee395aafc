"""The control loop on the mock robot: the way into POLICY, every fault on the way, and what is sent meanwhile."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyConfig, SafetyMachine
from gantry_deploy.errors import SafetyError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, overflowing_model, tiny_bundle, tiny_robot
from gantry_hardware import RobotError
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)
START_POSE = np.array([0.0, 0.0, 1.0, 1.0])
STAND_POSE = np.array([0.25, 0.5, 0.25, 0.5])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("bundle"))


def controller(bundle, *, pose=START_POSE, robot=MockRobot, recorder=None, **config):
    connected = robot(SPEC, joint_pos_rad=pose)
    connected.connect()
    runner = None if bundle is None else PolicyRunner(bundle, SPEC)
    return Controller(connected, runner, SafetyMachine(SPEC, SafetyConfig(**config)), recorder)


def walking(bundle, **options):
    """A controller in POLICY, ten ticks in."""
    loop = controller(bundle, **options)
    loop.request("stand")
    loop.run(2.1)
    loop.request("start")
    loop.run(0.2, lambda _: (0.5, 0.0, 0.0))
    assert loop.safety.mode is Mode.POLICY
    return loop


def gains(command):
    return command.stiffness_nm_rad.max(), command.damping_nm_s_rad.max()


def test_passive_sends_no_torque(bundle):
    report = controller(bundle).tick()
    assert report.mode is Mode.PASSIVE
    assert gains(report.sent) == (0.0, 0.0)
    np.testing.assert_array_equal(report.sent.effort_nm, np.zeros(4))
    np.testing.assert_array_equal(report.state.joint_pos_rad, START_POSE)
    assert report.step is None


def test_standing_up_moves_from_the_measured_pose_without_a_jump_and_ends_at_rest(bundle):
    loop = controller(bundle)
    reports = []
    loop.run(0.1)
    loop.request("stand")
    loop.run(2.2, on_tick=reports.append)
    poses = np.array([report.sent.pos_rad for report in reports])
    assert {report.mode for report in reports} == {Mode.STAND}
    np.testing.assert_allclose(poses[0], START_POSE, atol=1e-9)
    np.testing.assert_allclose(poses[50], (START_POSE + STAND_POSE) / 2, atol=1e-6)
    np.testing.assert_allclose(poses[100:], np.tile(STAND_POSE, (10, 1)), atol=1e-9)
    # A cosine ramp over 2 s moves 0.75 rad at no more than pi / 4 of that per second.
    assert np.abs(np.diff(poses, axis=0)).max() <= 0.75 * np.pi / 4 * 0.02 + 1e-9


def test_the_policy_starts_only_once_the_robot_stands(bundle):
    loop = controller(bundle)
    with pytest.raises(SafetyError, match="'start' is not possible in PASSIVE"):
        loop.request("start")
    loop.request("stand")
    with pytest.raises(SafetyError, match=r"still standing up, 2\.0 s to go"):
        loop.request("start")
    loop.run(1.0)
    with pytest.raises(SafetyError, match=r"still standing up, 1\.0 s to go"):
        loop.request("start")
    loop.run(1.1)
    loop.request("start")
    assert loop.tick().mode is Mode.POLICY


def test_standing_up_again_takes_its_time_again(bundle):
    loop = walking(bundle)
    loop.request("stop")
    with pytest.raises(SafetyError, match=r"2\.0 s to go"):
        loop.request("start")
    assert loop.tick().mode is Mode.STAND
    loop.run(1.0)
    # Left and entered again between two ticks, which see STAND both times.
    loop.request("stop")
    loop.request("stand")
    with pytest.raises(SafetyError, match=r"2\.0 s to go"):
        loop.request("start")
    loop.run(1.0)
    with pytest.raises(SafetyError, match=r"1\.0 s to go"):
        loop.request("start")
    loop.run(1.1)
    loop.request("start")


class Sagging(MockRobot):
    """A robot whose weight bends every joint by a tenth of a radian."""

    def read(self):
        state = super().read()
        return replace(state, joint_pos_rad=state.joint_pos_rad - 0.1)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_a_stop_does_not_drop_the_weight_that_the_policy_carries(bundle, ratio):
    robot = Sagging(replace(SPEC, hold_gains=((30.0 * ratio, 2.0),) * 4))
    robot.connect()
    loop = Controller(robot, PolicyRunner(bundle, SPEC), SafetyMachine(SPEC))
    loop.request("stand")
    loop.run(2.1)
    loop.request("start")
    last = loop.tick().sent
    loop.request("stop")
    report = loop.tick()
    assert (report.mode, gains(report.sent)) == (Mode.STAND, (30.0 * ratio, 2.0))
    torque = [c.stiffness_nm_rad * (c.pos_rad - report.state.joint_pos_rad) for c in (last, report.sent)]
    np.testing.assert_allclose(torque[0], 3.0, atol=1e-9)
    np.testing.assert_allclose(torque[1], torque[0], atol=1e-9)


def test_the_policy_does_not_take_over_a_robot_that_did_not_follow(bundle):
    class Limp(MockRobot):
        def write(self, command):
            return super().write(replace(command, stiffness_nm_rad=np.zeros(4)))

    loop = controller(bundle, robot=Limp, pose=np.array([0.25, 0.5, 0.25, -0.9]))
    loop.request("stand")
    loop.run(2.1)
    with pytest.raises(SafetyError, match=r"'right_knee_joint' is 1\.40 rad from the standing pose"):
        loop.request("start")


def test_a_loop_without_a_policy_can_only_stand():
    loop = controller(None)
    loop.request("stand")
    loop.run(2.1)
    with pytest.raises(SafetyError, match="no policy is loaded"):
        loop.request("start")


def test_the_policy_starts_from_a_clean_slate(bundle):
    loop = walking(bundle)
    loop.request("stop")
    loop.run(2.1)
    loop.request("start")
    report = loop.tick()
    assert loop.runner.time_s == pytest.approx(0.02)
    np.testing.assert_array_equal(report.step.observation[14:18], np.zeros(4))
    assert gains(report.sent) == (30.0, 1.0)
    np.testing.assert_array_equal(report.sent.pos_rad, report.step.target.pos_rad)


FAULTS = {
    "stale_state": (lambda robot: robot.freeze(), "60 ms old"),
    "no_state": (lambda robot: robot.disconnect(), "cannot be read: The mock robot is disconnected"),
    "nan_state": (lambda robot: robot.set_nan("joint_vel_rad_s", 2), "joint_vel_rad_s of right_hip_joint"),
    "tilt": (lambda robot: robot.set_tilt(1.2), "1.20 rad"),
    "joint_position": (lambda robot: robot.override(joint_pos_rad=np.full(4, 2.5)), "left_hip_joint"),
    "joint_velocity": (lambda robot: robot.override(joint_vel_rad_s=np.full(4, 50.0)), "left_hip_joint"),
    "joint_torque": (lambda robot: robot.override(joint_effort_nm=np.full(4, 50.0)), "left_hip_joint"),
}


@pytest.mark.parametrize("mode", [Mode.STAND, Mode.POLICY])
@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_damps_within_100_ms_and_stays(bundle, code, mode):
    fault, text = FAULTS[code]
    loop = walking(bundle)
    if mode is Mode.STAND:
        loop.request("stop")
        loop.tick()
        loop.robot.sleep_until(loop.robot.now_s() + 0.02)
    fault(loop.robot)
    lost_s, reports = loop.robot.now_s(), []
    loop.run(0.5, lambda _: (0.5, 0.0, 0.0), on_tick=reports.append)
    first = next(report for report in reports if report.mode is Mode.DAMP)
    assert first.time_s - lost_s <= 0.1
    assert first.fault.code == code
    assert text in first.fault.text
    after = [report for report in reports if report.time_s >= first.time_s]
    assert all(report.mode is Mode.DAMP and report.fault is first.fault for report in after)
    if code != "no_state":
        assert all(gains(report.sent) == (0.0, 1.0) for report in after)
    loop.robot.reset()
    loop.run(0.1)
    assert loop.safety.mode is Mode.DAMP, "a robot that came back must stay damped"
    assert gains(loop.robot.commands[-1]) == (0.0, 1.0)
    loop.request("reset")
    assert loop.tick().mode is Mode.PASSIVE


def test_an_action_that_is_not_finite_damps_in_the_same_tick(bundle):
    loop = controller(replace(bundle, model_bytes=overflowing_model(CONTRACT)))
    loop.request("stand")
    loop.run(2.1)
    loop.request("start")
    assert loop.tick().mode is Mode.POLICY
    loop.set_command((1.0, 0.0, 0.0), loop.robot.now_s())
    report = loop.tick()
    assert report.mode is Mode.DAMP
    assert (report.fault.code, gains(report.sent)) == ("policy", (0.0, 1.0))
    assert report.fault.text == "The network's action is not finite: left_hip_joint = inf."


def test_whatever_breaks_in_the_policy_damps_and_the_loop_goes_on(bundle, caplog):
    loop = walking(bundle)
    loop.robot.override(ang_vel_base_in_base_rad_s=np.zeros(2))
    report = loop.tick()
    assert (report.mode, report.fault.code, gains(report.sent)) == (Mode.DAMP, "policy", (0.0, 1.0))
    assert "2 numbers, the contract says 3" in report.fault.text
    loop = walking(bundle)
    loop.runner.step = lambda *_: [][0]
    report = loop.tick()
    assert (report.mode, report.fault.text) == (Mode.DAMP, "The policy broke: IndexError: list index out of range")
    assert "Traceback" in caplog.text


def test_a_command_that_is_not_a_number_damps(bundle):
    loop = walking(bundle)
    loop.set_command((0.0, np.nan, 0.0), loop.robot.now_s())
    report = loop.tick()
    assert (report.mode, report.fault.code) == (Mode.DAMP, "nan_command")


def test_a_lost_command_becomes_zero_and_the_robot_keeps_its_mode(bundle):
    loop = walking(bundle)
    loop.set_command((0.5, 0.1, -0.2), loop.robot.now_s())
    reports = []
    loop.run(1.0, on_tick=reports.append)
    asked = np.array([report.requested for report in reports])
    age = np.array([report.time_s for report in reports]) - reports[0].time_s
    np.testing.assert_array_equal(asked[age < 0.49], np.tile([0.5, 0.1, -0.2], ((age < 0.49).sum(), 1)))
    np.testing.assert_array_equal(asked[age > 0.51], np.zeros(((age > 0.51).sum(), 3)))
    np.testing.assert_array_equal(reports[-1].step.command, np.zeros(3))
    assert loop.safety.mode is Mode.POLICY


def test_a_command_of_another_size_is_refused_and_the_old_one_stays(bundle):
    loop = walking(bundle)
    with pytest.raises(SafetyError, match=r"shape \(2,\), expected \(3,\)"):
        loop.set_command((1.0, 2.0), loop.robot.now_s())
    np.testing.assert_array_equal(loop.tick().requested, [0.5, 0.0, 0.0])


def test_a_lost_heartbeat_damps_and_keeps_the_robot_from_standing(bundle):
    loop = controller(bundle, require_heartbeat=True)
    loop.tick()
    with pytest.raises(SafetyError, match="heartbeat never came"):
        loop.request("stand")
    source = lambda _: loop.heartbeat(loop.robot.now_s())  # noqa: E731
    loop.run(0.1, source)
    loop.request("stand")
    loop.run(3.0, source)
    assert loop.safety.mode is Mode.STAND
    loop.run(1.0)
    assert loop.safety.mode is Mode.DAMP
    assert "heartbeat is 5" in loop.safety.fault.text


def test_an_emergency_stop_is_latched(bundle):
    loop = walking(bundle)
    loop.request("estop")
    report = loop.tick()
    assert (report.mode, report.fault.code, gains(report.sent)) == (Mode.DAMP, "operator_stop", (0.0, 1.0))
    for event in ("stand", "start", "stop"):
        with pytest.raises(SafetyError, match=r"not possible in DAMP \(The operator pressed"):
            loop.request(event)
    loop.run(0.2)
    assert loop.safety.mode is Mode.DAMP


def test_an_emergency_stop_during_inference_still_counts(bundle):
    loop = walking(bundle)
    step = loop.runner.step

    def pressed_meanwhile(*arguments):
        thread = threading.Thread(target=loop.request, args=("estop",))
        thread.start()
        thread.join()
        return step(*arguments)

    loop.runner.step = pressed_meanwhile
    report = loop.tick()
    assert (report.mode, gains(report.sent)) == (Mode.DAMP, (0.0, 1.0))


def test_a_robot_that_is_not_well_is_not_stood_up_and_says_why(bundle):
    loop = controller(bundle)
    loop.robot.set_tilt(1.5)
    loop.run(0.1)
    report = loop.tick()
    assert (report.mode, report.fault.code, loop.safety.fault) == (Mode.PASSIVE, "tilt", None)
    with pytest.raises(SafetyError, match=r"'stand' is refused in PASSIVE: The base is tilted by 1\.50 rad"):
        loop.request("stand")


def test_a_tilted_robot_is_not_stood_up_before_the_first_tick_nor_right_after_a_reset(bundle):
    loop = controller(bundle)
    loop.robot.set_tilt(1.5)
    with pytest.raises(SafetyError, match=r"tilted by 1\.50 rad"):
        loop.request("stand")
    loop.tick()
    with pytest.raises(SafetyError, match=r"tilted by 1\.50 rad"):
        loop.request("stand")
    loop.request("estop")
    loop.tick()
    loop.request("reset")
    with pytest.raises(SafetyError, match=r"tilted by 1\.50 rad"):
        loop.request("stand")
    loop.tick()
    with pytest.raises(SafetyError, match=r"tilted by 1\.50 rad"):
        loop.request("stand")


class TakesNoTargets(MockRobot):
    refuse = False

    def write(self, command):
        if self.refuse and command.stiffness_nm_rad.any():
            raise RobotError("the bus is off.")
        return super().write(command)


def test_a_refused_target_is_followed_by_damping_in_the_same_tick(bundle):
    loop = walking(bundle, robot=TakesNoTargets)
    loop.robot.refuse = True
    report = loop.tick()
    assert (report.mode, report.fault.code) == (Mode.POLICY, "write")
    assert gains(report.sent) == (0.0, 1.0)
    assert loop.tick().mode is Mode.DAMP


class Slow(MockRobot):
    """A robot whose clock runs on while it is read."""

    delay_s = 0.0

    def read(self):
        self._time_s += self.delay_s
        return super().read()


def test_missed_periods_are_counted_left_out_and_at_last_a_fault(bundle):
    loop = walking(bundle, robot=Slow)
    loop.robot.delay_s = 0.05
    reports = []
    loop.run(0.3, on_tick=reports.append)
    # Each tick takes two and a half periods, so the third deadline is the next that can be kept.
    np.testing.assert_allclose([report.period_s for report in reports], [0.0, 0.06, 0.06, 0.06, 0.06], atol=1e-9)
    assert loop.counts()["missed_deadlines"] == 8
    assert [report.mode for report in reports] == [Mode.POLICY] * 3 + [Mode.DAMP] * 2
    assert reports[-1].fault.code == "missed_deadlines"
    loop.request("reset")
    loop.robot.delay_s = 0.0
    loop.run(0.2)
    assert loop.counts()["missed_deadlines"] == 8


def test_deadlines_are_absolute(bundle):
    loop = controller(bundle, robot=Slow)
    loop.robot.delay_s = 0.0073
    start_s, reports = loop.robot.now_s(), []
    loop.run(1.0, on_tick=reports.append)
    np.testing.assert_allclose([report.time_s for report in reports], start_s + np.arange(50) * 0.02, atol=1e-9)
    assert loop.counts()["missed_deadlines"] == 0


def test_the_rate_is_the_contracts(tmp_path):
    fast = tiny_bundle(tmp_path / "fast", replace(CONTRACT, rate_hz=200.0))
    loop = controller(fast)
    loop.run(1.0)
    assert loop.counts()["ticks"] == 200
    assert loop.robot.now_s() == pytest.approx(1.0)


def test_a_loop_that_breaks_leaves_the_robot_damped(bundle):
    loop = walking(bundle)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(1.0, on_tick=stop)
    assert gains(loop.robot.commands[-1]) == (0.0, 1.0)


def test_a_robot_is_left_with_three_damping_commands_unless_it_is_passive(bundle):
    loop = walking(bundle)
    before = len(loop.robot.commands)
    loop.send_final_damping()
    assert [gains(command) for command in loop.robot.commands[before:]] == [(0.0, 1.0)] * 3
    passive = controller(bundle)
    passive.run(0.1)
    passive.send_final_damping()
    assert {gains(command) for command in passive.robot.commands} == {(0.0, 0.0)}


def test_a_loop_that_breaks_while_passive_sends_nothing_more(bundle):
    loop = controller(bundle)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(1.0, on_tick=stop)
    assert [gains(command) for command in loop.robot.commands] == [(0.0, 0.0)]


class Shared(MockRobot):
    """A robot that others could command too; limp commands are then withheld."""

    others = False

    def refuse_other_commanders(self):
        if self.others:
            raise RobotError("Another node commands this robot too: /vendor.")

    def write(self, command):
        if self.others and not command.damping_nm_s_rad.any():
            return None
        return super().write(command)


def test_a_robot_that_somebody_else_commands_hears_nothing_and_is_not_stood_up(bundle):
    loop = controller(bundle, robot=Shared)
    loop.robot.others = True
    reports = []
    loop.run(0.2, on_tick=reports.append)
    with pytest.raises(SafetyError, match=r"'stand' is refused in PASSIVE: Another node .* too: /vendor"):
        loop.request("stand")
    loop.send_final_damping()
    assert loop.robot.commands == []
    assert {(report.mode, report.sent, report.fault) for report in reports} == {(Mode.PASSIVE, None, None)}
    loop.robot.others = False
    loop.run(0.2)
    assert gains(loop.robot.commands[-1]) == (0.0, 0.0)
    loop.request("stand")
    loop.run(0.1)
    assert gains(loop.robot.commands[-1]) == (30.0, 1.0)


def test_stop_ends_the_run_after_the_tick(bundle):
    loop = controller(bundle)
    loop.run(None, on_tick=lambda report: loop.stop() if report.time_s >= 0.1 else None)
    assert loop.counts()["ticks"] == 6


def test_statistics_are_plain_data(bundle):
    import json

    loop = walking(bundle)
    loop.robot.set_tilt(2.0)
    loop.run(0.1)
    found = json.loads(json.dumps(loop.statistics()))
    assert (found["mode"], found["fault"]["code"], found["rate_hz"]) == ("DAMP", "tilt", 50.0)
    assert found["ticks"] == 105 + 10 + 5
    for name in ("period", "busy", "read", "safety", "observe", "infer", "step", "write"):
        timing = found["timing"][name]
        assert 0.0 <= timing["p50_s"] <= timing["p99_s"] <= timing["max_s"]
    assert found["timing"]["period"]["p50_s"] == pytest.approx(0.02)
    assert found["timing"]["infer"]["count"] == 11


def test_only_the_newest_timings_are_kept():
    from gantry_deploy.control.timing import TimingLog

    log = TimingLog(("a", "b"), capacity=3)
    for value in (9.0, 1.0, 2.0, 3.0):
        log.add("a", value)
    assert sorted(log.samples_s("a")) == [1.0, 2.0, 3.0]
    assert set(log.summary()) == {"a"}
    assert log.summary()["a"]["max_s"] == 3.0
