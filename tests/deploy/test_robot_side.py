"""What a robot knows and does by itself, in the loop: faults, taking over, a remote controller, health."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyConfig, SafetyMachine
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.errors import SafetyError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import tiny_bundle, tiny_robot
from gantry_hardware import RobotError
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.testing import ConformanceError, check_backend

SPEC = tiny_robot()


class Held(MockRobot):
    """A robot that must be taken over, with a remote controller; it is told what to do by its attributes."""

    link_text = "interface 'eth0', DDS domain 0"
    holder = ""
    taken = 0
    requests: tuple[str, ...] = ()
    axes = np.zeros(3)

    def take_over(self):
        if self.holder:
            raise RobotError(f"the controller '{self.holder}' stays.")
        self.taken += 1

    def write(self, command):
        if not self.taken and command.stiffness_nm_rad.any():
            raise RobotError("not taken over")
        return super().write(command)

    def take_requests(self):
        taken, self.requests = list(self.requests), ()
        return taken

    def stick_axes(self):
        return self.axes

    def health(self):
        return {"battery_percent": 50.0}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("bundle"))


def held_loop(bundle=None):
    robot = Held(SPEC)
    robot.connect()
    runner = None if bundle is None else PolicyRunner(bundle, SPEC)
    return Controller(robot, runner, SafetyMachine(SPEC, SafetyConfig(stand_duration_s=0.1)), rate_hz=50.0)


def standing(loop):
    loop.tick()
    loop.request("stand")
    loop.run(0.3)
    return loop


def test_a_fault_that_the_robot_knows_damps_and_keeps_its_kind_and_text():
    loop = standing(held_loop())
    loop.robot.set_fault("motor_hot", "The motor of 'left_hip_joint' has 99 C.")
    report = loop.tick()
    assert report.mode is Mode.DAMP
    assert (report.fault.code, report.fault.kind) == ("robot", "motor_hot")
    assert loop.statistics()["fault"]["kind"] == "motor_hot"
    assert "has 99 C" in report.fault.text
    loop.robot.freeze()
    loop.run(0.2)
    assert loop.safety.fault.kind == "motor_hot", "the first cause is kept"


def test_a_reset_lets_the_robot_forget_its_fault_and_one_that_lasts_keeps_it_from_standing():
    loop = standing(held_loop())
    loop.robot.set_fault("battery_low", "The battery has 2 % left.")
    loop.tick()
    loop.request("reset")
    assert loop.robot.fault() is None
    loop.robot.set_fault("battery_low", "The battery has 2 % left.")
    assert loop.tick().mode is Mode.PASSIVE
    with pytest.raises(SafetyError, match="'stand' is refused in PASSIVE: The battery has 2 % left"):
        loop.request("stand")
    loop.run(0.4)
    with pytest.raises(SafetyError, match="The battery has 2 % left"):
        loop.request("stand")
    loop.run(0.4)  # Nobody can reset in PASSIVE: what does not come back is forgotten.
    loop.request("stand")


def test_a_robot_is_taken_over_before_it_stands_and_again_every_time():
    loop = held_loop()
    loop.tick()
    assert loop.robot.taken == 0
    loop.robot.holder = "mcf"
    with pytest.raises(SafetyError, match="'stand' is refused in PASSIVE: the controller 'mcf' stays"):
        loop.request("stand")
    loop.robot.holder = ""
    loop.request("stand")
    loop.tick()
    loop.request("stop")
    loop.tick()
    loop.request("stand")
    assert loop.robot.taken == 2


def test_a_robot_that_is_not_heard_is_named_with_its_place():
    loop = standing(held_loop())
    loop.robot.freeze()
    loop.run(0.2)
    assert loop.safety.fault.code == "stale_state"
    assert loop.safety.fault.text.endswith("It is on interface 'eth0', DDS domain 0.")


def test_the_remote_stands_starts_stops_and_resets(bundle):
    loop = held_loop(bundle)
    loop.tick()
    loop.robot.requests = ("start", "stand")  # The first is not possible now, and changes nothing.
    loop.tick()
    loop._side._standing.join()
    loop.run(0.3)
    assert loop.safety.mode is Mode.STAND
    loop.robot.requests = ("start",)
    loop.run(0.1)
    assert loop.safety.mode is Mode.POLICY
    loop.robot.requests = ("stop",)
    loop.run(0.1)
    assert loop.safety.mode is Mode.STAND
    loop.robot.set_fault("remote_stop", "The operator pressed L2+B.")
    loop.run(0.1)
    assert loop.safety.mode is Mode.DAMP
    loop.robot.requests = ("reset",)
    loop.run(0.1)
    assert (loop.safety.mode, loop.robot.fault()) == (Mode.PASSIVE, None)


def test_the_sticks_ask_for_a_velocity_within_the_trained_range_and_overrule_a_command(bundle):
    loop = held_loop(bundle)
    command = bundle.contract.command
    loop.set_command((0.1, 0.0, 0.0), loop.robot.now_s())
    assert loop.tick().requested.tolist() == [0.1, 0.0, 0.0]
    loop.robot.axes = np.array([0.5, 0.0, -1.0])
    np.testing.assert_allclose(loop.tick().requested, [0.5 * command.upper[0], 0.0, command.lower[2]])
    loop.robot.axes = np.zeros(3)
    assert loop.tick().requested.tolist() == [0.1, 0.0, 0.0]


def test_an_operators_stop_ends_a_supervised_run(bundle):
    loop, said = held_loop(bundle), []
    session = WalkSession(loop, np.zeros(3), 60.0, said.append)
    on_tick = session._on_tick

    def press(report):
        if report.mode is Mode.POLICY and not loop.robot.requests:
            loop.robot.requests = ("stop",)
        on_tick(report)

    session._on_tick = press
    session.run()
    assert [row["mode"] for row in session.modes] == ["STAND", "POLICY", "STAND"]
    assert not session.completed


def test_health_is_in_the_statistics_where_the_robot_tells_it():
    assert held_loop().statistics()["robot"] == {"battery_percent": 50.0}
    robot = MockRobot(SPEC)
    assert Controller(robot, None, SafetyMachine(SPEC)).statistics()["robot"] is None


class MovesForAnybody(Held):
    def write(self, command):
        return MockRobot.write(self, command)


class Faulty(MockRobot):
    def reset_faults(self):
        self.set_fault("broken", "It is broken.")


def test_the_conformance_kit_looks_at_taking_over_and_at_faults():
    check_backend(Held(SPEC), hold_s=0.2)
    with pytest.raises(ConformanceError, match="took a command before take_over"):
        check_backend(MovesForAnybody(SPEC), hold_s=0.2)
    with pytest.raises(ConformanceError, match="there is a fault: It is broken"):
        check_backend(Faulty(SPEC), hold_s=0.2)
