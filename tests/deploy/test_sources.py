"""Command sources: the choice among them, a person who corrects a policy, and hand-overs without a jump."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.modes import ACTING, Mode, Role, Transition
from gantry_deploy.control.safety import SafetyConfig, SafetyMachine
from gantry_deploy.control.sources import CommandSource, HandOver, OperatorSource, ScriptedSource
from gantry_deploy.control.ticks import SourceCommand, Tick
from gantry_deploy.errors import SafetyError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder, read_recording
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware import RobotError
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.state import JointCommand

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)
STEP_RAD = 0.05
AWAY = JointCommand.position(SPEC, np.array([0.9, -0.4, 0.8, 0.1]))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("sources") / "bundle", CONTRACT)


class Person(CommandSource):
    """A source of a package that the loop knows nothing of: a person who pulls at the robot corrects its policy."""

    name, role, priority = "person", Role.TASK, 50

    def __init__(self):
        self.pulls, self.begun = False, []

    def willing(self, tick):
        return self.pulls

    def begin(self, tick):
        self.begun.append(tick)

    def command(self, tick):
        return SourceCommand(AWAY)


def controller(bundle, *others, recorder=None, **config):
    robot = MockRobot(SPEC)
    robot.connect()
    machine = SafetyMachine(SPEC, SafetyConfig(**config))
    for other in others:
        machine.add_source(other)
    return Controller(robot, None if bundle is None else PolicyRunner(bundle, SPEC), machine, recorder)


def started(loop):
    loop.tick()
    loop.request("stand")
    loop.run(2.1)
    loop.request("start")
    return loop


def run(loop, seconds):
    reports = []
    loop.run(seconds, lambda _: (0.5, 0.0, 0.0), on_tick=reports.append)
    return reports


def sources(reports):
    return {report.source for report in reports}


def test_every_mode_has_a_role_and_damp_none_but_the_brake():
    assert set(ACTING) == set(Mode)
    assert [mode for mode, role in ACTING.items() if role is Role.BRAKE] == [Mode.DAMP]
    assert [mode for mode, role in ACTING.items() if role is Role.TASK] == [Mode.POLICY]


def test_the_report_names_the_source_of_each_mode(bundle):
    loop = controller(bundle)
    assert loop.tick().source == "idle"
    loop.request("stand")
    assert sources(run(loop, 2.1)) == {"idle"}
    loop.request("start")
    assert sources(run(loop, 0.1)) == {"policy"}
    loop.request("estop")
    assert sources(run(loop, 0.1)) == {"brake"}
    loop.request("reset")
    assert loop.tick().source == "idle"


def test_a_person_takes_over_and_gives_back_within_the_slew_limit(bundle):
    person = Person()
    loop = started(controller(bundle, person, max_target_step_rad=STEP_RAD))
    reports = run(loop, 0.2)
    before = reports[-1].sent
    person.pulls = True
    reports += run(loop, 1.0)
    (tick,) = person.begun
    assert tick.last is before, "a source is given what was really sent last"
    assert tick.last_role is Role.TASK
    np.testing.assert_array_equal(reports[-1].sent.pos_rad, AWAY.pos_rad)
    person.pulls = False
    reports += run(loop, 1.0)
    assert [report.source for report in reports] == ["policy"] * 10 + ["person"] * 50 + ["policy"] * 50
    assert {report.mode for report in reports} == {Mode.POLICY}
    sent = np.array([report.sent.pos_rad for report in reports])
    assert np.abs(np.diff(sent, axis=0)).max() <= STEP_RAD + 1e-9
    np.testing.assert_allclose(sent[-1], reports[-1].step.target.pos_rad)
    assert all((report.step is None) == (report.source == "person") for report in reports)
    # The policy began anew, 50 ticks ago.
    assert loop.runner.time_s == pytest.approx(1.0)


def test_a_fault_brakes_within_the_tick_whoever_acts(bundle):
    person = Person()
    loop = started(controller(bundle, person, limit_ticks=1))
    person.pulls = True
    assert sources(run(loop, 0.1)) == {"person"}
    loop.robot.set_tilt(1.5)
    report = loop.tick()
    assert (report.mode, report.source, report.fault.code) == (Mode.DAMP, "brake", "tilt")
    assert not report.sent.stiffness_nm_rad.any()


def test_a_person_does_not_act_while_the_robot_stands_or_is_damped(bundle):
    person = Person()
    person.pulls = True
    loop = controller(bundle, person)
    loop.request("stand")
    assert sources(run(loop, 0.1)) == {"idle"}
    loop.request("estop")
    assert sources(run(loop, 0.1)) == {"brake"}


@pytest.mark.parametrize("method", ["willing", "begin", "command"])
def test_a_source_that_breaks_brakes_in_the_same_tick(bundle, method, caplog):
    person = Person()
    loop = started(controller(bundle, person))
    run(loop, 0.1)

    def broken(tick):
        raise RuntimeError("the leader arm is unplugged")

    person.pulls = True
    setattr(person, method, broken)
    report = loop.tick()
    assert (report.mode, report.source, report.fault.code) == (Mode.DAMP, "brake", "source")
    assert report.fault.text == "The person broke: RuntimeError: the leader arm is unplugged"
    assert "Traceback" in caplog.text
    assert not report.sent.stiffness_nm_rad.any()


def test_the_error_of_a_source_is_told_with_its_name():
    def refuses(tick: Tick) -> JointCommand:
        raise RobotError("the leader arm answers no more.")

    report = started(controller(None, ScriptedSource(refuses, "leader"))).tick()
    assert (report.fault.code, report.fault.text) == ("source", "The leader: the leader arm answers no more.")


def test_numbers_of_a_source_that_are_none_are_not_sent(bundle):
    nan = replace(AWAY, pos_rad=np.full(4, np.nan))
    loop = started(controller(None, ScriptedSource(lambda tick: nan, hand_over_s=0.0)))
    report = loop.tick()
    assert (report.mode, report.source, report.fault.code) == (Mode.DAMP, "brake", "nan_command")
    assert report.fault.text == "The script's joint targets are not finite."
    assert all(command.is_finite() for command in loop.robot.commands)


def test_a_mode_without_a_willing_source_brakes():
    loop = started(controller(None, Person()))
    report = loop.tick()
    assert (report.mode, report.source, report.fault.code) == (Mode.DAMP, "brake", "source")
    assert report.fault.text == "No command source is willing to act in POLICY; asked: person."


def test_the_same_source_begins_anew_in_a_mode_that_was_entered_again(bundle):
    person = Person()
    person.pulls = True
    loop = started(controller(bundle, person))
    run(loop, 0.1)
    loop.request("stop")
    run(loop, 2.1)
    loop.request("start")
    run(loop, 0.1)
    assert [tick.transition.number for tick in person.begun] == [2, 4]
    assert [tick.last_role for tick in person.begun] == [Role.IDLE] * 2


def test_two_sources_of_one_name_or_priority_are_refused(bundle):
    machine = controller(bundle, Person()).safety
    with pytest.raises(SafetyError, match="'person' of role 'task' and priority 50 clashes with 'person'"):
        machine.add_source(Person())
    with pytest.raises(SafetyError, match="'twin' of role 'task' and priority 10 clashes with 'policy'"):
        machine.add_source(ScriptedSource(lambda tick: AWAY, "twin", 10))


def test_a_listener_hears_every_change_of_the_mode_in_order():
    machine, heard = SafetyMachine(SPEC), []
    machine.add_listener(heard.append)
    for event in ("stand", "stop", "estop", "estop", "reset"):
        machine.request(event)
    modes = [Mode.PASSIVE, Mode.STAND, Mode.PASSIVE, Mode.DAMP, Mode.PASSIVE]
    assert heard == [Transition(i + 1, modes[i], modes[i + 1]) for i in range(4)]
    assert machine.transition == heard[-1]


def test_an_operator_acts_while_commands_come(bundle):
    person = OperatorSource(timeout_s=0.11, hand_over_s=0.2)
    loop = started(controller(bundle, person))
    before = run(loop, 0.2)[-1].sent.pos_rad
    person.set_target(AWAY, loop.robot.now_s())
    reports = run(loop, 0.3)
    # Commands up to 0.11 s of age count, so that the source acts in the ticks at 0, 0.02, ... 0.1 s.
    assert [report.source for report in reports] == ["operator"] * 6 + ["policy"] * 9
    sent = np.array([report.sent.pos_rad for report in reports])
    np.testing.assert_allclose(sent[0], before)
    np.testing.assert_allclose(sent[5], 0.5 * (before + AWAY.pos_rad))  # half of the time is half of a cosine ramp
    np.testing.assert_allclose(sent[6], sent[5])  # the policy takes over from there
    person.set_target(AWAY, loop.robot.now_s())
    assert loop.tick().source == "operator"
    person.set_target(None, loop.robot.now_s())
    assert loop.tick().source == "policy"


def test_a_command_that_is_taken_back_while_it_is_asked_for_is_no_fault(bundle):
    class Hesitant(OperatorSource):
        def begin(self, tick):
            super().begin(tick)
            self.set_target(None, tick.now_s)

    person = Hesitant(timeout_s=0.1)
    loop = started(controller(bundle, person))
    run(loop, 0.1)
    person.set_target(AWAY, loop.robot.now_s())
    assert [report.source for report in run(loop, 0.04)] == ["operator", "policy"]
    assert loop.safety.mode is Mode.POLICY


def test_a_script_needs_no_policy(bundle):
    loop = started(controller(None, ScriptedSource(lambda tick: AWAY, hand_over_s=0.2)))
    reports = run(loop, 0.4)
    assert sources(reports) == {"script"}
    np.testing.assert_allclose(reports[0].sent.pos_rad, loop.robot.spec.array("default_rad"))
    np.testing.assert_array_equal(reports[-1].sent.pos_rad, AWAY.pos_rad)


def test_a_hand_over_follows_a_cosine_ramp_for_joints_that_are_held():
    hand_over = HandOver(1.0)
    hand_over.begin(AWAY, 5.0)
    loose = np.array([0.0, 30.0, 30.0, 30.0])
    wanted = replace(AWAY, pos_rad=np.zeros(4), stiffness_nm_rad=loose)
    for after_s, share in ((0.0, 1.0), (0.25, 0.5 + 0.25 * 2**0.5), (0.5, 0.5), (1.0, 0.0), (9.0, 0.0)):
        expected = np.where(loose > 0.0, share * AWAY.pos_rad, 0.0)
        np.testing.assert_allclose(hand_over.blend(wanted, 5.0 + after_s).pos_rad, expected, atol=1e-12)


def test_after_damping_there_is_nothing_to_start_from():
    hand_over = HandOver(1.0)
    for last in (None, JointCommand.damping(SPEC)):
        hand_over.begin(last, 0.0)
        np.testing.assert_array_equal(hand_over.blend(AWAY, 0.0).pos_rad, AWAY.pos_rad)


def test_a_recording_tells_the_source_of_each_tick(bundle, tmp_path):
    person = Person()
    with Recorder(tmp_path / "a.mcap", CONTRACT, SPEC, lossless=True) as recorder:
        loop = started(controller(bundle, person, recorder=recorder))
        run(loop, 0.1)
        person.pulls = True
        run(loop, 0.1)
    told = read_recording(tmp_path / "a.mcap")["/gantry/status"]["source"].tolist()
    assert told == ["idle"] * 106 + ["policy"] * 5 + ["person"] * 5


def test_a_source_that_asks_for_an_emergency_stop_is_overruled_by_the_brake(bundle):
    def stops(tick: Tick) -> JointCommand:
        loop.request("estop")
        return AWAY

    loop = started(controller(bundle, ScriptedSource(stops, priority=11)))
    report = loop.tick()
    assert (report.mode, report.source, report.fault.code) == (Mode.DAMP, "brake", "operator_stop")
    assert not report.sent.stiffness_nm_rad.any()
