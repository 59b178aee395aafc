"""Car part of a policy contract: dimensions, limits, and the layout of what the policy sees."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.errors import ContractError
from gantry_hardware.model.cars import CarSpec

DRIVE_TARGET = "target/body/acceleration"
"""Semantic kind of an action that drives a car: steering and signed acceleration, each in [-1, 1]."""
DRIVE_ACTIONS = ("steering", "acceleration")
"""Names of the two numbers of an action."""
STEERING, DRIVE = 0, 1
"""Places of a car's joints in every joint array."""
GEOMETRY_TOLERANCE = 0.02
"""A dimension of contract and car may differ by this share of the wheelbase."""

_GEOMETRY = ("wheelbase_m", "length_m", "width_m", "center_x_in_base_m")
_LIMITS = (
    "steering_limit_rad",
    "steering_rate_limit_rad_s",
    "accel_limit_m_s2",
    "brake_limit_m_s2",
    "speed_limit_m_s",
)


@dataclass(frozen=True)
class LidarLayout:
    """The scan that a policy sees: beam j is the nearest return within its share of the angles.

    Beam j covers ``angle_min_rad + j w`` to ``angle_min_rad + (j + 1) w`` with w = (max - min) / beams,
    counter-clockwise.
    """

    beams: int
    """Beams that the policy sees."""
    angle_min_rad: float
    """Right end of the scan, in the scanner's frame, 0 ahead."""
    angle_max_rad: float
    """Left end of the scan."""
    range_max_m: float
    """Reading without a return; ranges are seen as shares of it."""
    pos_x_in_base_m: float = 0.0
    """Distance of the scanner ahead of ``base_link`` in training."""

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise ContractError(f"body.lidar.beams is {self.beams}, expected 1 or more.")
        if not 0.0 < self.angle_max_rad - self.angle_min_rad <= 2.0 * math.pi + 1e-6:
            raise ContractError(
                f"body.lidar covers {self.angle_min_rad} to {self.angle_max_rad} rad, expected up to one turn, "
                "from right to left."
            )
        if not self.range_max_m > 0.0:
            raise ContractError(f"body.lidar.range_max_m is {self.range_max_m}, expected more than 0.")


@dataclass(frozen=True)
class DriveSpec:
    """Conversion of a car's actions to steering and speed (:class:`gantry_deploy.actions.drive.DriveDecoder`), and its
    observations.
    """

    wheelbase_m: float
    """From the rear axle to the front axle."""
    length_m: float
    """Of the box around the car."""
    width_m: float
    """Of the box around the car."""
    center_x_in_base_m: float
    """Distance of the box's middle ahead of ``base_link``, the middle of the rear axle."""
    steering_limit_rad: float
    """Steering angle of an action of 1."""
    steering_rate_limit_rad_s: float
    """Largest speed of the steering in training."""
    accel_limit_m_s2: float
    """Acceleration of an action of 1."""
    brake_limit_m_s2: float
    """Deceleration of an action of -1."""
    speed_limit_m_s: float
    """Largest speed set-point."""
    reverse_limit_m_s: float = 0.0
    """Largest speed set-point backwards, positive; counts with ``allow_reverse`` alone."""
    allow_reverse: bool = False
    """Whether the policy may drive backwards; otherwise no set-point is below 0."""
    lookahead_m: tuple[float, ...] = ()
    """Distances along the route at which the policy looks at it, ascending."""
    curvature_reach_m: float = 2.0
    """The route's curvature is that of points so far before and after the place."""
    max_objects: int = 0
    """Number of the nearest objects that are seen."""
    object_range_m: float = 50.0
    """Objects whose middle is farther from ``base_link`` are not seen."""
    stop_line_range_m: float = 50.0
    """A stop line that is farther, or none, is seen at this distance."""
    lidar: LidarLayout | None = None
    """The scan, if the policy sees one."""
    bev: BevLayout | None = None
    """The picture from above, if the policy sees one."""

    def __post_init__(self) -> None:
        for name in ("wheelbase_m", "length_m", "width_m", *_LIMITS, "curvature_reach_m", "object_range_m"):
            if not getattr(self, name) > 0.0:
                raise ContractError(f"body.{name} is {getattr(self, name)}, expected more than 0.")
        for name in ("reverse_limit_m_s", "max_objects", "stop_line_range_m"):
            if not getattr(self, name) >= 0.0:
                raise ContractError(f"body.{name} is {getattr(self, name)}, expected 0 or more.")
        if self.steering_limit_rad >= math.pi / 2:
            raise ContractError(f"body.steering_limit_rad is {self.steering_limit_rad}, expected below a quarter turn.")
        if any(b <= a for a, b in zip(self.lookahead_m, self.lookahead_m[1:], strict=False)):
            raise ContractError(f"body.lookahead_m is {self.lookahead_m}, expected ascending distances.")

    @property
    def slowest_m_s(self) -> float:
        """Smallest speed set-point, 0 or, with ``allow_reverse``, negative."""
        return -self.reverse_limit_m_s if self.allow_reverse else 0.0

    def check_car(self, car: CarSpec, robot: str) -> None:
        """Refuse a car of other dimensions; of limits the smaller ones count when it drives.

        Raises:
            ContractError: With both sides.
        """
        for name in _GEOMETRY:
            mine, theirs = getattr(self, name), getattr(car, name)
            # "not <=", so that NaN does not pass.
            if not abs(mine - theirs) <= GEOMETRY_TOLERANCE * car.wheelbase_m:
                raise ContractError(
                    f"The contract's car has {name} {mine:g}, robot '{robot}' has {theirs:g}: the policy was trained "
                    "for another car."
                )


def drive_spec_of(car: CarSpec, **more: object) -> DriveSpec:
    """A car's dimensions and limits as a contract part.

    Args:
        car: Its numbers.
        more: Further fields of :class:`DriveSpec`, which win.
    """
    names = (*_GEOMETRY, *_LIMITS, "reverse_limit_m_s")
    return DriveSpec(**{**{name: getattr(car, name) for name in names}, **more})  # type: ignore[arg-type]
