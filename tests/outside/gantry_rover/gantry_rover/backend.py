"""One simulated rover in lock-step."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import GRAVITY_M_S2, JointCommand, RobotState
from gantry_hardware.errors import RobotError
from gantry_hardware.model.spec import RobotSpec
from gantry_rover.robot import RoverBody, speeds_after

FloatArray = NDArray[np.float64]


class RoverSim:
    """A rover whose wheels are velocity servos; it knows its own motion.

    Args:
        spec: The rover.
        noise: Multiple of 0.01 rad/s, the standard deviation of the wheels' speed sensors.
        friction: Of no effect: the wheels do not slip.
        added_mass_kg: Of no effect: the servos have torque to spare.
        seed: Of the noise.
    """

    simulated = True

    def __init__(
        self,
        spec: RobotSpec,
        *,
        noise: float = 0.0,
        friction: float = 1.0,
        added_mass_kg: float = 0.0,
        seed: int = 0,
    ) -> None:
        del friction, added_mass_kg
        self.spec, self._body, self._noise = spec, spec.body_as(RoverBody), noise
        self._random, self._limiter = np.random.default_rng(seed), CommandLimiter(spec)
        self._time_s, self._connected = 0.0, False
        self.reset()

    def reset(self) -> None:
        """Back to the origin, at rest."""
        self._wheels, self._speed, self._target = np.zeros(2), np.zeros(2), np.zeros(2)
        self._x, self._y, self._yaw = 0.0, 0.0, 0.0

    def connect(self) -> None:
        """Nothing to open."""
        self._connected = True

    def close(self) -> None:
        """Release the robot."""
        self._connected = False

    def now_s(self) -> float:
        """Simulated time."""
        return self._time_s

    def sleep_until(self, time_s: float) -> None:
        """Step the physics to that time."""
        dt_s = time_s - self._time_s
        if dt_s <= 0.0:
            return
        self._speed = speeds_after(self._speed, self._target, dt_s)
        self._wheels = self._wheels + dt_s * self._speed
        forward, turn = self._motion
        self._yaw += dt_s * turn
        self._x, self._y = (
            self._x + dt_s * forward * math.cos(self._yaw),
            self._y + dt_s * forward * math.sin(self._yaw),
        )
        self._time_s = time_s

    def read(self) -> RobotState:
        """The state now."""
        self._require_connection()
        return RobotState(
            stamp_s=self._time_s,
            joint_pos_rad=self._wheels.copy(),
            joint_vel_rad_s=self._speed + 0.01 * self._noise * self._random.standard_normal(2),
            joint_effort_nm=np.zeros(2),
            quat_base_to_world_wxyz=self.quat_base_to_world_wxyz,
            ang_vel_base_in_base_rad_s=self.true_ang_vel_base_in_base_rad_s,
            lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, GRAVITY_M_S2]),
            pos_base_in_world_m=np.array([self._x, self._y, self.base_height_m]),
            lin_vel_base_in_base_m_s=self.true_lin_vel_base_in_base_m_s,
        )

    def write(self, command: JointCommand) -> JointCommand:
        """Take wheel speeds; wheels without damping are let go."""
        self._require_connection()
        limited, _ = self._limiter.clamp(command)
        self._target = np.where(limited.damping_nm_s_rad > 0.0, limited.vel_rad_s, self._speed)
        return limited

    @property
    def _motion(self) -> FloatArray:
        return self._body.velocity(self._speed[None])[0]

    @property
    def true_lin_vel_base_in_base_m_s(self) -> FloatArray:
        """Shape (3,)."""
        return np.array([self._motion[0], 0.0, 0.0])

    @property
    def true_ang_vel_base_in_base_rad_s(self) -> FloatArray:
        """Shape (3,)."""
        return np.array([0.0, 0.0, self._motion[1]])

    @property
    def quat_base_to_world_wxyz(self) -> FloatArray:
        """Shape (4,)."""
        return np.array([math.cos(0.5 * self._yaw), 0.0, 0.0, math.sin(0.5 * self._yaw)])

    @property
    def base_height_m(self) -> float:
        """Of the base's origin above the ground, constant."""
        return self.spec.base_height_m

    def _require_connection(self) -> None:
        if not self._connected:
            raise RobotError("The rover is not connected; call connect() first.")
