"""Pose of a car from the counts of its motor and its steering angle: a bicycle that rolls without slip."""

from __future__ import annotations

import math
import threading

import numpy as np

from gantry_hardware.backends.state import GRAVITY_M_S2, RobotState
from gantry_hardware.vesc.calibration import VescCalibration

STEERING, DRIVE = 0, 1
"""Places of a car's joints."""


class DeadReckoning:
    """Pose of the rear axle's middle in a frame that begins at the first reading. Safe for two threads.

    Args:
        calibration: Travel per count.
        wheelbase_m: From axle to axle.
    """

    def __init__(self, calibration: VescCalibration, wheelbase_m: float) -> None:
        self._calibration, self._wheelbase_m = calibration, wheelbase_m
        self._lock = threading.Lock()
        self._counts: int | None = None
        self._travel_m, self._pose = 0.0, (0.0, 0.0, 0.0)

    def take(self, counts: int, steering_rad: float) -> None:
        """Move on to a count of the tachometer (signed, 32 bits), with the steering at an angle, left positive."""
        with self._lock:
            before, self._counts = self._counts, counts
            if before is None:
                return
            step = (counts - before + 2**31) % 2**32 - 2**31  # It wraps around.
            way_m = self._calibration.travel_m(step)
            x, y, yaw = self._pose
            turn = way_m * math.tan(steering_rad) / self._wheelbase_m
            ahead = yaw + 0.5 * turn
            self._travel_m += way_m
            self._pose = (x + way_m * math.cos(ahead), y + way_m * math.sin(ahead), yaw + turn)

    def state(self, stamp_s: float, steering_rad: float, speed_m_s: float) -> RobotState:
        """State of the car at its newest pose.

        Args:
            stamp_s: Time of the reading.
            steering_rad: Angle of the steering, left positive.
            speed_m_s: Along the car, negative backwards.
        """
        with self._lock:
            travel_m, (x, y, yaw) = self._travel_m, self._pose
        pos, vel = np.zeros(2), np.zeros(2)
        pos[STEERING], pos[DRIVE], vel[DRIVE] = steering_rad, travel_m, speed_m_s
        turning = speed_m_s * math.tan(steering_rad) / self._wheelbase_m
        return RobotState(
            stamp_s=stamp_s,
            joint_pos_rad=pos,
            joint_vel_rad_s=vel,
            joint_effort_nm=np.zeros(2),
            quat_base_to_world_wxyz=np.array([math.cos(0.5 * yaw), 0.0, 0.0, math.sin(0.5 * yaw)]),
            ang_vel_base_in_base_rad_s=np.array([0.0, 0.0, turning]),
            lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, GRAVITY_M_S2]),
            pos_base_in_world_m=np.array([x, y, 0.0]),
            lin_vel_base_in_base_m_s=np.array([speed_m_s, 0.0, 0.0]),
        )
