"""A car of a foreign simulator as a robot backend: lock-step, one decision of that simulator at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import GRAVITY_M_S2, JointCommand, RobotState
from gantry_hardware.errors import RobotError
from gantry_hardware.model.cars import CarSpec
from gantry_hardware.model.spec import RobotSpec


@dataclass(frozen=True)
class Motion:
    """Motion of a car at ``base_link``, the middle of its rear axle; the world's y is to the left of its x."""

    x_m: float
    """In the world."""
    y_m: float
    """In the world."""
    yaw_rad: float
    """Counter-clockwise from the world's x."""
    forward_m_s: float
    """Velocity along the car."""
    left_m_s: float
    """Velocity across it."""
    yaw_rate_rad_s: float
    """Left positive."""
    pitch_rad: float = 0.0
    """Nose down positive."""
    roll_rad: float = 0.0
    """Right side down positive."""

    @property
    def quat_base_to_world_wxyz(self) -> np.ndarray:
        """Shape (4,), unit quaternion from the base to the world frame: yaw, then pitch, then roll."""
        (cy, sy), (cp, sp), (cr, sr) = (
            (math.cos(0.5 * angle), math.sin(0.5 * angle)) for angle in (self.yaw_rad, self.pitch_rad, self.roll_rad)
        )
        return np.array(
            [
                cy * cp * cr + sy * sp * sr,
                cy * cp * sr - sy * sp * cr,
                cy * sp * cr + sy * cp * sr,
                sy * cp * cr - cy * sp * sr,
            ]
        )


def motion_at_rear_axle(
    x_m: float,
    y_m: float,
    yaw_rad: float,
    velocity_m_s: tuple[float, float],
    yaw_rate_rad_s: float,
    ahead_m: float,
    pitch_rad: float = 0.0,
    roll_rad: float = 0.0,
) -> Motion:
    """The motion of ``base_link`` from that of a point ``ahead_m`` ahead of it on the car's axis.

    Args:
        x_m: Of that point in the world.
        y_m: Of that point in the world.
        yaw_rad: Of the car.
        velocity_m_s: Of that point along the world's axes.
        yaw_rate_rad_s: Of the car.
        ahead_m: See above.
        pitch_rad: See :class:`Motion`.
        roll_rad: See :class:`Motion`.
    """
    cos, sin = math.cos(yaw_rad), math.sin(yaw_rad)
    vx, vy = velocity_m_s
    return Motion(
        x_m=x_m - ahead_m * cos,
        y_m=y_m - ahead_m * sin,
        yaw_rad=yaw_rad,
        forward_m_s=cos * vx + sin * vy,
        left_m_s=cos * vy - sin * vx - yaw_rate_rad_s * ahead_m,
        yaw_rate_rad_s=yaw_rate_rad_s,
        pitch_rad=pitch_rad,
        roll_rad=roll_rad,
    )


class HeldOutCar(ABC):
    """A robot backend over a simulator that is asked for one decision at a time.

    The steering goes towards its set-point at the car's steering rate, since foreign simulators turn wheels at once;
    what becomes of the speed set-point is the simulator's affair.

    Args:
        spec: The car.
        dt_s: Length of a decision.

    Raises:
        GantryError: If the robot is no car.
    """

    def __init__(self, spec: RobotSpec, dt_s: float) -> None:
        self.spec, self.dt_s = spec, dt_s
        self.car = spec.body_as(CarSpec)
        self._limiter = CommandLimiter(spec)
        self._connected = False
        self._time_s, self._travel_m = 0.0, 0.0
        self._steering_rad, self._steering_rate_rad_s = 0.0, 0.0
        self._accel_m_s2 = np.zeros(2)
        self._told: JointCommand | None = None

    @abstractmethod
    def motion(self) -> Motion:
        """Current motion of the car."""

    @abstractmethod
    def advance(self, steering_rad: float, speed_m_s: float) -> None:
        """One decision: wheels at this angle, and the speed that shall be reached at its end."""

    def connect(self) -> None:
        """Nothing to be opened."""
        self._connected = True

    def close(self) -> None:
        """Nothing more is commanded."""
        self._connected = False

    def now_s(self) -> float:
        """Time of the simulator since the car was made."""
        return self._time_s

    def sleep_until(self, time_s: float) -> None:
        """Let whole decisions pass until then."""
        for _ in range(max(0, math.ceil((time_s - self._time_s) / self.dt_s - 1e-6))):
            self._step()

    def read(self) -> RobotState:
        """The state now.

        Raises:
            RobotError: If not connected.
        """
        self._require_connection()
        now = self.motion()
        return RobotState(
            stamp_s=self._time_s,
            joint_pos_rad=np.array([self._steering_rad, self._travel_m]),
            joint_vel_rad_s=np.array([self._steering_rate_rad_s, now.forward_m_s]),
            joint_effort_nm=np.zeros(2),
            quat_base_to_world_wxyz=now.quat_base_to_world_wxyz,
            ang_vel_base_in_base_rad_s=np.array([0.0, 0.0, now.yaw_rate_rad_s]),
            lin_acc_base_in_base_m_s2=np.array([*self._accel_m_s2, GRAVITY_M_S2]),
            pos_base_in_world_m=np.array([now.x_m, now.y_m, 0.0]),
            lin_vel_base_in_base_m_s=np.array([now.forward_m_s, now.left_m_s, 0.0]),
        )

    def write(self, command: JointCommand) -> JointCommand:
        """Take a command; it counts from the next decision on.

        Raises:
            RobotError: If not connected, or if the command's shapes or numbers are wrong.
        """
        self._require_connection()
        self._told, _ = self._limiter.clamp(command)
        return self._told

    def _step(self) -> None:
        before = self.motion()
        target, speed = self._steering_rad, 0.0
        if self._told is not None:
            target, speed = float(self._told.pos_rad[STEERING]), float(self._told.vel_rad_s[DRIVE])
        turn = self.car.steering_rate_limit_rad_s * self.dt_s
        moved = min(turn, max(-turn, target - self._steering_rad))
        self._steering_rad += moved
        self._steering_rate_rad_s = moved / self.dt_s
        self.advance(self._steering_rad, speed)
        self._time_s += self.dt_s
        after = self.motion()
        self._travel_m += 0.5 * (before.forward_m_s + after.forward_m_s) * self.dt_s
        self._accel_m_s2 = accel_between(before, after, self.dt_s)

    def _require_connection(self) -> None:
        if not self._connected:
            raise RobotError("The simulated car is not connected; call connect() first.")


def accel_between(before: Motion, after: Motion, dt_s: float) -> np.ndarray:
    """Acceleration (2,) of ``base_link`` along and across the car, m/s^2, from its motion at the ends of a step."""
    forward = (after.forward_m_s - before.forward_m_s) / dt_s
    left = (after.left_m_s - before.left_m_s) / dt_s
    yaw_rate = 0.5 * (before.yaw_rate_rad_s + after.yaw_rate_rad_s)
    speed, drift = 0.5 * (before.forward_m_s + after.forward_m_s), 0.5 * (before.left_m_s + after.left_m_s)
    return np.array([forward - yaw_rate * drift, left + yaw_rate * speed])
