"""Perception of a robot that other nodes report: odometry, elevation map, pose of an object, pictures."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.qos import QoSProfile
from sensor_msgs.msg import PointCloud2

from gantry_deploy.observations.scene import SCENE_SIGNALS, THINGS_SIGNAL, ZONES_SIGNAL
from gantry_deploy.perception.images import Picture
from gantry_deploy.recording.ros_messages import BASE_FRAME, ODOM_FRAME
from gantry_hardware.backends.state import FloatArray
from gantry_hardware.errors import GantryError, RobotError
from gantry_mapping.elevation.snapshot import MapSnapshot
from gantry_ros.convert import arm as convert_arm
from gantry_ros.mapping.map_inbox import MapInbox
from gantry_ros.robots.state_topics import StateTopics
from gantry_ros.runtime import topics
from gantry_ros.runtime.frames import Frames
from gantry_ros.runtime.host import NodeHost
from gantry_ros.runtime.listening import Listener

SCENE_TOPICS = {THINGS_SIGNAL: topics.THINGS, ZONES_SIGNAL: topics.ZONES}
"""Topics of the signals of a scene."""
OPTIONAL_TIMEOUT_S = 0.5
"""Odometry, object poses and foot contacts older than this are left out of the state."""


class TopicSenses:
    """Base of robots that are told of by other nodes; what is followed must be asked for before they connect.

    Args:
        told: Topics of the robot itself.
        frames: Which names mean the same frame, and where sensors sit.
        map_max_latency_s: See :class:`gantry_ros.mapping.map_inbox.MapInbox`.
    """

    def __init__(self, told: StateTopics, frames: Frames, map_max_latency_s: float) -> None:
        self.frames = frames
        """Which names mean the same frame, and where sensors sit."""
        self._told = told
        self._maps = MapInbox(frames, map_max_latency_s)
        self._follows_map = False
        self._cameras: tuple[str, ...] = ()
        self._host: NodeHost | None = None
        self._listener: Listener | None = None
        self._entities: list[tuple[str, Any]] = []

    def listen(self, kind: Any, topic: str, take: Callable[[Any], None], qos: QoSProfile) -> None:
        """Listen to what else a policy sees, of which one node may tell as of the robot's own state: two damp it.

        Raises:
            RobotError: If not connected, and without a host of its own from the start.
        """
        if self._listener is None:
            raise RobotError("The robot is not connected; call connect() first.")
        self._entities.append(("subscription", self._listener.listen(kind, topic, take, qos)))

    def statistics(self) -> dict[str, Any]:
        """Messages received per topic, those that repeated the one before, and other nodes that speak for the robot."""
        return {**self._told.statistics(), **({} if self._listener is None else self._listener.values())}

    def follow_map(self) -> None:
        """Listen for the elevation map of a mapping node from ``connect`` on."""
        self._follows_map = True

    def follow_object(self) -> None:
        """Wait for the pose of what the arm handles in ``connect``, and listen for it from then on."""
        self._told.required.append(topics.OBJECT_POSE)

    def follow_scene(self) -> None:
        """Wait for the places of things and zones in ``connect``, and listen for them from then on."""
        self._told.required += list(SCENE_TOPICS.values())

    def follow_pictures(self, cameras: tuple[str, ...]) -> None:
        """Wait for a picture of each camera in ``connect``, and listen for them from then on."""
        self._cameras = cameras
        self._told.required += [topics.PICTURE.format(name=name) for name in cameras]

    def note_scene(self) -> None:
        """Listen to the poses of the object, things and zones from ``connect`` on, without waiting for them."""
        self._told.optional += [topics.OBJECT_POSE, *SCENE_TOPICS.values()]

    def read_pictures(self) -> dict[str, Picture]:
        """The newest picture of each camera, stamped with the local monotonic time of its receipt.

        Raises:
            RobotError: If one is encoded in another way than is understood.
        """
        self._refuse_second_publisher()
        newest = {name: self._told.newest(topics.PICTURE.format(name=name)) for name in self._cameras}
        found = {name: item for name, item in newest.items() if item is not None}
        return {name: Picture(received_s, convert_arm.picture(image)) for name, (image, received_s) in found.items()}

    def read_map(self) -> tuple[MapSnapshot, float] | None:
        """The newest map, and the local monotonic time at which its newest frame became known; None before the first.

        A map that is sent again with the stamp of the one before holds no new frame.
        """
        return self._maps.newest

    @property
    def odom_frame(self) -> str:
        """Frame of the newest odometry."""
        found = self._told.newest(topics.ODOM)
        return ODOM_FRAME if found is None or not found[0].header.frame_id else found[0].header.frame_id

    def _object_pose(self) -> FloatArray | None:
        """Shape (7,), newest pose of the object in the base frame; None where none is reported at present.

        Raises:
            RobotError: If it is in another frame, or is none.
        """
        seen = self._told.fresh(topics.OBJECT_POSE, OPTIONAL_TIMEOUT_S)
        return None if seen is None else convert_arm.pose(seen, self.frames.told(seen.header.frame_id, BASE_FRAME))

    def _scene(self) -> dict[str, FloatArray]:
        """Signals of the scene by name, m in the base frame, those that are reported at present.

        Raises:
            RobotError: If one is in another frame, or of another number of places.
        """
        seen = {name: self._told.fresh(topic, OPTIONAL_TIMEOUT_S) for name, topic in SCENE_TOPICS.items()}
        return {
            name: convert_arm.places(
                message, self.frames.told(message.header.frame_id, BASE_FRAME), SCENE_SIGNALS[name] // 3
            ).ravel()
            for name, message in seen.items()
            if message is not None
        }

    def _open_senses(self, host: NodeHost, listener: Listener) -> list[Any]:
        """Listen to everything that is followed; returns the subscriptions."""
        self._host, self._listener = host, listener
        subscriptions = self._told.open(host, listener)
        if self._follows_map:
            subscriptions.append(listener.listen(PointCloud2, topics.ELEVATION_MAP, self._on_map, topics.READER_QOS))
        return subscriptions

    def _on_map(self, message: PointCloud2) -> None:
        if self._host is None:
            return
        now_s = 1e-9 * self._host.node.get_clock().now().nanoseconds or None  # 0 while simulated time is not told.
        try:
            self._maps.take(message, self.odom_frame, time.monotonic(), now_s)
        except GantryError as error:
            self._host.node.get_logger().error(f"Map refused: {error}", throttle_duration_sec=1.0)
            return
        self._told.note_received(topics.ELEVATION_MAP)

    def _refuse_second_publisher(self) -> None:
        if self._listener is not None:
            self._listener.refuse()
