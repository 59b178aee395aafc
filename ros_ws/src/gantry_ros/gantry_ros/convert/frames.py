"""Frames as messages; see :mod:`gantry_ros.convert.robot`."""

from __future__ import annotations

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3
from std_msgs.msg import Header

from gantry_hardware.model.description import Frames


def transforms(stamp: Time, *parts: Frames) -> list[TransformStamped]:
    """All the frames, in their order."""
    return [
        TransformStamped(
            header=Header(stamp=stamp, frame_id=parent),
            child_frame_id=child,
            transform=Transform(
                translation=Vector3(x=pos[0], y=pos[1], z=pos[2]),
                rotation=Quaternion(w=quat[0], x=quat[1], y=quat[2], z=quat[3]),
            ),
        )
        for frames in parts
        for parent, child, pos, quat in zip(
            frames.parents, frames.children, frames.pos_m.tolist(), frames.quat_wxyz.tolist(), strict=True
        )
    ]
