"""State of a robot that a node drives itself, for everybody: what a driver's node would publish."""

from __future__ import annotations

from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float32MultiArray

from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState
from gantry_ros.convert import robot as convert
from gantry_ros.runtime import topics
from gantry_ros.simulated.body_publisher import BodyPublisher


class StatePublisher:
    """Publishes joints, IMU, odometry where the robot itself knows it, foot contacts, description and frames.

    Args:
        node: To publish with.
        robot: The robot.
    """

    def __init__(self, node: Node, robot: Robot) -> None:
        self._node, self._spec = node, robot.spec
        self._joints = node.create_publisher(JointState, topics.JOINT_STATES, topics.WRITER_QOS)
        self._has_imu = embodiment_of_robot(robot.spec).base_moves
        if self._has_imu:
            self._imu = node.create_publisher(Imu, topics.IMU, topics.WRITER_QOS)
            self._contacts = node.create_publisher(Float32MultiArray, topics.FOOT_CONTACTS, topics.WRITER_QOS)
        self._odom = None
        self._body = BodyPublisher(node, robot)

    def publish(self, state: RobotState) -> None:
        """Publish a state of now."""
        stamp = self._node.get_clock().now().to_msg()
        self._joints.publish(convert.joint_state_message(self._spec, state, stamp))
        if self._has_imu:
            self._imu.publish(convert.imu_message(state, stamp))
            contacts = convert.foot_contact_message(self._spec, state)
            if contacts is not None:
                self._contacts.publish(contacts)
        # A heading of its own is that of a topic's odometry, which others hear already.
        own = state.quat_base_to_odom_wxyz is None
        odometry = convert.odometry_message(state, stamp) if own else None
        if odometry is not None:
            if self._odom is None:
                self._odom = self._node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
            self._odom.publish(odometry)
        self._body.publish(state, stamp, odometry=own)
