"""The mock robot, the conformance kit that all backends share, and the registry."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from gantry_deploy.testing.legs import tiny_robot
from gantry_hardware import JointCommand, RobotError, UnknownNameError, plugins
from gantry_hardware.backends import registry as backends
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.registry import backend_names, check_options, make_backend, moves_metal, require_options
from gantry_hardware.backends.testing import ConformanceError, check_backend

SPEC = tiny_robot()


def connected(**options):
    robot = MockRobot(SPEC, **options)
    robot.connect()
    return robot


@pytest.mark.parametrize("realtime", [False, True])
def test_the_mock_passes_the_conformance_kit(realtime):
    check_backend(MockRobot(SPEC, realtime=realtime), hold_s=0.2)


class AgedStamps(MockRobot):
    def read(self):
        self.override(stamp_s=self.now_s() - 1.0)
        return super().read()


class SharedArrays(MockRobot):
    shared = np.zeros(4)

    def read(self):
        state = super().read()
        self.shared[:] = state.joint_pos_rad
        object.__setattr__(state, "joint_pos_rad", self.shared)
        return state


class Unlimited(MockRobot):
    def write(self, command):
        super().write(command)
        return command


class TakesEverything(MockRobot):
    def write(self, command):
        try:
            return super().write(command)
        except RobotError:
            return command


class BackwardsClock(MockRobot):
    def now_s(self):
        return -self._time_s


class Limp(MockRobot):
    def write(self, command):
        return super().write(JointCommand.passive(SPEC))


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (AgedStamps, "1.0000 s old"),
        (SharedArrays, "had been read changed"),
        (Unlimited, "beyond the upper limit"),
        (TakesEverything, "not a number"),
        (BackwardsClock, "sleep_until"),
        (Limp, "joint 'left_knee_joint' is 1.000 rad away"),
    ],
)
def test_the_conformance_kit_finds_a_broken_promise(broken, promise):
    pose = np.array([0.25, -0.5, 0.25, 0.5]) if broken is Limp else None
    with pytest.raises(ConformanceError, match=promise):
        check_backend(broken(SPEC, joint_pos_rad=pose), hold_s=0.1)


def test_only_stiff_joints_follow():
    robot = connected()
    stiffness = np.array([30.0, 0.0, 30.0, 0.0])
    goal = np.array([1.0, 1.0, 5.0, 1.0])
    robot.write(JointCommand(goal, np.zeros(4), np.zeros(4), stiffness, np.ones(4)))
    np.testing.assert_array_equal(robot.read().joint_pos_rad, [1.0, 0.5, 2.0, 0.5])
    assert robot.clamped == ["right_hip_joint: pos_rad 5 limited to 2"]


def test_a_frozen_robot_repeats_its_last_reading_while_the_clock_goes_on():
    robot = connected()
    robot.sleep_until(1.0)
    robot.freeze()
    robot.sleep_until(2.0)
    assert robot.now_s() == 2.0
    assert robot.read().stamp_s == 1.0
    robot.reset()
    assert robot.read().stamp_s == 2.0


def test_faults_on_demand():
    robot = connected()
    robot.set_nan("joint_vel_rad_s", 1)
    assert np.isnan(robot.read().joint_vel_rad_s[1])
    assert not robot.read().is_finite()
    robot.reset()
    robot.set_tilt(0.5)
    w, _, y, _ = robot.read().quat_base_to_world_wxyz
    assert 2 * np.arctan2(y, w) == pytest.approx(0.5)
    with pytest.raises(UnknownNameError, match="Did you mean 'joint_pos_rad'"):
        robot.override(joint_pos=np.zeros(4))


def test_a_robot_that_is_off_neither_reads_nor_takes_commands():
    with pytest.raises(RobotError, match="not connected"):
        MockRobot(SPEC).read()
    robot = connected()
    robot.disconnect()
    for action in (robot.read, robot.connect, lambda: robot.write(JointCommand.passive(SPEC))):
        with pytest.raises(RobotError, match="does not answer"):
            action()


def test_backends_are_found_by_name():
    assert {"mock", "mujoco", "ros"} <= set(backend_names())
    robot = make_backend("mock", SPEC, joint_pos_rad=np.zeros(4))
    robot.connect()
    np.testing.assert_array_equal(robot.read().joint_pos_rad, np.zeros(4))


def test_a_misspelt_backend_or_option_is_answered_with_the_near_miss():
    with pytest.raises(UnknownNameError, match=r"Unknown robot backend 'mok'\. Did you mean 'mock'\?"):
        make_backend("mok", SPEC)
    with pytest.raises(UnknownNameError, match=r"option of backend 'mock' 'realtim'\. Did you mean 'realtime'\?"):
        make_backend("mock", SPEC, realtim=True)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"realtime": "yes"}, r"Option 'realtime' of backend 'mock' is 'yes', expected true or false\."),
        ({"realtime": 1}, r"is 1, expected true or false\."),
        ({"realtimes": True}, r"Did you mean 'realtime'"),
    ],
)
def test_an_option_of_another_type_is_refused_in_words(option, message):
    with pytest.raises((RobotError, UnknownNameError), match=message):
        make_backend("mock", SPEC, **option)


def test_numbers_of_every_kind_are_told_from_what_is_none():
    pytest.importorskip("mujoco")
    for good in ({"friction": 1}, {"noise": 0.5}, {"seed": 3}, {"terrain": "t1"}, {}):
        check_options("mujoco", good)
    for bad in ({"friction": "abc"}, {"friction": True}, {"noise": None}, {"seed": 0.5}, {"friction": float("nan")}):
        with pytest.raises(RobotError, match=r"of backend 'mujoco' is .*, expected"):
            check_options("mujoco", bad)
    check_options("mock", {"joint_pos_rad": None})
    check_options("mock", {"joint_pos_rad": np.zeros(4)})


def test_a_backend_that_lacks_an_option_is_answered_with_those_that_have_it():
    pytest.importorskip("mujoco")
    require_options("mujoco", ("noise", "friction"), "The gate")
    with pytest.raises(RobotError, match=r"The gate needs .* 'mock' has no noise, friction\. Available: mujoco\."):
        require_options("mock", ("noise", "friction", "realtime"), "The gate")


class Elsewhere(MockRobot):
    """A simulator that another package offers."""


class Metal(MockRobot):
    simulated = False


class Vague(MockRobot):
    simulated = "perhaps"


@pytest.mark.parametrize(("robot", "metal"), [(Elsewhere, False), (Metal, True), (Vague, True), (connected, True)])
def test_a_backend_says_itself_whether_it_moves_metal(monkeypatch, robot, metal):
    """Any package's simulator runs without --yes; what says nothing is taken for a robot of metal."""
    monkeypatch.setitem(sys.modules, "elsewhere", types.SimpleNamespace(Robot=robot))
    entry = EntryPoint("elsewhere", "elsewhere:Robot", backends.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    assert moves_metal("elsewhere") is metal
    with pytest.raises(UnknownNameError, match="Did you mean 'elsewhere'"):
        moves_metal("elsewher")


def test_the_backends_of_the_house():
    expected = {"mock": False, "mujoco": False, "road": False, "workbench": False, "ros": True}
    found = {}
    for name in expected:
        try:
            found[name] = moves_metal(name)
        except RobotError:  # not installed here
            assert name != "mock"
    assert found == {name: expected[name] for name in found}
