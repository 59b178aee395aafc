"""In which frame a message must be, which names mean the same frame, and where a sensor sits on the robot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.files.text import plain_text, printable
from gantry_ros.runtime.host import Parameter

PARAMETERS = (
    Parameter(
        "same_frames",
        "",
        "Names that mean the same frame, such as 'imu_link=base_link, map=odom'; a message in any other frame than "
        "the expected one is refused.",
    ),
    Parameter(
        "frame_poses",
        "",
        "Where sensors sit: 'livox_frame=0.2 0 0.1 0 0.3 0, ...', x y z in m and roll pitch yaw in rad in the base.",
    ),
)
"""Of a node that reads what sensors send."""


@dataclass(frozen=True)
class SensorPose:
    """Pose of a sensor's frame in the base."""

    pos_m: tuple[float, float, float]
    """Its origin, m."""
    roll_rad: float
    """Turn about the base's x, the first of three about fixed axes."""
    pitch_rad: float
    """Turn about the base's y, the second."""
    yaw_rad: float
    """Turn about the base's z, the last."""

    @property
    def quat_wxyz(self) -> tuple[float, float, float, float]:
        """Orientation, sensor to base."""
        (cr, cp, cy), (sr, sp, sy) = (
            tuple(turn(0.5 * angle) for angle in (self.roll_rad, self.pitch_rad, self.yaw_rad))
            for turn in (math.cos, math.sin)
        )
        return (
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        )


class Frames:
    """Compares the frames of messages with the expected ones; an empty name stands for the expected one.

    Args:
        same: Value of the parameter ``same_frames``.
        poses: Value of the parameter ``frame_poses``.

    Raises:
        GantryError: If a value is not written as its parameter says.
    """

    def __init__(self, same: str = "", poses: str = "") -> None:
        self._same: list[set[str]] = []
        for item in _items("same_frames", same):
            names = {_plain(name) for name in item}
            if len(item) != 2 or not all(names):
                raise GantryError(
                    f"Parameter 'same_frames' holds {plain_text('='.join(item))}, expected 'imu_link=base_link'."
                )
            joined = [group for group in self._same if group & names]
            self._same = [group for group in self._same if not group & names] + [names.union(*joined)]
        self._poses = {_plain(item[0]): _pose(item) for item in _items("frame_poses", poses)}

    @classmethod
    def of(cls, values: dict[str, Any]) -> Frames:
        """From values of :data:`PARAMETERS`."""
        return cls(values["same_frames"], values["frame_poses"])

    def same(self, found: str, expected: str) -> bool:
        """Whether two names mean the same frame; an empty one means what is expected."""
        found, expected = _plain(found), _plain(expected)
        return found in ("", expected) or any({found, expected} <= group for group in self._same)

    def require(self, found: str, expected: str, what: str) -> None:
        """Refuse a message in another frame.

        Args:
            found: Name in the message.
            expected: Name of the frame that it must be in.
            what: Begins the sentence, such as 'The odometry is told'.

        Raises:
            RobotError: With both names, and the parameter that makes them one.
        """
        if not self.same(found, expected):
            name = printable(found)
            raise RobotError(
                f"{what} in frame '{name}', expected '{expected}'. If they are the same, set same_frames to "
                f"'{name}={expected}'."
            )

    def told(self, found: str, expected: str) -> str:
        """The expected frame by the name that a message calls it, for comparing names."""
        return found if found and self.same(found, expected) else expected

    def pose(self, found: str) -> SensorPose | None:
        """Pose of a frame in the base; None if no parameter says."""
        name = _plain(found)
        names = next((group for group in self._same if name in group), {name})
        return next((pose for key, pose in self._poses.items() if key in names), None)


def _plain(name: str) -> str:
    """A frame's name without the slash that ROS 1 put before it."""
    return name.strip().removeprefix("/")


def _items(parameter: str, text: str) -> list[list[str]]:
    items = [item.split("=") for item in text.split(",") if item.strip()]
    for item in items:
        if len(item) < 2 or not item[0].strip():
            raise GantryError(
                f"Parameter '{parameter}' holds {plain_text('='.join(item).strip())}, expected 'name=...'."
            )
    return items


def _pose(item: list[str]) -> SensorPose:
    try:
        numbers = [float(part) for part in item[1].split()]
    except ValueError:
        numbers = []
    if len(item) != 2 or len(numbers) != 6 or not np.isfinite(numbers).all():
        raise GantryError(
            f"Parameter 'frame_poses' holds {plain_text('='.join(item).strip())}, expected "
            "'name=x y z roll pitch yaw' with six numbers, m and rad."
        )
    x, y, z, roll, pitch, yaw = numbers
    return SensorPose((x, y, z), roll, pitch, yaw)
