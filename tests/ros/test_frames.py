"""Frames of what nodes hear: both names in a refusal, names that mean the same, and where sensors sit."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time  # noqa: E402
from geometry_msgs.msg import PoseStamped  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Imu  # noqa: E402

from gantry_deploy.testing.legs import tiny_robot  # noqa: E402
from gantry_hardware.errors import GantryError, RobotError  # noqa: E402
from gantry_mapping.elevation.snapshot import MapSnapshot  # noqa: E402
from gantry_mapping.sensing.frames import rotation_matrix  # noqa: E402
from gantry_ros.convert import map as convert_map  # noqa: E402
from gantry_ros.convert import robot as convert  # noqa: E402
from gantry_ros.mapping.map_inbox import MapInbox  # noqa: E402
from gantry_ros.runtime.frames import Frames, SensorPose  # noqa: E402

JOINTS = convert.JointArrays(*(np.zeros(len(tiny_robot().joint_names)),) * 3, effort_measured=False)
NOW = Time(sec=1000)


def imu(frame_id="base_link"):
    message = Imu()
    message.header.frame_id = frame_id
    message.orientation.w = 1.0
    return message


def odometry(frame_id="odom", child="base_link", w=1.0):
    message = Odometry(child_frame_id=child)
    message.header.frame_id, message.pose.pose.orientation.w = frame_id, w
    return message


def state(*parts, frames=None):
    return convert.robot_state(JOINTS, *parts[:1], 0.0, *parts[1:], frames=frames)


def test_expected_frames_empty_ones_and_those_of_ros_1_are_taken():
    for name in ("base_link", "", "/base_link"):
        assert state(imu(name)).foot_contact is None
    for name, child in (("odom", "base_link"), ("", ""), ("/odom", "/base_link")):
        assert state(imu(), odometry(name, child)).pos_base_in_world_m is not None


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ((imu("imu_link"),), ("'imu_link'", "'base_link'", "same_frames to 'imu_link=base_link'")),
        ((imu(), odometry("map")), ("'map'", "'odom'", "same_frames")),
        ((imu(), odometry(child="base_footprint")), ("'base_footprint'", "'base_link'", "child_frame_id")),
        ((imu("x" * 10_000 + "\x1b[2J"),), ("(10004 characters)", "'base_link'")),
    ],
)
def test_another_frame_is_refused_with_both_names(parts, names):
    with pytest.raises(RobotError) as refused:
        state(*parts)
    assert all(name in str(refused.value) for name in names)
    assert len(str(refused.value)) < 400


def test_names_that_mean_the_same_frame_are_taken_through_others_too():
    frames = Frames("imu_link=base_link, base_footprint = imu_link,map=odom")
    found = state(imu("imu_link"), odometry("map", "base_footprint"), frames=frames)
    assert found.pos_base_in_world_m is not None
    assert frames.told("map", "odom") == "map"
    assert frames.told("world", "odom") == frames.told("", "odom") == "odom"
    with pytest.raises(RobotError, match="'world'"):
        frames.require("world", "odom", "It is told")


@pytest.mark.parametrize("text", ["imu_link", "a=b=c", "=base_link", "imu_link="])
def test_what_is_no_pair_of_names_is_refused(text):
    with pytest.raises(GantryError, match="same_frames"):
        Frames(text)


@pytest.mark.parametrize("text", ["lidar", "lidar=", "lidar=1 2 3", "lidar=1 2 3 4 5 x", "lidar=1 2 3 4 5 nan"])
def test_what_is_no_pose_is_refused(text):
    with pytest.raises(GantryError, match="frame_poses"):
        Frames("", text)


def test_a_sensor_that_is_turned_has_the_orientation_of_the_urdf():
    pose = Frames("scanner=livox_frame", "livox_frame=0.2 0 0.1 0 0 1.5707963, imu=0 0 0 3.1415927 0 0").pose("scanner")
    assert pose.pos_m == (0.2, 0.0, 0.1)
    np.testing.assert_allclose(rotation_matrix(np.array([pose.quat_wxyz]))[0] @ [1.0, 0.0, 0.0], [0, 1, 0], atol=1e-6)
    # Fixed axes: rolled by a quarter, then pitched by a quarter; the sensor's y ends up along the base's x.
    turned = SensorPose((0.0, 0.0, 0.0), 0.5 * math.pi, 0.5 * math.pi, 0.0).quat_wxyz
    np.testing.assert_allclose(rotation_matrix(np.array([turned]))[0] @ [0.0, 1.0, 0.0], [1, 0, 0], atol=1e-12)
    assert Frames().pose("livox_frame") is None


@pytest.mark.parametrize("norm", [0.5, 0.99, 2.0])
def test_an_orientation_of_another_length_is_scaled_and_none_is_none(norm):
    message = odometry(w=0.6 * norm)
    message.pose.pose.orientation.z = 0.8 * norm
    np.testing.assert_allclose(state(imu(), message).quat_base_to_odom_wxyz, [0.6, 0.0, 0.0, 0.8])
    assert state(imu(), odometry(w=0.0)).quat_base_to_odom_wxyz is None


@pytest.mark.parametrize("field", ["orientation", "angular_velocity"])
def test_an_imu_that_says_what_it_lacks_is_refused(field):
    message = imu()
    getattr(message, f"{field}_covariance")[0] = -1.0
    with pytest.raises(RobotError, match=r"covariance -1"):
        state(message)


# -- elevation maps ----------------------------------------------------------------------------------------------------


def a_map(stamp_s, frame_id="odom", variance=1.0):
    snapshot = MapSnapshot(np.zeros((3, 3)), np.full((3, 3), variance), (0.0, 0.0), 0.1)
    return convert_map.map_message(snapshot, convert_map.stamp_from_s(stamp_s), frame_id)


def test_a_map_that_is_sent_again_is_no_news_but_its_numbers_count():
    inbox = MapInbox(Frames())
    inbox.take(a_map(1000.0), "odom", 5.0, 1000.1)
    inbox.take(a_map(1000.0, variance=2.0), "odom", 6.0, 1001.1)
    snapshot, received_s = inbox.newest
    assert received_s == 5.0
    assert snapshot.variance_m2[0, 0] == 2.0


def test_a_map_from_ahead_is_refused_and_one_that_starts_over_is_followed():
    inbox = MapInbox(Frames())
    inbox.take(a_map(1000.0), "odom", 5.0, 1000.1)
    with pytest.raises(RobotError, match=r"1\.8e\+03 s ahead of the clock"):
        inbox.take(a_map(2800.0), "odom", 5.1, 1000.2)
    inbox.take(a_map(999.5), "odom", 5.2, 1000.3)  # on its way for longer than the one before
    assert inbox.newest[0].stamp_s == 1000.0
    inbox.take(a_map(1000.3), "odom", 5.3, 1000.4)
    inbox.take(a_map(3.0), "odom", 5.4, 1000.5)
    assert (inbox.newest[0].stamp_s, inbox.newest[1]) == (3.0, 5.4)


def test_a_map_in_another_frame_is_refused_with_both_names():
    with pytest.raises(RobotError, match=r"'map', expected 'odom'.*same_frames"):
        MapInbox(Frames()).take(a_map(1.0, "map"), "odom", 0.0, None)
    inbox = MapInbox(Frames("map=odom"))
    inbox.take(a_map(1.0, "map"), "odom", 0.0, None)
    assert inbox.newest is not None


def test_a_map_that_was_long_on_its_way_is_refused_where_clocks_are_the_same():
    inbox = MapInbox(Frames(), max_latency_s=0.3)
    inbox.take(a_map(1000.0), "odom", 5.0, 1000.2)
    with pytest.raises(RobotError, match=r"0\.5 s ago .* allowed are 0\.3 s"):
        inbox.take(a_map(1000.1), "odom", 5.4, 1000.6)


def test_a_goals_frame_is_named_without_what_a_terminal_obeys():
    message = PoseStamped()
    message.header.frame_id = "\x1b[2J"
    with pytest.raises(RobotError, match=r"x1b"):
        convert_map.goal(message, "odom")
