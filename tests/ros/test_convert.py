"""The conversion between messages and arrays: orders, units and refusals."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time  # noqa: E402
from geometry_msgs.msg import Twist, TwistStamped  # noqa: E402
from rclpy.serialization import deserialize_message, serialize_message  # noqa: E402
from sensor_msgs.msg import Imu, JointState  # noqa: E402

from gantry_deploy.recording.ros_messages import COMMAND_INTERFACES  # noqa: E402
from gantry_deploy.testing.legs import tiny_robot  # noqa: E402
from gantry_hardware.backends.state import JointCommand, RobotState  # noqa: E402
from gantry_hardware.errors import RobotError, UnknownNameError  # noqa: E402
from gantry_ros.convert import robot as convert  # noqa: E402

SPEC = tiny_robot()
STAMP = Time(sec=3, nanosec=5)


def make_state(**changes) -> RobotState:
    values = {
        "stamp_s": 7.0,
        "joint_pos_rad": np.array([0.1, 0.2, 0.3, 0.4]),
        "joint_vel_rad_s": np.array([1.0, 2.0, 3.0, 4.0]),
        "joint_effort_nm": np.array([10.0, 20.0, 30.0, 40.0]),
        # 90 degrees about x: w and x are equal, so only their places tell them apart from y and z.
        "quat_base_to_world_wxyz": np.array([0.8, 0.6, 0.0, 0.0]),
        "ang_vel_base_in_base_rad_s": np.array([0.1, -0.2, 0.3]),
        "lin_acc_base_in_base_m_s2": np.array([0.0, 0.0, 9.81]),
        "pos_base_in_world_m": np.array([1.0, 2.0, 0.3]),
        "lin_vel_base_in_base_m_s": np.array([0.5, 0.0, -0.1]),
        "foot_contact": np.array([True, False]),
        "quat_base_to_odom_wxyz": np.array([0.6, 0.0, 0.0, 0.8]),
    }
    return RobotState(**{**values, **changes})


def over_the_wire(message):
    """A message as the other side gets it."""
    return deserialize_message(serialize_message(message), type(message))


def test_a_state_survives_the_wire_in_every_field():
    sent = make_state()
    joints = over_the_wire(convert.joint_state_message(SPEC, sent, STAMP))
    imu = over_the_wire(convert.imu_message(sent, STAMP))
    odometry = over_the_wire(convert.odometry_message(sent, STAMP))
    contacts = over_the_wire(convert.foot_contact_message(SPEC, sent))
    got = convert.robot_state(convert.JointStateReader(SPEC)(joints), imu, 7.0, odometry, contacts)
    for field in RobotState.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(got, field), getattr(sent, field), err_msg=field)
    assert (joints.header.stamp.sec, joints.header.stamp.nanosec) == (3, 5)
    assert (odometry.header.frame_id, odometry.child_frame_id) == ("odom", "base_link")
    assert contacts.layout.dim[0].label == "left,right"


def test_ros_quaternions_are_x_y_z_w():
    orientation = convert.imu_message(make_state(), STAMP).orientation
    assert (orientation.x, orientation.y, orientation.z, orientation.w) == (0.6, 0.0, 0.0, 0.8)


def test_a_state_without_odometry_or_contacts_sends_neither():
    state = make_state(pos_base_in_world_m=None, foot_contact=None)
    assert convert.odometry_message(state, STAMP) is None
    assert convert.foot_contact_message(SPEC, state) is None


def test_joint_states_are_sent_without_empty_arrays():
    state = convert.joint_state_message(SPEC, make_state(), STAMP)
    command = convert.CommandCodec(SPEC).message(JointCommand.damping(SPEC), STAMP)
    for message in (state, command):
        assert len(message.name) == len(message.position) == len(message.velocity) == len(message.effort) > 0


def test_joints_in_another_order_are_refused_with_both_lists():
    message = convert.joint_state_message(SPEC, make_state(), STAMP)
    message.name = message.name[::-1]
    with pytest.raises(RobotError) as refusal:
        convert.JointStateReader(SPEC)(message)
    assert ", ".join(SPEC.joint_names) in str(refusal.value)
    assert ", ".join(SPEC.joint_names[::-1]) in str(refusal.value)
    assert "by_name" in str(refusal.value)


def test_joints_in_another_order_are_sorted_on_request_and_strangers_left_out():
    message = JointState(
        name=["gripper", *SPEC.joint_names[::-1]],
        position=[9.0, 4.0, 3.0, 2.0, 1.0],
        velocity=[9.0, 40.0, 30.0, 20.0, 10.0],
    )
    joints = convert.JointStateReader(SPEC, by_name=True)(message)
    np.testing.assert_array_equal(joints.pos_rad, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(joints.vel_rad_s, [10.0, 20.0, 30.0, 40.0])
    np.testing.assert_array_equal(joints.effort_nm, np.zeros(4))


def test_a_misspelt_joint_is_answered_with_the_near_miss():
    message = convert.joint_state_message(SPEC, make_state(), STAMP)
    message.name = ["left_hip_jiont", *message.name[1:]]
    for by_name in (False, True):
        with pytest.raises(RobotError, match="Did you mean 'left_hip_jiont'"):
            convert.JointStateReader(SPEC, by_name=by_name)(message)


def test_a_joint_that_is_named_twice_is_refused():
    message = convert.joint_state_message(SPEC, make_state(), STAMP)
    message.name = [*message.name, message.name[0]]
    message.position = message.velocity = message.effort = array("d", range(5))
    with pytest.raises(RobotError, match=r"left_hip_joint, .*left_hip_joint"):
        convert.JointStateReader(SPEC, by_name=True)(message)


def test_joint_states_without_velocities_are_refused():
    with pytest.raises(RobotError, match="0 numbers in 'velocity' for its 4 joints"):
        convert.JointStateReader(SPEC)(JointState(name=list(SPEC.joint_names), position=[0.0] * 4))


def test_names_that_change_on_the_way_are_noticed():
    reader = convert.JointStateReader(SPEC, by_name=True)
    message = convert.joint_state_message(SPEC, make_state(), STAMP)
    np.testing.assert_array_equal(reader(message).pos_rad, [0.1, 0.2, 0.3, 0.4])
    message.name = message.name[::-1]
    np.testing.assert_array_equal(reader(message).pos_rad, [0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_an_orientation_that_is_no_unit_quaternion_is_refused(scale):
    imu = convert.imu_message(make_state(), STAMP)
    imu.orientation.x, imu.orientation.w = 0.6 * scale, 0.8 * scale
    joints = convert.JointStateReader(SPEC)(convert.joint_state_message(SPEC, make_state(), STAMP))
    with pytest.raises(RobotError, match=f"norm {scale}, expected 1"):
        convert.robot_state(joints, imu, 0.0)


@pytest.mark.parametrize("imu", [Imu(orientation_covariance=[-1.0] + [0.0] * 8), Imu()], ids=["says so", "all zeros"])
def test_an_imu_without_orientation_is_refused(imu):
    imu.orientation.w = 1.0 if imu.orientation_covariance[0] == -1.0 else 0.0
    joints = convert.JointStateReader(SPEC)(convert.joint_state_message(SPEC, make_state(), STAMP))
    with pytest.raises(RobotError, match="orientation"):
        convert.robot_state(joints, imu, 0.0)


def test_nan_passes_so_that_safety_can_name_it():
    state = make_state(quat_base_to_world_wxyz=np.full(4, np.nan))
    joints = convert.JointStateReader(SPEC)(convert.joint_state_message(SPEC, state, STAMP))
    assert not convert.robot_state(joints, convert.imu_message(state, STAMP), 0.0).is_finite()


def test_torques_that_are_nan_throughout_are_those_of_a_robot_that_measures_none():
    message = convert.joint_state_message(SPEC, make_state(), STAMP)
    assert convert.JointStateReader(SPEC)(message).effort_measured
    for absent in (array("d"), array("d", [np.nan] * 4)):
        message.effort = absent
        joints = convert.JointStateReader(SPEC)(message)
        np.testing.assert_array_equal(joints.effort_nm, np.zeros(4))
        assert not joints.effort_measured
    message.effort = array("d", [np.nan, 1.0, 2.0, 3.0])
    joints = convert.JointStateReader(SPEC)(message)
    assert joints.effort_measured
    assert not convert.robot_state(joints, convert.imu_message(make_state(), STAMP), 0.0).is_finite()


def make_command() -> JointCommand:
    return JointCommand(*(np.arange(4) + 10.0 * kind for kind in range(5)))


def test_a_command_survives_the_wire_in_any_order():
    codec = convert.CommandCodec(SPEC)
    message = over_the_wire(codec.message(make_command(), STAMP))
    assert message.name[:5] == [f"left_hip_joint/{name}" for name in COMMAND_INTERFACES]
    shuffled = np.random.default_rng(0).permutation(len(message.name))
    mixed = JointState(name=[message.name[i] for i in shuffled], position=[message.position[i] for i in shuffled])
    for received in (message, mixed):
        got = codec.command(received)
        for field in JointCommand.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(got, field), getattr(make_command(), field), err_msg=field)


def changed_command(name: str) -> JointState:
    message = convert.CommandCodec(SPEC).message(make_command(), STAMP)
    message.name = list(message.name)
    if name == "missing":
        message.name, message.position = message.name[1:], message.position[1:]
    elif name == "extra":
        message.name, message.position = [*message.name, "tail/position"], array("d", [*message.position, 0.0])
    elif name == "twice":
        message.name, message.position = [*message.name, message.name[0]], array("d", [*message.position, 0.0])
    elif name == "short":
        message.position = message.position[1:]
    elif name == "nan":
        message.position[3] = np.nan
    return message


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("missing", "'left_hip_joint/position' 0 times"),
        ("extra", "tail/position"),
        ("twice", "'left_hip_joint/position' 2 times"),
        ("short", "20 names and 19 values"),
        ("nan", "nan for 'left_hip_joint/stiffness'"),
    ],
)
def test_a_malformed_command_is_refused_by_name(change, text):
    with pytest.raises(RobotError, match=text):
        convert.CommandCodec(SPEC).command(changed_command(change))


def test_a_twist_gives_the_numbers_in_the_order_of_the_contract():
    message = Twist()
    message.linear.x, message.linear.y, message.angular.z = 1.0, 2.0, 3.0
    read = convert.TwistReader(("ang_vel_z_base_rad_s", "lin_vel_x_base_m_s"))
    np.testing.assert_array_equal(read(message), [3.0, 1.0])
    np.testing.assert_array_equal(read(TwistStamped(twist=message)), [3.0, 1.0])
    assert convert.twist_message(1.0, 2.0, 3.0) == message


def test_a_command_that_no_twist_carries_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'lin_vel_x_base_m_s'"):
        convert.TwistReader(("lin_vel_x_m_s",))


def test_diagnostics_can_be_read_back():
    message = convert.diagnostics_message(STAMP, "node", "go2", "fine", {"mode": "POLICY", "period": 0.02}, error=True)
    assert convert.diagnostic_values(over_the_wire(message), "node") == {
        "message": "fine",
        "mode": "POLICY",
        "period": "0.02",
    }
    assert convert.diagnostic_values(message, "other") is None
