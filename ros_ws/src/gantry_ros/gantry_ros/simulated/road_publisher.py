"""Passes on what a simulated car tells of its surroundings, as planners, trackers and scanners of a real one would."""

from __future__ import annotations

import math

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import OccupancyGrid, Path
from numpy.typing import ArrayLike
from rclpy.node import Node
from rclpy.publisher import Publisher
from sensor_msgs.msg import LaserScan, PointCloud2

from gantry_deploy.control.goals import Goal
from gantry_deploy.perception.road import Route
from gantry_deploy.recording.ros_messages import ODOM_FRAME
from gantry_hardware.backends.backend import Robot
from gantry_ros.convert import car as convert_car
from gantry_ros.convert import map as convert_map
from gantry_ros.convert import robot as convert
from gantry_ros.runtime import topics

LATE_S = 1.0
"""Stamped age of what is published late."""


class RoadPublisher:
    """Implements :class:`gantry_hardware.model.capabilities.RoadListener` on topics.

    Args:
        node: To publish with.
        robot: Whose clock stamps are on.
        scan_range_m: Largest range of its scanner.
    """

    def __init__(self, node: Node, robot: Robot, scan_range_m: float) -> None:
        self._node, self._robot, self._scan_range_m = node, robot, scan_range_m
        self.lost: frozenset[str] = frozenset()
        """What is not published any more: topics' names."""
        self.late: frozenset[str] = frozenset()
        """What is published with stamps from long ago: topics' names."""
        self.told_s: dict[str, float] = {}
        """When what grows old was measured that was published last, on the robot's clock: topics' names."""
        self._publishers: dict[str, Publisher] = {}

    def set_route(self, route: Route) -> None:
        """Latched, with its lanes and as a plain path."""
        stamp = self._stamp("", self._robot.now_s())
        self._publish(topics.ROUTE_LANES, convert_car.lanes_message(route, stamp, ODOM_FRAME))
        self._publish(topics.ROUTE, convert_car.path_message(route, stamp, ODOM_FRAME))

    def set_road(self, cells: ArrayLike, corner_m: ArrayLike, cell_m: float) -> None:
        """Latched, as an occupancy grid whose smallest numbers tell markings."""
        stamp = self._stamp("", self._robot.now_s())
        corner = np.asarray(corner_m, dtype=np.float64)
        message = convert_car.grid_message(np.asarray(cells), corner, cell_m, stamp, ODOM_FRAME)
        self._publish(topics.ROAD_MAP, message)

    def set_goal(self, pose: ArrayLike) -> None:
        """Latched."""
        goal = Goal(*np.asarray(pose, dtype=np.float64).tolist())
        stamp = self._stamp("", self._robot.now_s())
        self._publish(topics.GOAL_POSE, convert_map.goal_message(goal, stamp, ODOM_FRAME))

    def set_objects(self, objects: ArrayLike, stamp_s: float, kinds: ArrayLike | None = None) -> None:
        """A table, empty where there are none."""
        stamp = self._stamp(topics.OBJECTS, stamp_s)
        table = np.asarray(objects, dtype=np.float64)
        kind = None if kinds is None else np.asarray(kinds, dtype=np.float64)
        self._publish(topics.OBJECTS, convert_car.objects_message(table, stamp, ODOM_FRAME, kind))

    def set_stop_line(self, distance_m: float, state: float, stamp_s: float) -> None:
        """A table of one row, empty for none."""
        line = None if math.isinf(distance_m) else (distance_m, state)
        stamp = self._stamp(topics.STOP_LINE, stamp_s)
        self._publish(topics.STOP_LINE, convert_car.stop_line_message(line, stamp))

    def set_scan(self, ranges_m: ArrayLike, angle_min_rad: float, angle_step_rad: float, stamp_s: float) -> None:
        """As a scanner's driver sends it."""
        ranges, stamp = np.asarray(ranges_m, dtype=np.float64), self._stamp(topics.SCAN, stamp_s)
        message = convert_car.scan_message(ranges, angle_min_rad, angle_step_rad, stamp, self._scan_range_m)
        self._publish(topics.SCAN, message)

    def _stamp(self, topic: str, stamp_s: float) -> Time:
        if topic and topic not in self.lost and topic not in self.late:
            self.told_s[topic] = stamp_s
        age_s = self._robot.now_s() - stamp_s + (LATE_S if topic in self.late else 0.0)
        return convert.stamp_of_age(self._node.get_clock(), age_s)

    def _publish(self, topic: str, message: Path | PoseStamped | PointCloud2 | LaserScan | OccupancyGrid) -> None:
        if topic in self.lost:
            return
        if topic not in self._publishers:
            latched = topic in (topics.ROUTE, topics.ROUTE_LANES, topics.GOAL_POSE, topics.ROAD_MAP)
            quality = topics.LATCHED_QOS if latched else topics.WRITER_QOS
            self._publishers[topic] = self._node.create_publisher(type(message), topic, quality)
        self._publishers[topic].publish(message)
