"""The rover in numbers, and the physics of its wheels and base."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from gantry_hardware.files.bounds import Range
from gantry_hardware.model.spec import JointSpec, RobotSpec
from gantry_mapping.elevation.ops import namespace

DAMPING_NM_S_RAD, INERTIA_KG_M2 = 0.5, 0.05


@dataclass(frozen=True)
class RoverBody:
    """Geometry of two driven wheels on one axle."""

    RANGES: ClassVar[dict[str, Range]] = {"wheel_radius_m": Range(0.001, 1.0), "track_m": Range(0.001, 5.0)}

    wheel_radius_m: float = 0.1
    """Radius of both wheels."""
    track_m: float = 0.4
    """Distance between the wheels."""

    def velocity(self, wheels_rad_s: Any) -> Any:
        """Forward velocity, m/s, and yaw rate, rad/s, (N, 2), of wheel speeds (N, 2), left and right, rad/s."""
        left, right = wheels_rad_s[:, 0], wheels_rad_s[:, 1]
        forward = 0.5 * self.wheel_radius_m * (left + right)
        return namespace(left).stack((forward, self.wheel_radius_m * (right - left) / self.track_m), axis=-1)


def speeds_after(wheels_rad_s: Any, target_rad_s: Any, dt_s: float) -> Any:
    """Wheel speeds (N, 2), rad/s, after ``dt_s`` of a velocity servo: the exact answer of a first-order lag."""
    share = 1.0 - math.exp(-dt_s * DAMPING_NM_S_RAD / INERTIA_KG_M2)
    return wheels_rad_s + share * (target_rad_s - wheels_rad_s)


ROVER = RobotSpec(
    name="rover",
    embodiment="two_wheels",
    joints=tuple(
        JointSpec(f"{side}_wheel_joint", -1e9, 1e9, 20.0, 10.0, 0.0, 0.0, DAMPING_NM_S_RAD, INERTIA_KG_M2)
        for side in ("left", "right")
    ),
    feet=(),
    base_height_m=0.1,
    fall_height_m=0.02,
    mass_kg=8.0,
    source="made up",
    body=RoverBody(),
)
"""Registered as ``rover``."""
