"""A person's motion and gripper as messages, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from geometry_msgs.msg import Twist

from gantry_deploy.teleop.operator import Axis
from gantry_hardware.errors import RobotError

FIELDS = {
    Axis.X: ("linear", "x"),
    Axis.Y: ("linear", "y"),
    Axis.Z: ("linear", "z"),
    Axis.ROLL: ("angular", "x"),
    Axis.PITCH: ("angular", "y"),
    Axis.YAW: ("angular", "z"),
    Axis.THROTTLE: ("linear", "x"),
    Axis.STEER: ("angular", "z"),
}
"""Axis -> part and field of a Twist; a robot has an arm's axes or a car's."""


def motion(message: Twist, axes: Iterable[Axis]) -> dict[Axis, float]:
    """Motion by axis in [-1, 1]; what is beyond is cut.

    Raises:
        RobotError: If a number is not finite.
    """
    found = {}
    for axis in axes:
        if axis in FIELDS:
            part, name = FIELDS[axis]
            value = getattr(getattr(message, part), name)
            if not math.isfinite(value):
                raise RobotError(f"The motion's {part}.{name} is {value}, expected -1 to 1.")
            found[axis] = min(1.0, max(-1.0, value))
    return found


def motion_message(axes: Mapping[Axis, float]) -> Twist:
    """Twist of a motion by axis; what a Twist cannot carry is left out."""
    message = Twist()
    for axis, value in axes.items():
        if axis in FIELDS:
            part, name = FIELDS[axis]
            setattr(getattr(message, part), name, float(value))
    return message


def gripper(opening: float) -> float:
    """Gripper's axis, -1 closes and 1 opens, of an opening from 0, closed, to 1, open; what is beyond is cut.

    Raises:
        RobotError: If it is not finite.
    """
    if not math.isfinite(opening):
        raise RobotError(f"The gripper's opening is {opening}, expected 0 to 1.")
    return min(1.0, max(-1.0, 2.0 * opening - 1.0))


def opening(axis: float) -> float:
    """Opening from 0 to 1 of the gripper's axis, the inverse of :func:`gripper`."""
    return 0.5 * (axis + 1.0)
