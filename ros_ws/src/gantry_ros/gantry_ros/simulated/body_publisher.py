"""Tells what a simulated robot looks like and where its links are, as ``robot_state_publisher`` does for a real one.

The nodes of simulated robots do this and no other node does: of a real robot its driver tells it. ``tf2_msgs`` is no
part of the ROS 2 wheels; without it there is a description and no tf, and viewers place the links by ``joint_states``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.node import Node
from std_msgs.msg import String

from gantry_deploy.recording.frames import RATE_HZ, base_frames, finite
from gantry_deploy.recording.ros_messages import BASE_FRAME
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.model.description import Frames, robot_description
from gantry_ros.convert.frames import transforms
from gantry_ros.runtime import topics
from gantry_ros.simulated.depth_publisher import CAMERA_FRAME, with_depth_cameras

LASER_FRAME = "laser"
"""Of a car's scans."""
_SLACK_S = 1e-6


class BodyPublisher:
    """Description and frames of one robot.

    Args:
        node: To publish with.
        robot: Its robot, whose sensors have frames as well.
    """

    def __init__(self, node: Node, robot: Robot) -> None:
        self._description = robot_description(robot.spec)
        self._last_s = -np.inf
        if self._description is not None:
            publisher = node.create_publisher(String, topics.ROBOT_DESCRIPTION, topics.LATCHED_QOS)
            publisher.publish(String(data=self._description.urdf))
        self._message = _tf_message()
        if self._message is None:
            node.get_logger().info(
                "No tf, only robot_description: the package tf2_msgs is not installed here, being none of the wheels."
            )
            return
        self._tf = node.create_publisher(self._message, topics.TF, topics.TF_QOS)
        fixed = [sensor_frames(robot)]
        if self._description is not None:
            fixed.append(self._description.fixed)
        static = node.create_publisher(self._message, topics.TF_STATIC, topics.LATCHED_QOS)
        static.publish(self._message(transforms=transforms(node.get_clock().now().to_msg(), *fixed)))

    def publish(self, state: RobotState, stamp: Time, *, odometry: bool = True) -> None:
        """Send the frames of a new state, if they are due.

        Args:
            state: With the joints.
            stamp: Of the state.
            odometry: Whether the base's pose is told.
        """
        if self._message is None or 0.0 <= state.stamp_s - self._last_s < 1.0 / RATE_HZ - _SLACK_S:
            return
        parts = [base_frames(state)] if odometry else []
        if self._description is not None:
            parts.append(self._description.moving(state.joint_pos_rad))
        parts = [frames for frames in parts if frames.children and finite(frames)]
        if parts:
            self._last_s = state.stamp_s
            self._tf.publish(self._message(transforms=transforms(stamp, *parts)))


def sensor_frames(robot: Robot) -> Frames:
    """Frames of the depth images and scans that a simulated robot takes, in its base's."""
    names, places, turns = [], [], []
    seeing = with_depth_cameras(robot)
    if seeing is not None:
        camera = seeing.depth_cameras[0]
        names.append(CAMERA_FRAME)
        places.append(camera.pos_camera_in_base_m)
        turns.append(camera.quat_camera_to_base_wxyz)
    ahead_m = getattr(robot, "scanner_x_in_base_m", None)
    if ahead_m is not None:
        names.append(LASER_FRAME)
        places.append((ahead_m, 0.0, 0.0))
        turns.append((1.0, 0.0, 0.0, 0.0))
    parents = (BASE_FRAME,) * len(names)
    return Frames(parents, tuple(names), np.reshape(places, (-1, 3)), np.reshape(turns, (-1, 4)))


def _tf_message() -> Any:
    """The class ``tf2_msgs.msg.TFMessage``; None where that package is not installed."""
    try:
        from tf2_msgs.msg import TFMessage  # type: ignore[import-not-found]
    except ImportError:
        return None
    return TFMessage
