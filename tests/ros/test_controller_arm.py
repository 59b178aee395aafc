"""An arm behind controllers of ros2_control, over real DDS: it begins where it is, and stops when commands stop."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")

from std_msgs.msg import Float64MultiArray  # noqa: E402

from gantry_fixtures.controllers import FakeManager  # noqa: E402
from gantry_hardware import JointCommand, RobotError, UnknownNameError  # noqa: E402
from gantry_hardware.backends.registry import make_backend, moves_metal  # noqa: E402
from gantry_hardware.backends.testing import check_backend  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.nodes.controller_watch_node import ControllerWatch  # noqa: E402
from gantry_ros.runtime.availability import child_environment  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import isolated_environment, wait_until  # noqa: E402

YAM = robot_spec("yam")
HOME = YAM.array("default_rad")
REST = np.array([0.0, 0.4, 0.5, -0.2, 0.1, 0.0, 0.01])
FORWARD, TRAJECTORY = "forward_position_controller", "joint_trajectory_controller"


def make(**options):
    # Longer than its default: on a busy machine a thread may wait that long.
    defaults = {"command_timeout_s": 0.5, "discovery_s": 0.3, "connect_timeout_s": 20.0}
    return make_backend("ros2-control", YAM, **{**defaults, **options})


@pytest.fixture
def manager(monkeypatch):
    for name, value in isolated_environment().items():
        monkeypatch.setenv(name, value)
    with FakeManager(YAM, REST) as fake:
        yield fake


@pytest.mark.parametrize("name", [FORWARD, TRAJECTORY])
def test_it_passes_the_conformance_kit(manager, name):
    controller = manager.add(name)
    message = "positions" if name == FORWARD else "joint_trajectory"
    robot = make(controller=name, command_message=message, start_speed_rad_s=20.0)
    check_backend(robot, hold_s=1.5, max_age_s=1.0)
    assert controller.wrong == []
    assert controller.received > 20
    assert moves_metal("ros2-control")


def test_the_first_command_is_the_measured_pose_and_the_way_is_slow(manager):
    controller = manager.add(FORWARD)
    robot = make()
    robot.connect()
    try:
        assert controller.received == 0
        start_s = robot.now_s()
        first = robot.write(JointCommand.position(YAM, HOME))
        np.testing.assert_allclose(first.pos_rad, REST, atol=1e-9)
        for i in range(1, 10):
            robot.sleep_until(start_s + 0.02 * i)
            sent = robot.write(JointCommand.position(YAM, HOME))
            assert (np.abs(sent.pos_rad - REST) <= 0.5 * (robot.now_s() - start_s) + 1e-3).all()
        goal = JointCommand.position(YAM, HOME)
        wait_until(lambda: (robot.write(goal), np.abs(manager.pos - HOME).max() < 0.02)[1], "the default pose")
        assert list(controller.command) == list(reversed(YAM.joint_names)), "in the controller's own order"
        assert robot.write(JointCommand.damping(YAM)) is None
    finally:
        robot.close()


def test_it_is_held_when_commands_stop_and_when_it_is_closed(manager):
    controller = manager.add(FORWARD)
    robot = make(start_speed_rad_s=1.0)
    robot.connect()
    far = JointCommand.position(YAM, HOME + np.array([2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    wait_until(lambda: (robot.write(far), manager.pos[0] > 0.3)[1], "an arm on its way")
    wait_until(lambda: robot.statistics()["holds"] >= 1, "a hold")
    wait_until(lambda: abs(controller.command["joint1"] - manager.pos[0]) < 1e-3, "an arm at its hold")
    assert manager.pos[0] < 1.9
    again = robot.write(far)
    np.testing.assert_allclose(again.pos_rad[0], manager.pos[0], atol=0.05)
    wait_until(lambda: (robot.write(far), manager.pos[0] > controller.command["joint1"] - 0.2)[1], "another start")
    robot.close()
    wait_until(lambda: abs(controller.command["joint1"] - manager.pos[0]) < 0.05, "a hold at the end")


def test_switching_on_far_from_the_last_command_moves_nothing(manager):
    controller = manager.add(FORWARD, active=False)
    controller.command = dict(zip(YAM.joint_names, HOME + 1.0, strict=True))  # Of an earlier commander.
    robot = make(activate=f"/{FORWARD}/set_active")
    robot.connect()
    try:
        wait_until(lambda: controller.active, "a controller that is on")
        before, stamp_s = manager.moved, robot.read().stamp_s
        wait_until(lambda: robot.read().stamp_s > stamp_s + 0.3, "some joint states")
        assert manager.moved - before < 1e-6
        np.testing.assert_allclose(manager.pos, REST, atol=1e-6)
    finally:
        robot.close()
    assert not controller.active


def test_a_gripper_with_a_controller_of_its_own(manager):
    arm = manager.add(FORWARD, list(YAM.joint_names[:-1]))
    gripper = manager.add("gripper_controller", [YAM.joint_names[-1]])
    robot = make(gripper_controller="gripper_controller", start_speed_rad_s=20.0)
    robot.connect()
    try:
        goal = JointCommand.position(YAM, HOME)
        wait_until(lambda: (robot.write(goal), np.abs(manager.pos - HOME).max() < 0.01)[1], "both at their targets")
        assert (arm.wrong, gripper.wrong) == ([], [])
    finally:
        robot.close()


# Faults


@pytest.mark.parametrize(
    ("joints", "interface", "text"),
    [
        (
            ["joint1", "joint2"],
            "position",
            r"has the joints joint1, joint2; expected those of 'yam': joint1",
        ),
        (None, "velocity", r"'forward_position_controller' commands velocity; expected position alone"),
    ],
)
def test_a_controller_of_another_kind_is_refused(manager, joints, interface, text):
    controller = manager.add(FORWARD, joints, interface=interface)
    with pytest.raises(RobotError, match=text):
        make().connect()
    assert controller.received == 0


def test_a_missing_controller_is_named_with_what_there_is(manager):
    manager.add(FORWARD)
    with pytest.raises(RobotError, match=r"No controller listens on /forward_controller/commands .*/forward_pos"):
        make(controller="forward_controller").connect()


def test_a_second_commander_stops_it(manager):
    manager.add(FORWARD)
    robot, other = make(), NodeHost("intruder")
    robot.connect()
    try:
        hold = JointCommand.position(YAM, REST)
        robot.write(hold)
        publisher = other.node.create_publisher(Float64MultiArray, f"/{FORWARD}/commands", 10)

        def refused():
            publisher.publish(Float64MultiArray(data=HOME.tolist()))
            try:
                robot.write(hold)
            except RobotError as error:
                return "intruder" in str(error)
            return False

        wait_until(refused, "a refusal that names the other")
    finally:
        robot.close()
        other.close()


def test_old_joint_states_begin_nothing(manager):
    controller = manager.add(FORWARD)
    robot = make()
    robot.connect()
    try:
        manager.silent = True
        wait_until(lambda: robot.now_s() - robot.read().stamp_s > 0.7, "old joint states")
        with pytest.raises(RobotError, match=r"begins only from ones younger than 0\.5 s"):
            robot.write(JointCommand.position(YAM, HOME))
        assert controller.received == 0
    finally:
        robot.close()


def test_options_are_checked():
    with pytest.raises(UnknownNameError, match="Did you mean 'positions'"):
        make(command_message="position")
    with pytest.raises(RobotError, match="which is no arm"):
        make_backend("ros2-control", robot_spec("go2"))


@pytest.mark.skipif(importlib.util.find_spec("controller_manager_msgs") is not None, reason="the package is installed")
def test_the_controller_manager_needs_its_messages(manager):
    manager.add(FORWARD)
    with pytest.raises(RobotError, match="needs the package controller_manager_msgs"):
        make(activate="controller_manager").connect()


COMMANDER = """
import numpy as np
from gantry_hardware import JointCommand
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.robots import robot_spec
spec = robot_spec("yam")
arm = make_backend("ros2-control", spec, discovery_s=0.3, start_speed_rad_s=0.3)
arm.connect()
goal = JointCommand.position(spec, spec.array("default_rad") + [2.0, 0, 0, 0, 0, 0, 0])
while True:
    arm.write(goal)
    arm.sleep_until(arm.now_s() + 0.02)
"""


def test_a_commander_that_is_killed_is_noticed_by_the_watch(manager):
    """It dies while the arm presses on something: the controller is told to stop pressing, and to keep its grip."""
    controller, manager.wall_rad, manager.grip_m = manager.add(FORWARD), 0.3, 0.02
    with NodeHost("controller_watch_node") as host:
        host.start()
        values = {"robot": "yam", "controller": FORWARD, "command_timeout_s": 0.5, "hold_s": 2.0}
        watch = ControllerWatch(host, values)
        commander = subprocess.Popen([sys.executable, "-c", COMMANDER], env=child_environment())
        try:
            wait_until(lambda: (controller.command or {}).get("joint1", 0.0) > 0.5, "an arm that presses")
        finally:
            commander.kill()
            commander.wait()
        assert manager.pos[0] == 0.3
        wait_until(lambda: watch.holds == 1, "a hold")
        wait_until(lambda: controller.command["joint1"] == pytest.approx(0.3), "an arm that does not press")
        assert controller.command["left_finger"] == pytest.approx(HOME[-1]), "its target, not where it is"
        wait_until(lambda: watch._publisher is None, "a watch that is no commander any more")
