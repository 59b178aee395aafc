"""Readings and commands of a recorded robot on their own time axes, as a fit needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

COMMAND_FIELDS = ("pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad")
"""Parts of a command, in the order of :attr:`MotionLog.commands`."""
POS, VEL, EFFORT, STIFFNESS, DAMPING = range(len(COMMAND_FIELDS))
"""Places of those parts."""
MIN_SECONDS = 5.0
"""Shortest recording that is looked at."""


@dataclass(frozen=True)
class MotionLog:
    """T readings and K commands of n joints in the spec's order, on one clock. What was not recorded is NaN."""

    spec: RobotSpec
    """Robot that was recorded."""
    time_s: FloatArray
    """Shape (T,), when each reading was measured."""
    joint_pos_rad: FloatArray
    """Shape (T, n), readings of the encoders."""
    joint_vel_rad_s: FloatArray
    """Shape (T, n)."""
    joint_effort_nm: FloatArray
    """Shape (T, n)."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (T, 4), attitude by the IMU."""
    ang_vel_base_in_base_rad_s: FloatArray
    """Shape (T, 3), gyroscope."""
    foot_contact: FloatArray
    """Shape (T, feet), 1 on the ground and 0 in the air."""
    command_time_s: FloatArray
    """Shape (K,), when each command was sent; it holds until the next one."""
    commands: FloatArray
    """Shape (K, 5, n), :data:`COMMAND_FIELDS`."""
    source: str = ""
    """File that it was read from."""

    def __post_init__(self) -> None:
        n, feet, rows = self.spec.num_joints, len(self.spec.feet), len(self.time_s)
        for name, shape in (
            ("joint_pos_rad", (rows, n)),
            ("joint_vel_rad_s", (rows, n)),
            ("joint_effort_nm", (rows, n)),
            ("quat_base_to_world_wxyz", (rows, 4)),
            ("ang_vel_base_in_base_rad_s", (rows, 3)),
            ("foot_contact", (rows, feet)),
            ("commands", (len(self.command_time_s), len(COMMAND_FIELDS), n)),
        ):
            if getattr(self, name).shape != shape:
                raise GantryError(
                    f"{self.source or 'The log'}: '{name}' has shape {getattr(self, name).shape}, expected {shape}."
                )

    @property
    def duration_s(self) -> float:
        """Time from the first reading to the last."""
        return float(self.time_s[-1] - self.time_s[0]) if len(self.time_s) else 0.0

    @property
    def rate_hz(self) -> float:
        """Usual number of readings per second."""
        return float(1.0 / np.median(np.diff(self.time_s)))

    @property
    def has_effort(self) -> bool:
        """Whether torques were measured; robots that do not report zeros."""
        return bool(np.isfinite(self.joint_effort_nm).all() and np.any(self.joint_effort_nm != 0.0))

    @property
    def has_imu(self) -> bool:
        """Whether attitude and turning rate were recorded."""
        known = np.isfinite(self.quat_base_to_world_wxyz).all() and np.isfinite(self.ang_vel_base_in_base_rad_s).all()
        return bool(known)

    @property
    def has_contacts(self) -> bool:
        """Whether contacts of the feet were recorded."""
        return bool(self.foot_contact.size and np.isfinite(self.foot_contact).all())

    def command_rows(self, times_s: FloatArray) -> NDArray[np.intp]:
        """Shape of ``times_s`` (m,), indices of the commands that hold at those times; -1 before the first."""
        return np.searchsorted(self.command_time_s, times_s + 1e-9, side="right") - 1

    def between(self, first_s: float, last_s: float) -> MotionLog:
        """Readings from one time to another, with all commands."""
        rows = (self.time_s >= first_s - 1e-9) & (self.time_s <= last_s + 1e-9)
        names = (
            "time_s",
            "joint_pos_rad",
            "joint_vel_rad_s",
            "joint_effort_nm",
            "quat_base_to_world_wxyz",
            "ang_vel_base_in_base_rad_s",
            "foot_contact",
        )
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def checked(log: MotionLog) -> MotionLog:
    """The log with increasing times and finite readings alone.

    Raises:
        GantryError: If too little is left, with what there is.
    """
    where = log.source or "The recording"
    needed = np.isfinite(log.joint_pos_rad).all(axis=1) & np.isfinite(log.joint_vel_rad_s).all(axis=1)
    rows = needed & np.isfinite(log.time_s)
    rows &= np.concatenate(([True], log.time_s[1:] > np.maximum.accumulate(log.time_s)[:-1]))
    if not len(log.command_time_s):
        raise GantryError(f"{where} holds no commands to the joints; expected what was sent beside what was read.")
    good = np.isfinite(log.commands).all(axis=(1, 2)) & np.isfinite(log.command_time_s)
    good &= np.concatenate(([True], np.diff(log.command_time_s) > 0.0))
    kept = replace(
        log,
        time_s=log.time_s[rows],
        joint_pos_rad=log.joint_pos_rad[rows],
        joint_vel_rad_s=log.joint_vel_rad_s[rows],
        joint_effort_nm=log.joint_effort_nm[rows],
        quat_base_to_world_wxyz=log.quat_base_to_world_wxyz[rows],
        ang_vel_base_in_base_rad_s=log.ang_vel_base_in_base_rad_s[rows],
        foot_contact=log.foot_contact[rows],
        command_time_s=log.command_time_s[good],
        commands=log.commands[good],
    )
    if not good.any():
        raise GantryError(f"{where} holds {len(good)} commands, none of them with finite numbers.")
    if kept.duration_s < MIN_SECONDS:
        raise GantryError(
            f"{where} holds {kept.duration_s:.1f} s of readings with finite numbers, expected at least "
            f"{MIN_SECONDS:g} s."
        )
    return kept
