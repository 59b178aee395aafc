"""What the loop bounds: waiting guards, steps of targets, commands of any size, and memory."""

import gc
import threading
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.target_steps import RANGE_SHARE, TargetSteps
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.modes import Transition
from gantry_deploy.control.operator_input import MAX_COMMAND, CommandBuffer
from gantry_deploy.control.safety import Event, Fault, FaultCode, Mode, SafetyConfig, SafetyMachine
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.errors import SafetyError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, map_contract_for, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.robots import robot_spec

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("limits") / "bundle", CONTRACT)


def waiting_machine():
    """A machine whose guard of STAND waits until it is let go."""
    machine, entered, leave = SafetyMachine(SPEC), threading.Event(), threading.Event()

    def guard():
        entered.set()
        assert leave.wait(60.0)

    machine.add_guard(Event.STAND, guard)
    outcome = []

    def ask():
        try:
            machine.request("stand")
            outcome.append("granted")
        except SafetyError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert entered.wait(60.0)
    return machine, thread, leave, outcome


def from_another_thread(action):
    """What an action returns on a thread of its own, which must come to its end while the guard still waits."""
    found = []
    thread = threading.Thread(target=lambda: found.append(action()), daemon=True)
    thread.start()
    thread.join(60.0)
    assert not thread.is_alive(), "waits for the guard"
    return found[0]


def test_an_emergency_stop_and_the_judge_do_not_wait_for_a_guard():
    machine, thread, leave, outcome = waiting_machine()
    fault = Fault(FaultCode.TILT, "tilted", 0.0)
    assert from_another_thread(lambda: machine.transition) == Transition(0, Mode.PASSIVE, Mode.PASSIVE)
    assert from_another_thread(lambda: machine.report(fault)) is Mode.PASSIVE
    from_another_thread(lambda: machine.request("estop"))
    assert machine.mode is Mode.DAMP
    leave.set()
    thread.join(60.0)
    # What was asked for before the stop is not granted after it.
    assert outcome == [
        "'stand' is not possible in DAMP (The operator pressed the emergency stop.). Possible now: reset, estop."
    ]
    assert machine.mode is Mode.DAMP


def test_a_mode_that_was_left_and_entered_again_meanwhile_is_another_one():
    machine, thread, leave, outcome = waiting_machine()
    machine.request("estop")
    machine.request("reset")
    leave.set()
    thread.join(60.0)
    assert "the mode changed" in outcome[0]
    assert machine.mode is Mode.PASSIVE


def test_a_fault_that_is_found_while_it_is_looked_for_other_commanders_refuses_the_stand():
    class Looking(MockRobot):
        def refuse_other_commanders(self):
            self.set_tilt(1.5)
            loop.tick()

    robot = Looking(SPEC)
    robot.connect()
    loop = Controller(robot, None, SafetyMachine(SPEC))
    loop.tick()
    with pytest.raises(SafetyError, match=r"tilted by 1\.50 rad"):
        loop.request("stand")


def test_an_outlier_moves_no_target_across_its_range():
    steps = TargetSteps(SPEC, 0.5)
    last = JointCommand.position(SPEC, np.zeros(4))
    wild = last.with_pos(np.array([2.0, -1.0, 0.4, -0.5]))
    np.testing.assert_allclose(steps.limit(wild, last).pos_rad, [0.5, -0.5, 0.4, -0.5])
    assert steps.limit(wild, None) is wild
    near = last.with_pos(np.full(4, 0.5))
    assert steps.limit(near, last) is near
    # A joint of a short range moves by a share of it at most.
    short = TargetSteps(SPEC, 10.0)
    most = RANGE_SHARE * 3.0
    np.testing.assert_allclose(short.limit(last.with_pos(np.full(4, 2.9)), last).pos_rad, np.full(4, most))


def test_a_cars_drive_has_no_target_position():
    spec = robot_spec("f1tenth")
    last = JointCommand.damping(spec)
    far = last.with_pos(np.array([0.4, 1e5]))
    assert TargetSteps(spec, 1.5).limit(far, last).pos_rad[1] == 1e5


class Wild:
    """A policy that is calm but for one action."""

    def __init__(self, policy, at):
        self.policy, self.calls, self.at = policy, 0, at

    def __call__(self, observation, *more):
        self.calls += 1
        action, base = self.policy(observation, *more)
        return np.zeros_like(action) + np.float32(1e6 if self.calls == self.at else 0.0), base

    def reset(self):
        self.policy.reset()


def walking(bundle, **config):
    robot = MockRobot(SPEC)
    robot.connect()
    loop = Controller(robot, PolicyRunner(bundle, SPEC), SafetyMachine(SPEC, SafetyConfig(**config)))
    loop.tick()
    loop.request("stand")
    loop.run(2.1)
    loop.request("start")
    return loop


