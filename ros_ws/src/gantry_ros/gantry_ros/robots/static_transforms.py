"""Fixed transforms of ``/tf_static``: where a camera's frame sits in the base."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from geometry_msgs.msg import TransformStamped
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

from gantry_deploy.depth.site import quat_of_matrix
from gantry_deploy.depth.source import DepthError
from gantry_mapping.sensing.frames import rotation_matrix

Pose = tuple[tuple[float, float, float], tuple[float, float, float, float]]
"""Origin, m, and unit quaternion, w first, of a frame in another one."""
MOST_FRAMES = 1000
"""Frames on the way from one to another; more are a circle."""


class StaticTransforms:
    """Collects the fixed transforms that nodes publish.

    Args:
        node: To listen with; None to be told by :meth:`add` alone.

    Raises:
        DepthError: If ``tf2_msgs`` is not installed, as among the wheels.
    """

    def __init__(self, node: Node | None = None) -> None:
        self._parents: dict[str, tuple[str, NDArray[np.float64], NDArray[np.float64]]] = {}
        if node is None:
            return
        try:
            from tf2_msgs.msg import TFMessage  # type: ignore[import-not-found]
        except ImportError as error:
            raise DepthError(
                "tf=true needs the ROS 2 package tf2_msgs, which is not installed here; give site=FILE or "
                "pose='x y z roll pitch yaw'."
            ) from error
        latched = QoSProfile(
            history=HistoryPolicy.KEEP_LAST,
            depth=100,
            reliability=ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.TRANSIENT_LOCAL,
        )
        node.create_subscription(TFMessage, "/tf_static", self._on_message, latched)

    def add(self, transforms: Iterable[TransformStamped]) -> None:
        """Take transforms; a child's newest parent counts."""
        for item in transforms:
            turn, place = item.transform.rotation, item.transform.translation
            quat = np.array([turn.w, turn.x, turn.y, turn.z])
            pos = np.array([place.x, place.y, place.z])
            if np.isfinite(pos).all() and abs(np.linalg.norm(quat) - 1.0) < 0.01:
                rotation = rotation_matrix((quat / np.linalg.norm(quat))[None])[0]
                self._parents[_plain(item.child_frame_id)] = (_plain(item.header.frame_id), pos, rotation)

    def pose(self, base: str, frame: str) -> Pose | None:
        """Origin and orientation of a frame in the base; None while the way between them is not known."""
        pos, rotation, name = np.zeros(3), np.eye(3), _plain(frame)
        for _ in range(MOST_FRAMES):
            if name == _plain(base):
                return (float(pos[0]), float(pos[1]), float(pos[2])), quat_of_matrix(rotation)
            if name not in self._parents:
                return None
            name, offset, turn = self._parents[name]
            pos, rotation = offset + turn @ pos, turn @ rotation
        return None

    def _on_message(self, message: Any) -> None:
        self.add(message.transforms)


def _plain(name: str) -> str:
    return name.strip().lstrip("/")
