"""A robot's limits applied to a command, the last gate before the motors; what was changed is said aloud."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import RobotError
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

MAX_GAIN_RATIO = 5.0
"""Largest gain of a command, in units of the larger of the robot's own gain and the one it holds a pose with."""

MIN_GAIN_RATIO = 0.02
"""Smallest gain that a policy may run with, in units of the robot's own: a joint that is softer is not held at all."""

_FIELDS = ("pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad")


def gain_limits(spec: RobotSpec) -> tuple[FloatArray, FloatArray]:
    """Largest stiffness (N m/rad) and damping (N m s/rad) of every joint, shapes (num_joints,).

    A loop that is far stiffer than the one a robot was made for oscillates, and turns every error into full torque.
    """
    stiffness = np.maximum(spec.array("stiffness_nm_rad"), spec.hold_stiffness_nm_rad)
    damping = np.maximum(spec.array("damping_nm_s_rad"), spec.hold_damping_nm_s_rad)
    # What the robot is let down with is in order, however large it is.
    return MAX_GAIN_RATIO * stiffness, np.maximum(MAX_GAIN_RATIO * damping, spec.damp_damping_nm_s_rad)


class CommandLimiter:
    """Clamps commands to one robot's limits; holds the limits as arrays so that a control loop allocates little.

    Args:
        spec: The robot whose limits apply.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self.spec = spec
        self._lower = spec.array("lower_rad")
        self._upper = spec.array("upper_rad")
        self._speed = spec.array("velocity_limit_rad_s")
        self._slowest = -spec.reverse_limit_rad_s
        self._effort = spec.array("effort_limit_nm")
        self._stiffness, self._damping = gain_limits(spec)

    def clamp(self, command: JointCommand) -> tuple[JointCommand, list[str]]:
        """The command within the limits, and one line per number that was changed.

        Raises:
            RobotError: If an array has another shape than (num_joints,) or holds a number that is not finite.
        """
        self.check(command)
        limited = JointCommand(
            pos_rad=np.clip(command.pos_rad, self._lower, self._upper),
            vel_rad_s=np.clip(command.vel_rad_s, self._slowest, self._speed),
            effort_nm=np.clip(command.effort_nm, -self._effort, self._effort),
            stiffness_nm_rad=np.clip(command.stiffness_nm_rad, 0.0, self._stiffness),
            damping_nm_s_rad=np.clip(command.damping_nm_s_rad, 0.0, self._damping),
        )
        return limited, self._changes(command, limited)

    def check(self, command: JointCommand) -> None:
        """Refuse wrong shapes and numbers that are not finite.

        Raises:
            RobotError: Naming the field, and the joints whose number is not finite.
        """
        for field in _FIELDS:
            values = getattr(command, field)
            if np.shape(values) != (self.spec.num_joints,):
                raise RobotError(
                    f"Command field '{field}' has shape {np.shape(values)}, "
                    f"expected ({self.spec.num_joints},) for robot '{self.spec.name}'."
                )
            finite = np.isfinite(values)
            if not finite.all():
                bad = [f"{self.spec.joint_names[i]} = {values[i]}" for i in np.flatnonzero(~finite)]
                raise RobotError(f"Command field '{field}' is not finite: {', '.join(bad)}.")

    def _changes(self, asked: JointCommand, given: JointCommand) -> list[str]:
        lines: list[str] = []
        for field in _FIELDS:
            before, after = getattr(asked, field), getattr(given, field)
            if (before == after).all():
                continue
            for i in np.flatnonzero(before != after):
                lines.append(f"{self.spec.joint_names[i]}: {field} {before[i]:.4g} limited to {after[i]:.4g}")
        return lines


def clamp_command(spec: RobotSpec, command: JointCommand) -> tuple[JointCommand, list[str]]:
    """Limit a command: positions, velocities and feed-forward torque to the joints' limits, gains to
    :func:`gain_limits` and to at least 0.

    Returns:
        The limited command, and one line per number that was changed (joint, field, asked, given).

    Raises:
        RobotError: If an array has another shape than (num_joints,) or holds a number that is not finite.
    """
    return _limiter(spec).clamp(command)


@lru_cache(maxsize=8)
def _limiter(spec: RobotSpec) -> CommandLimiter:
    return CommandLimiter(spec)
