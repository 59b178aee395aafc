"""Noise of a robot's sensors."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError, UnknownNameError

FloatArray = NDArray[np.float64]

DISTRIBUTIONS = ("uniform", "gaussian")
"""Names that :attr:`SensorNoise.distribution` may have."""


@dataclass(frozen=True)
class SensorNoise:
    """Independent zero-mean noise of each reading; zero everywhere unless told otherwise."""

    joint_pos_rad: float = 0.0
    """Of every joint position."""
    joint_vel_rad_s: float = 0.0
    """Of every joint velocity."""
    ang_vel_rad_s: float = 0.0
    """Of every gyroscope axis."""
    orientation_rad: float = 0.0
    """Of the roll and pitch that the orientation reports; yaw is left alone, since gravity does not show it."""
    lin_acc_m_s2: float = 0.0
    """Of every accelerometer axis."""
    lin_vel_m_s: float = 0.0
    """Of every axis of the odometry's velocity."""
    distribution: Literal["uniform", "gaussian"] = "uniform"
    """``uniform``: each number is the half width of the band; ``gaussian``: it is the standard deviation."""

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise UnknownNameError("noise distribution", self.distribution, DISTRIBUTIONS)
        for name in _amplitudes():
            if not getattr(self, name) >= 0.0:
                raise GantryError(f"Sensor noise '{name}' is {getattr(self, name)}, expected a number >= 0.")

    @classmethod
    def usual(cls, scale: float = 1.0) -> SensorNoise:
        """The uniform noise that velocity policies are commonly trained with, times ``scale``."""
        return cls(
            joint_pos_rad=0.01 * scale,
            joint_vel_rad_s=1.5 * scale,
            ang_vel_rad_s=0.2 * scale,
            orientation_rad=0.05 * scale,
        )

    @property
    def is_zero(self) -> bool:
        """Whether there is no noise at all."""
        return not any(getattr(self, name) for name in _amplitudes())

    def apply(self, state: RobotState, rng: np.random.Generator) -> RobotState:
        """The state as sensors of this noise would have read it; the truth is left untouched."""
        if self.is_zero:
            return state
        tilt = self._draw(rng, self.orientation_rad, 2)
        velocity = state.lin_vel_base_in_base_m_s
        return replace(
            state,
            joint_pos_rad=state.joint_pos_rad + self._draw(rng, self.joint_pos_rad, state.joint_pos_rad.size),
            joint_vel_rad_s=state.joint_vel_rad_s + self._draw(rng, self.joint_vel_rad_s, state.joint_vel_rad_s.size),
            quat_base_to_world_wxyz=tilted(state.quat_base_to_world_wxyz, tilt),
            ang_vel_base_in_base_rad_s=state.ang_vel_base_in_base_rad_s + self._draw(rng, self.ang_vel_rad_s, 3),
            lin_acc_base_in_base_m_s2=state.lin_acc_base_in_base_m_s2 + self._draw(rng, self.lin_acc_m_s2, 3),
            lin_vel_base_in_base_m_s=None if velocity is None else velocity + self._draw(rng, self.lin_vel_m_s, 3),
        )

    def _draw(self, rng: np.random.Generator, amplitude: float, size: int) -> FloatArray:
        # Always drawn, so that switching one noise off leaves the others as they were.
        unit = rng.uniform(-1.0, 1.0, size) if self.distribution == "uniform" else rng.standard_normal(size)
        return amplitude * unit


def _amplitudes() -> list[str]:
    return [field.name for field in fields(SensorNoise) if field.name != "distribution"]


def tilted(quat_wxyz: FloatArray, tilt_rad: FloatArray) -> FloatArray:
    """``quat_wxyz`` (4,) after a small further rotation ``tilt_rad`` (2,) about the base's own x and y axes."""
    angle = float(np.hypot(*tilt_rad))
    # sin(a / 2) / a, which is 1 / 2 at zero; numpy's sinc holds the pi.
    half = 0.5 * np.sinc(angle / (2.0 * np.pi))
    a, b, c = np.cos(angle / 2.0), half * tilt_rad[0], half * tilt_rad[1]
    w, x, y, z = quat_wxyz
    return np.array([w * a - x * b - y * c, w * b + x * a - z * c, w * c + y * a + z * b, x * c - y * b + z * a])
