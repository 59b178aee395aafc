"""Depth images of a ROS 2 topic for any robot: ``--depth ros,topic=/camera/depth/image_rect_raw,site=front.yaml``."""

from __future__ import annotations

import time
from typing import Any

from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, Image

from gantry_deploy.depth.inbox import ImageInbox
from gantry_deploy.depth.messages import depth_image, intrinsics
from gantry_deploy.depth.registry import require_mount
from gantry_deploy.depth.source import CameraMount, DepthError, DepthImage
from gantry_deploy.repeated_log import Repeated
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.stamps import MAX_AHEAD_S
from gantry_mapping.sensing.camera import DepthCamera
from gantry_ros.convert.map import seconds
from gantry_ros.runtime.host import NodeHost

CLOCKS = ("header", "arrival")
"""Sources of the time of an image: its stamp as it is, or its stamp matched with the arrivals."""
WAIT_S = 10.0
"""Time that calibration and first image may take."""


class RosDepth:
    """A camera behind topics; see :class:`gantry_deploy.depth.source.DepthSource`.

    Args:
        mount: Pose of the camera; None to look it up among the transforms (``/tf_static``).
        topic: Of the images, ``sensor_msgs/Image`` in ``16UC1`` or ``32FC1``.
        info_topic: Of their ``CameraInfo``; empty for ``camera_info`` beside the images.
        clock: One of :data:`CLOCKS`; ``arrival`` where the camera's machine has another clock.
        base_frame: Frame of the robot's base, for looking the pose up.
        reliable: Whether to ask for reliable images.
        wait_s: Time that calibration and first image may take.

    Raises:
        UnknownNameError: If there is no such clock.
    """

    live = True

    def __init__(
        self,
        mount: CameraMount | None,
        topic: str,
        info_topic: str,
        clock: str,
        base_frame: str,
        reliable: bool,
        wait_s: float,
    ) -> None:
        if clock not in CLOCKS:
            raise UnknownNameError("clock of depth images", clock, CLOCKS)
        self.name = f"ros {topic}"
        """For messages."""
        self._mount, self._topic, self._wait_s, self._base_frame = mount, topic, wait_s, base_frame
        self._info_topic = info_topic or f"{topic.rpartition('/')[0]}/camera_info"
        self._clock, self._reliable = clock, reliable
        self._inbox = ImageInbox(self.name, 0.0 if mount is None else mount.delay_s)
        self._host: NodeHost | None = None
        self._told: DepthCamera | None = None
        self._frame_id = ""
        self._camera: DepthCamera | None = None
        self._refusals: dict[str, str] = {}
        self._poses: Any = None
        self._log: Repeated | None = None

    @property
    def cameras(self) -> tuple[DepthCamera, ...]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        return () if self._camera is None else (self._camera,)

    def open(self) -> None:
        """Subscribe, and wait for calibration and first image.

        Raises:
            DepthError: If they do not come, or the pose of the camera is not known.
        """
        if self._host is not None:
            return
        self._host = NodeHost("gantry_depth")
        try:
            if self._mount is None:
                from gantry_ros.robots.static_transforms import StaticTransforms

                self._poses = StaticTransforms(self._host.node)
            reliability = ReliabilityPolicy.RELIABLE if self._reliable else ReliabilityPolicy.BEST_EFFORT
            sensor = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=2, reliability=reliability)
            self._host.node.create_subscription(CameraInfo, self._info_topic, self._on_info, sensor)
            self._host.node.create_subscription(Image, self._topic, self._on_image, sensor)
            self._host.start()
            self._wait()
        except BaseException:
            self.close()
            raise

    def read(self, now_s: float) -> list[DepthImage]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        return self._inbox.take(now_s)

    def trouble(self) -> str:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        found = self._inbox.trouble()
        refused = self._refusals.get("image") or self._refusals.get("info")
        return f"{found}: {refused}" if found and refused else found

    def statistics(self) -> dict[str, object]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        return self._inbox.statistics()

    def close(self) -> None:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        host, self._host = self._host, None
        if host is not None:
            host.close()

    def _wait(self) -> None:
        until_s = time.monotonic() + self._wait_s
        while self._camera is None or self._inbox.silent_s() > self._wait_s or not any(self._inbox.counts.values()):
            if time.monotonic() > until_s:
                raise DepthError(self._missing())
            time.sleep(0.02)

    def _missing(self) -> str:
        refused = "; ".join(self._refusals.values())
        if refused:
            return f"{self.name} sends nothing that can be used: {refused}"
        if self._told is None:
            return f"No CameraInfo on '{self._info_topic}' within {self._wait_s:g} s; is the camera's driver running?"
        if self._camera is None:
            return (
                f"No transform from '{self._base_frame}' to '{self._frame_id}' on /tf_static within {self._wait_s:g} "
                "s: start the robot's description, or give site=FILE or pose='x y z roll pitch yaw'."
            )
        return (
            f"No image on '{self._topic}' within {self._wait_s:g} s, though its CameraInfo comes. A writer that is "
            "reliable with large images over UDP may need reliable=true."
        )

    def _on_info(self, message: CameraInfo) -> None:
        try:
            told = DepthCamera(*intrinsics(message))
            self._frame_id = message.header.frame_id
            self._told = told
            if self._camera is None and (mount := self._mount_now()) is not None:
                self._camera = self._inbox.camera = mount.camera(told, self.name)
        except GantryError as error:
            self._refusals["info"] = str(error)
        else:
            self._refusals.pop("info", None)

    def _mount_now(self) -> CameraMount | None:
        """Mounting of the camera, once it is known."""
        if self._mount is not None:
            return self._mount
        found = self._poses.pose(self._base_frame, self._frame_id)
        return None if found is None else CameraMount(*found)

    def _on_image(self, message: Image) -> None:
        arrival_s = time.monotonic()
        if self._camera is None or self._host is None:
            return
        try:
            depth_m = depth_image(message)
            stamp_s = seconds(message.header.stamp)
            if self._clock == "arrival":
                self._inbox.put(depth_m, stamp_s, arrival_s)
            else:
                self._inbox.put(depth_m, arrival_s - self._age_s(message), arrival_s, steady=True)
        except GantryError as error:
            self._refusals["image"] = str(error)
        else:
            self._refusals.pop("image", None)

    def _age_s(self, message: Image) -> float:
        """Age of an image by its stamp.

        Raises:
            DepthError: If it has none, or one that lies ahead.
        """
        assert self._host is not None
        now = self._host.node.get_clock().now()
        stamp_s = seconds(message.header.stamp)
        if stamp_s == 0.0:
            raise DepthError("an image has no stamp, so that it has no place in time; clock=arrival matches arrivals")
        age_s = 1e-9 * (now - Time.from_msg(message.header.stamp, clock_type=now.clock_type)).nanoseconds
        if age_s < -MAX_AHEAD_S:
            raise DepthError(
                f"an image is stamped {-age_s:.3g} s ahead of this machine's clock, allowed are {MAX_AHEAD_S:g} s; "
                "clock=arrival matches arrivals"
            )
        return age_s


def make_ros_depth(
    mount: CameraMount | None,
    topic: str = "/camera/depth/image_rect_raw",
    info_topic: str = "",
    clock: str = "header",
    base_frame: str = "base_link",
    reliable: bool = False,
    tf: bool = False,
    wait_s: float = WAIT_S,
) -> RosDepth:
    """A source of a ROS 2 camera, from the entry-point group ``gantry.depth_sources``; see :class:`RosDepth`.

    Raises:
        DepthError: If neither the camera's pose nor ``tf`` is given, or both.
    """
    if tf and mount is not None:
        raise DepthError(
            "Depth source 'ros': tf=true looks the camera's pose up, and site or pose gives it; choose one."
        )
    known = None if tf else require_mount(mount, "ros")
    return RosDepth(known, topic, info_topic, clock, base_frame, reliable, wait_s)
