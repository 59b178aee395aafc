"""Messages of arms, there and back, what is refused, and how a simulated arm follows what its controllers take."""

from __future__ import annotations

import json
from array import array

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from builtin_interfaces.msg import Duration, Time  # noqa: E402
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint  # noqa: E402

from gantry_bringup.description import find_launch  # noqa: E402
from gantry_fixtures.arm import arm_bundle, arm_contract_for, with_cameras  # noqa: E402
from gantry_hardware.backends.registry import make_backend  # noqa: E402
from gantry_hardware.backends.state import JointCommand  # noqa: E402
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import arm as convert_arm  # noqa: E402
from gantry_ros.robots import arm_commands  # noqa: E402
from gantry_ros.simulated.command_inputs import Follower  # noqa: E402

YAM = robot_spec("yam")
HOME = YAM.array("default_rad")
NOW = Time(sec=5, nanosec=7)


def test_one_point_of_a_trajectory_comes_back_whatever_its_order():
    names = ["joint3", "left_finger", "joint1"]
    message = convert_arm.trajectory_message(names, np.array([0.3, 0.01, 0.1]), 0.05)
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (0, 0)  # At once.
    assert len(message.points[0].velocities) == 0
    path = convert_arm.path_of_trajectory(message, YAM)
    np.testing.assert_array_equal(path.joints, [2, 6, 0])
    np.testing.assert_allclose(path.times_s, [0.05])
    np.testing.assert_allclose(path.pos_rad, [[0.3, 0.01, 0.1]])


def trajectory(names, *points):
    return JointTrajectory(
        joint_names=names,
        points=[
            JointTrajectoryPoint(positions=array("d", pos), time_from_start=Duration(nanosec=int(t * 1e9)))
            for t, pos in points
        ],
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (trajectory(["joint1", "joint9"], (0.1, [0.0, 0.0])), "'joint9'. Did you mean 'joint"),
        (trajectory(["joint1", "joint1"], (0.1, [0.0, 0.0])), "joint1, joint1, expected each once"),
        (trajectory([], (0.1, [])), r"\(none\), expected each once"),
        (trajectory(["joint1"]), "has no points"),
        (trajectory(["joint1"], (0.1, [0.0, 1.0])), "has 2 positions for 1 joints"),
        (trajectory(["joint1"], (0.2, [0.0]), (0.1, [0.0])), "expected increasing ones"),
        (trajectory(["joint1"], (0.1, [np.nan])), "not finite"),
    ],
)
def test_a_trajectory_that_is_none_is_refused(message, text):
    with pytest.raises(RobotError, match=text):
        convert_arm.path_of_trajectory(message, YAM)


def test_an_array_of_positions_is_judged_by_its_length_and_by_its_labels_if_it_has_some():
    joints = list(range(6))
    message = convert_arm.positions_message(YAM.joint_names[:6], np.arange(6.0))
    path = convert_arm.path_of_positions(message, joints, YAM)
    np.testing.assert_array_equal(path.pos_rad, [np.arange(6.0)])
    np.testing.assert_array_equal(path.times_s, [0.0])
    message.layout.dim = []
    np.testing.assert_array_equal(convert_arm.path_of_positions(message, joints, YAM).pos_rad, [np.arange(6.0)])
    with pytest.raises(RobotError, match="has 6 positions, expected those of left_finger"):
        convert_arm.path_of_positions(message, [6], YAM)
    swapped = convert_arm.positions_message(YAM.joint_names[:6][::-1], np.arange(6.0))
    with pytest.raises(RobotError, match=r"of joint6, joint5, .*, expected those of joint1, joint2"):
        convert_arm.path_of_positions(swapped, joints, YAM)


def test_a_follower_goes_straight_from_where_it_is_and_stays_at_the_end():
    follower = Follower(np.array([0.0, 1.0, 2.0]))
    np.testing.assert_array_equal(follower.at(-5.0), [0.0, 1.0, 2.0])
    follower.follow(convert_arm.Path(np.array([2, 0]), np.array([0.1, 0.2]), np.array([[4.0, 1.0], [4.0, 3.0]])), 10.0)
    np.testing.assert_allclose(follower.at(10.05), [0.5, 1.0, 3.0])
    np.testing.assert_allclose(follower.at(10.15), [2.0, 1.0, 4.0])
    # A new path for one joint begins where it is; the others go on.
    follower.follow(convert_arm.Path(np.array([0]), np.zeros(1), np.array([[9.0]])), 10.15)
    np.testing.assert_allclose(follower.at(10.16), [9.0, 1.0, 4.0])
    np.testing.assert_allclose(follower.at(99.0), [9.0, 1.0, 4.0])


