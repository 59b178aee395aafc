"""Observation of the base's motion as the wheels tell it."""

from __future__ import annotations

from typing import Any

from gantry_deploy.observations.signals import Signals, TermConstants, TermInfo
from gantry_rover.robot import RoverBody


def wheel_odometry(signals: Signals, constants: TermConstants) -> Any:
    """Forward velocity, m/s, and yaw rate, rad/s, (N, 2)."""
    return constants.contract.body_as(RoverBody).velocity(signals.joint_vel_rad_s)


WHEEL_ODOMETRY = TermInfo(wheel_odometry, "", "base", "m/s, rad/s", mirror=(1.0, -1.0))
"""Registered as ``wheel_odometry``."""
