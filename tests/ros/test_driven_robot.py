"""A policy's node as the robot's driver: any backend in its process, what it tells, what others report of the robot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Imu, JointState  # noqa: E402

from gantry_hardware.backends.mock import MockRobot  # noqa: E402
from gantry_hardware.backends.state import JointCommand  # noqa: E402
from gantry_hardware.errors import RobotError, UnknownNameError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.robots.sensed_robot import SensedRobot  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

SPEC = robot_spec("go2")
MOCK = {"backend": "mock", "backend_options__realtime": True}


class Blind(MockRobot):
    """A robot without odometry."""

    def read(self):
        return replace(super().read(), pos_base_in_world_m=None, lin_vel_base_in_base_m_s=None)


@pytest.fixture
def host(rig):
    with NodeHost("driver") as host:
        host.start()
        yield host


class Localiser:
    """Publishes an odometry again and again, once it knows one."""

    def __init__(self, host):
        self._host = host
        self._publisher = host.node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
        self.message = None
        host.create_timer(0.02, self._tell)

    def know(self, x_m, *, frame="odom"):
        message = Odometry(child_frame_id="base_link")
        message.header.frame_id = frame
        message.pose.pose.position.x = x_m
        message.pose.pose.orientation.w, message.pose.pose.orientation.z = 0.0, 1.0  # Half a turn to the left.
        message.twist.twist.linear.x = 0.25
        self.message = message

    def _tell(self):
        if self.message is not None:
            self.message.header.stamp = self._host.node.get_clock().now().to_msg()
            self._publisher.publish(self.message)


@pytest.fixture
def localiser(rig):
    with NodeHost("localiser") as host:
        localiser = Localiser(host)
        host.start()
        yield localiser


def test_it_tells_joints_and_imu_and_obeys_requests(own_rig, bundles):
    operator = own_rig.operator
    heard = []
    for kind, topic in ((JointState, topics.JOINT_STATES), (Imu, topics.IMU)):
        operator.node.create_subscription(kind, topic, heard.append, topics.STATE_QOS)
    with own_rig.policy(bundles / "good", **MOCK) as policy:
        own_rig.bring_to_policy()
        wait_until(lambda: {type(item) for item in heard} == {JointState, Imu}, "joints and IMU")
        joints = next(item for item in heard if isinstance(item, JointState))
        assert tuple(joints.name) == SPEC.joint_names
        assert policy.stop() == 0


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"backend": "mokc"}, "Unknown robot backend 'mokc'. Did you mean 'mock'?"),
        ({"backend": "mock", "backend_options__realtiem": True}, "Did you mean 'realtime'?"),
        ({"backend": "mock", "backend_options__realtime": 3}, "Option 'realtime' of backend 'mock' is 3"),
        ({"backend_options__realtime": True}, "Parameter 'backend_options' is for a robot that this node drives"),
        ({"depth_source": "realsense"}, "Parameter 'depth_source' is for a robot that this node drives"),
        ({**MOCK, "depth_source": "realsense"}, "this policy looks at no map"),
        ({**MOCK, "odometry": "both"}, "Unknown odometry 'both'"),
    ],
)
def test_what_does_not_fit_is_refused(rig, bundles, parameters, text):
    with rig.policy(bundles / "good", **parameters) as policy:
        assert policy.wait() == 2
        assert text in policy.output
        assert "Traceback" not in policy.output


def test_a_pose_comes_from_the_topic_where_the_robot_has_none(host, localiser):
    robot = SensedRobot(Blind(SPEC, realtime=True), host)
    robot.connect()
    try:
        assert robot.read().pose_in_world is None
        localiser.know(3.0)
        wait_until(lambda: robot.read().pose_in_world is not None, "the pose")
        state = robot.read()
        np.testing.assert_allclose(state.pos_base_in_world_m, [3.0, 0.0, 0.0])
        np.testing.assert_allclose(state.quat_base_to_odom_wxyz, [0.0, 0.0, 0.0, 1.0])
        np.testing.assert_allclose(state.quat_base_to_world_wxyz, [1.0, 0.0, 0.0, 0.0])
        np.testing.assert_allclose(state.lin_vel_base_in_base_m_s, [0.25, 0.0, 0.0])
        localiser.message = None  # An old pose is none.
        wait_until(lambda: robot.read().pose_in_world is None, "the end of the pose")
    finally:
        robot.close()


def test_a_robot_with_odometry_of_its_own_keeps_it_unless_asked(host, localiser):
    robot = SensedRobot(MockRobot(SPEC, realtime=True), host)
    robot.connect()
    localiser.know(3.0)
    wait_until(lambda: robot.statistics().get("received odom", 0) > 5, "the odometry")
    assert robot.read().pos_base_in_world_m[0] == 0.0
    robot.close()
    localiser.message = None
    robot = SensedRobot(MockRobot(SPEC, realtime=True), host, odometry="topic", connect_timeout_s=0.2)
    with pytest.raises(RobotError, match=r"nothing arrived within 0.2 s on /odom"):
        robot.connect()
    localiser.know(3.0)
    robot = SensedRobot(MockRobot(SPEC, realtime=True), host, odometry="topic", connect_timeout_s=60.0)
    robot.connect()
    assert robot.read().pos_base_in_world_m[0] == 3.0
    robot.close()


def test_odometry_of_another_frame_is_a_fault(host, localiser):
    robot = SensedRobot(Blind(SPEC, realtime=True), host)
    robot.connect()
    localiser.know(3.0, frame="moon")
    try:

        def found():
            try:
                robot.read()
            except RobotError as error:
                return str(error)
            return ""

        assert "frame 'moon'" in wait_until(found, "the fault")
    finally:
        robot.close()


def test_everything_else_is_the_robots_own(host):
    inner = MockRobot(SPEC, realtime=True)
    robot = SensedRobot(inner, host)
    robot.connect()
    robot.write(JointCommand.position(SPEC, SPEC.array("default_rad")))
    assert len(robot.commands) == len(inner.commands) == 1
    with pytest.raises(AttributeError):
        _ = robot.wings
    robot.close()
    with pytest.raises(UnknownNameError):
        SensedRobot(inner, host, odometry="somewhere")


def test_a_car_that_the_node_drives_hears_its_surroundings_over_topics(own_rig):
    """The policy is loaded, its robot connected, and ``start`` says what is missing."""
    from gantry_deploy.bundle.locate import find_bundle

    pytest.importorskip("gantry_sim")
    operator = own_rig.operator
    bundle = find_bundle("pretrained:drive-race")
    with own_rig.policy(bundle, **MOCK) as policy:
        policy.wait_for_output("Robot 'f1tenth_vesc' answers")
        wait_until(lambda: operator.ask("policy_node/stand")[0], "standing")
        granted, reason = operator.ask("policy_node/start")
        assert not granted
        assert "scan" in reason
        assert policy.stop() == 0