def test_one_wild_action_among_calm_ones(tmp_path):
    """Its targets would be 2 rad off, the joints' limits; they come back as fast as they went."""
    wide = replace(CONTRACT, action=replace(CONTRACT.action, scale=(1.0,) * 4))
    loop = walking(tiny_bundle(tmp_path / "wide", wide), max_target_step_rad=0.3)
    loop.run(1.0)
    reports = []
    loop.runner._policy = Wild(loop.runner._policy, 3)
    loop.run(0.2, on_tick=reports.append)
    wanted = np.array([report.step.target.pos_rad for report in reports])
    sent = np.array([report.sent.pos_rad for report in reports])
    assert np.abs(np.diff(wanted, axis=0)).max() > 1.0
    assert np.abs(np.diff(sent, axis=0)).max() <= 0.3 + 1e-9
    np.testing.assert_allclose(sent[-1], wanted[-1])
    assert loop.safety.mode is Mode.POLICY


@pytest.mark.parametrize("value", [1e308, -1e308, 1e38, 3.5e38])
def test_commands_of_any_size_are_within_what_was_trained_without_a_warning(bundle, value):
    loop = walking(bundle)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.set_command((value, -value, value), loop.robot.now_s())
        report = loop.tick()
    sign = np.sign(value)
    np.testing.assert_allclose(report.step.command, [sign * 1.0, -sign * 0.5, sign * 1.0])
    assert report.mode is Mode.POLICY
    assert np.abs(report.requested).max() == MAX_COMMAND


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_damps(bundle, value):
    loop = walking(bundle)
    loop.set_command((value, 0.0, 0.0), loop.robot.now_s())
    report = loop.tick()
    assert (report.mode, report.fault.code) == (Mode.DAMP, FaultCode.NAN_COMMAND)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e308])
def test_goals_are_finite_and_bounded(value):
    asked = CommandBuffer(map_contract_for(SPEC), 0.5)
    for i in range(3):
        numbers = [0.0, 0.0, 0.0]
        numbers[i] = value
        with pytest.raises(SafetyError, match=r"The goal's .* is .*, expected a number from -1e\+06 to 1e\+06"):
            asked.set_goal(Goal(*numbers))
    assert asked.goal is None


def test_a_command_that_comes_while_a_goal_is_dropped_stays():
    """A goal that is forgotten takes nothing with it that has replaced it in between."""

    class Interrupted(CommandBuffer):
        @property
        def _newest(self):
            value = self._value
            if isinstance(value, Goal) and looks and looks.pop():
                thread = threading.Thread(target=lambda: self.set_command(np.ones(4), 1.0), daemon=True)
                thread.start()
                thread.join(0.2)  # a command that waits for its turn comes afterwards
                threads.append(thread)
            return value

        @_newest.setter
        def _newest(self, value):
            self._value = value

    looks, threads = [], []
    asked = Interrupted(map_contract_for(SPEC), 0.5)
    asked.set_goal(Goal(1.0, 0.0, 0.0))
    looks.append(True)
    asked.drop_goal()
    for thread in threads:
        thread.join(60.0)
    assert threads
    np.testing.assert_array_equal(asked.at(None, 1.0), np.ones(4))


def test_a_session_does_not_grow_with_time(bundle):
    """Memory that fifteen hundred ticks leave behind, on a robot that keeps nothing itself."""

    class Forgetful(MockRobot):
        def write(self, command):
            sent = super().write(command)
            self.commands.clear()
            return sent

    robot = Forgetful(SPEC)
    robot.connect()
    loop = Controller(robot, PolicyRunner(bundle, SPEC), SafetyMachine(SPEC))
    sizes, ticks = [], []
    session = WalkSession(loop, np.array([0.3, 0.0, 0.0]), 45.0, say=lambda line: None)
    tick = loop.tick

    def counted():
        report = tick()
        ticks.append(None)
        if len(ticks) in (500, 2000):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return report

    loop.tick = counted
    tracemalloc.start()
    session.run()
    tracemalloc.stop()
    assert session.completed
    assert session.tracking() == {"lin_vel_error_m_s": pytest.approx(0.3), "yaw_rate_error_rad_s": 0.0}
    # A tuple of two floats for every tick is 100 bytes or more.
    assert sizes[1] - sizes[0] < 30 * 1500


def test_a_mock_robot_does_not_grow_either():
    robot = MockRobot(SPEC)
    robot.connect()
    for _ in range(5000):
        robot.write(JointCommand.damping(SPEC))
    assert 1000 <= len(robot.commands) <= 2000