def test_poses_keep_the_order_of_their_quaternion_and_their_frame():
    pose = np.array([0.3, -0.1, 0.02, 0.5, 0.5, -0.5, 0.5])
    message = convert_arm.pose_message(pose, NOW, "base_link")
    assert (message.pose.orientation.w, message.pose.orientation.y) == (0.5, -0.5)
    np.testing.assert_allclose(convert_arm.pose(message, "base_link"), pose)
    with pytest.raises(RobotError, match="in frame 'base_link', expected 'map'"):
        convert_arm.pose(message, "map")
    message.pose.orientation.w = 2.0
    with pytest.raises(RobotError, match=r"norm 2\.18, expected 1"):
        convert_arm.pose(message, "base_link")
    message.pose.position.x = np.inf
    with pytest.raises(RobotError, match="not finite"):
        convert_arm.place(message, "base_link")


def test_pictures_come_back_in_either_order_of_colours_and_with_padded_rows():
    pixels = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 2, 4)
    message = convert_arm.picture_message(pixels, NOW, "wrist")
    np.testing.assert_array_equal(convert_arm.picture(message), pixels)
    message.encoding = "bgr8"
    np.testing.assert_array_equal(convert_arm.picture(message), pixels[::-1])
    rows = np.frombuffer(message.data, np.uint8).reshape(2, 12)
    message.data, message.step = array("B", np.pad(rows, ((0, 0), (0, 4))).tobytes()), 16
    np.testing.assert_array_equal(convert_arm.picture(message), pixels[::-1])
    message.encoding = "mono8"
    with pytest.raises(RobotError, match="'mono8', expected rgb8 or bgr8"):
        convert_arm.picture(message)


def test_messages_that_cannot_do_what_is_asked_are_refused():
    with pytest.raises(RobotError, match="'go2', which is no arm, cannot be damped; expected 'joint_command'"):
        make_backend("ros", robot_spec("go2"), command_message="positions")
    with pytest.raises(UnknownNameError, match="Did you mean 'positions'"):
        make_backend("ros", YAM, command_message="position")
    assert arm_commands.chosen_message(YAM, "") == "joint_trajectory"
    # Neither limp nor damped can be said by positions alone.
    assert not arm_commands.is_expressible(JointCommand.damping(YAM))
    assert arm_commands.is_expressible(JointCommand.position(YAM, HOME))


def test_a_gripper_command_needs_its_package():
    try:
        from control_msgs.msg import GripperCommand  # noqa: F401
    except ImportError:
        with pytest.raises(RobotError, match="control_msgs, which is not installed here"):
            arm_commands.gripper_command_type()
    else:
        assert arm_commands.gripper_command_type()(position=0.5).position == 0.5


def test_sim_arm_is_an_arm_at_the_task_of_its_bundle_and_a_policy(tmp_path):
    pytest.importorskip("mujoco")
    path = str(arm_bundle(tmp_path / "b", with_cameras(arm_contract_for(YAM), "wrist", size_px=84), steps=1).path)
    with pytest.raises(GantryError, match="does not say what it was trained on; name it with task:="):
        find_launch("sim_arm").nodes({"bundle": path})
    robot, policy = find_launch("sim_arm").nodes(
        {"bundle": path, "task": "yam-push", "seed": "3", "command_message": "positions", "options": '{"noise": 1.0}'}
    )
    options = json.loads(str(robot.parameters.pop("options")))
    assert options == {"task": "yam-push", "seed": 3, "pictures_px": 84, "cameras": "wrist", "noise": 1.0}
    assert robot.parameters == {"robot": "yam", "backend": "workbench"}
    assert policy.parameters == {"bundle": path, "command_message": "positions", "auto_start": True}
    with pytest.raises(UnknownNameError, match="option of backend 'workbench' 'tsk'"):
        find_launch("sim_arm").nodes({"bundle": path, "task": "yam-push", "options": '{"tsk": 1}'})
    with pytest.raises(GantryError, match="'go2' is a robot with legs; start sim_walk"):
        find_launch("sim_arm").nodes({"bundle": "pretrained:go2-walk"})


def test_the_topics_of_a_real_arm_can_be_named():
    given = {"bundle": "b", "arm_command": "/jtc/joint_trajectory", "object_pose": "tags/cube"}
    (policy,) = find_launch("robot").nodes(given)
    assert policy.remappings == (
        ("object_pose", "tags/cube"),
        ("arm_controller/joint_trajectory", "/jtc/joint_trajectory"),
        ("arm_controller/commands", "/jtc/joint_trajectory"),
    )
