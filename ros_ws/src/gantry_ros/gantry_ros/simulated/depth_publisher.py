"""Speaks for the depth cameras of a simulated robot, as a camera's driver does for a real one."""

from __future__ import annotations

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image

from gantry_deploy.perception.maps import DepthFrame
from gantry_hardware.backends.backend import Robot
from gantry_hardware.model.capabilities import HasDepthCameras, capability
from gantry_ros.convert import map as convert_map
from gantry_ros.convert import robot as convert
from gantry_ros.runtime import topics

CAMERA_FRAME = "camera_depth_optical_frame"
"""Of the depth images: z forward, x right, y down."""


class DepthPublisher:
    """Images and calibration of one robot's cameras.

    Args:
        node: To publish with.
        robot: With cameras.
    """

    def __init__(self, node: Node, robot: HasDepthCameras) -> None:
        self._node = node
        self._robot = robot
        self._infos = node.create_publisher(CameraInfo, topics.CAMERA_INFO, topics.WRITER_QOS)
        self._images = node.create_publisher(Image, topics.DEPTH, topics.WRITER_QOS)

    def collect(self, now_s: float) -> list[tuple[DepthFrame, float]]:
        """The images that have arrived, with their ages, s; ``now_s`` on the robot's clock."""
        return [(frame, now_s - frame.stamp_s) for frame in self._robot.read_depth()]

    def publish(self, frame: DepthFrame, age_s: float, *, covered: bool) -> None:
        """Send an image and its calibration; one of a covered lens holds no measurement."""
        depth = np.zeros_like(frame.depth_m) if covered else frame.depth_m
        stamp = convert.stamp_of_age(self._node.get_clock(), age_s)
        camera = self._robot.depth_cameras[frame.camera]
        self._infos.publish(convert_map.camera_info_message(camera, stamp, CAMERA_FRAME))
        self._images.publish(convert_map.depth_image_message(depth, stamp, CAMERA_FRAME))


def depth_publisher(node: Node, robot: Robot) -> DepthPublisher | None:
    """A publisher for a robot's cameras; None for a robot without."""
    seeing = with_depth_cameras(robot)
    return None if seeing is None else DepthPublisher(node, seeing)


def with_depth_cameras(robot: Robot) -> HasDepthCameras | None:
    """The robot as one with depth cameras; None if it has none."""
    seeing = capability(robot, HasDepthCameras)
    return seeing if seeing is not None and seeing.depth_cameras else None
