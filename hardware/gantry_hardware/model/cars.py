"""Published cars in numbers: geometry, inertia, tyres and limits.

Frames as everywhere in driving: a car's pose is that of ``base_link``, the centre of its rear axle on the ground, x
ahead and y to the left. Angles of steering are those of a virtual wheel in the middle of the front axle, left positive.

Sources:

* CommonRoad's sets 1 to 3: M. Althoff and G. Würsching, "CommonRoad: Vehicle Models", 2020, table 6, as in the package
  ``commonroad-vehicle-models`` 3.0.2. Set 4 is a truck with a trailer, which no model here drives.
* F1TENTH: the default parameters of ``f1tenth_gym``, and the stock configuration of the real car's motor controller
  (``vesc.yaml`` of ``f1tenth_system``), which contradicts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields

STANDSTILL_M_S = 0.05
"""Speed up to which a car stands."""
COMMONROAD = "CommonRoad: Vehicle Models (Althoff and Würsching, 2020), parameter set"
HEIGHT_SHARE = 0.35
"""Height of a car's box per length: no published value exists, and only viewers use it."""


@dataclass(frozen=True)
class WheelSpec:
    """Parameters that a model with turning wheels needs beside :class:`CarSpec`; front and rear wheels are alike."""

    radius_m: float
    """Effective rolling radius."""
    inertia_kg_m2: float
    """Of one wheel of the single-track model about its axle."""
    brake_share_front: float
    """Share of the braking torque at the front axle, 0 to 1."""
    drive_share_front: float
    """Share of the engine's torque at the front axle, 0 to 1."""

    def __post_init__(self) -> None:
        check_fields(self, _WHEEL_RANGES, "Wheel's ")


@dataclass(frozen=True)
class CarSpec:
    """One car. Limits are magnitudes, so that all of them are positive or zero."""

    name: str
    """Registry name, for example ``bmw_320i``."""
    length_m: float
    """Of the box around the car."""
    width_m: float
    """Of the box around the car."""
    wheelbase_m: float
    """From the rear axle to the front axle; the sum of the next two."""
    rear_axle_to_cog_m: float
    """From the rear axle to the centre of gravity, ``b`` in the literature."""
    front_axle_to_cog_m: float
    """From the centre of gravity to the front axle, ``a`` in the literature."""
    center_x_in_base_m: float
    """Distance of the box's middle ahead of ``base_link`` [m]."""
    mass_kg: float
    """Total mass."""
    yaw_inertia_kg_m2: float
    """About the vertical axis through the centre of gravity."""
    cog_height_m: float
    """Of the centre of gravity above the ground, for load transfer between the axles."""
    friction: float
    """Of tyre on road, dimensionless."""
    cornering_stiffness_front: float
    """In 1/rad, normalised by friction and load (CommonRoad's ``C_Sf``): force = friction * C_S * load * slip angle."""
    cornering_stiffness_rear: float
    """The same of the rear tyre (``C_Sr``)."""
    steering_limit_rad: float
    """Largest steering angle to either side."""
    steering_rate_limit_rad_s: float
    """Largest speed of the steering angle."""
    accel_limit_m_s2: float
    """Largest acceleration that the drive can give, below ``switch_speed_m_s``."""
    brake_limit_m_s2: float
    """Largest deceleration of the brakes."""
    speed_limit_m_s: float
    """Largest speed forwards."""
    reverse_limit_m_s: float
    """Largest speed backwards; 0 for a car that cannot reverse."""
    switch_speed_m_s: float
    """Above this speed power limits the drive: acceleration <= accel_limit * switch_speed / speed."""
    source: str
    """Source of the numbers."""
    wheels: WheelSpec | None = None
    """Of cars whose wheels are published; the drift model needs them."""

    def __post_init__(self) -> None:
        check_fields(self, _CAR_RANGES, f"Car '{self.name}': ")
        axles_m = self.rear_axle_to_cog_m + self.front_axle_to_cog_m
        if not math.isclose(self.wheelbase_m, axles_m, rel_tol=1e-9):
            raise GantryError(
                f"Car '{self.name}': wheelbase_m is {self.wheelbase_m}, but the axles are "
                f"{self.rear_axle_to_cog_m} + {self.front_axle_to_cog_m} = {axles_m} m apart."
            )

    def check_joints(self, name: str, joint_names: tuple[str, ...]) -> None:
        """Refuse a robot ``name`` whose joints are not a car's two.

        Raises:
            GantryError: With the joints.
        """
        if len(joint_names) != 2:
            found = ", ".join(joint_names)
            raise GantryError(f"Robot '{name}': a car has two joints, steering and drive, found {found}.")

    def urdf(self, name: str, joint_names: tuple[str, ...]) -> str:
        """The car as a box with a bar that shows the steering angle; ``base_link`` is the middle of the rear axle.

        Args:
            name: Of the robot.
            joint_names: Steering and drive; the drive has no link of its own.
        """
        height, bar = HEIGHT_SHARE * self.length_m, 0.2 * self.width_m
        limit, rate = self.steering_limit_rad, self.steering_rate_limit_rad_s
        return f"""<?xml version="1.0"?>
<robot name="{name}">
  <link name="base_link">
    <visual>
      <origin xyz="{self.center_x_in_base_m!r} 0 {0.5 * height!r}" rpy="0 0 0"/>
      <geometry><box size="{self.length_m!r} {self.width_m!r} {height!r}"/></geometry>
    </visual>
  </link>
  <link name="front_axle">
    <visual>
      <origin xyz="0 0 {height!r}" rpy="0 0 0"/>
      <geometry><box size="{3.0 * bar!r} {bar!r} {0.1 * height!r}"/></geometry>
    </visual>
  </link>
  <joint name="{joint_names[0]}" type="revolute">
    <parent link="base_link"/>
    <child link="front_axle"/>
    <origin xyz="{self.wheelbase_m!r} 0 0" rpy="0 0 0"/>
    <axis xyz="0 0 1"/>
    <limit lower="{-limit!r}" upper="{limit!r}" effort="0" velocity="{rate!r}"/>
  </joint>
</robot>
"""


_WHEEL_RANGES = {
    "radius_m": Range(1e-3, 10.0),
    "inertia_kg_m2": Range(1e-9, 1e4),
    "brake_share_front": Range(0.0, 1.0),
    "drive_share_front": Range(0.0, 1.0),
}
_CAR_RANGES = {
    "length_m": Range(0.01, 100.0),
    "width_m": Range(0.01, 20.0),
    "wheelbase_m": Range(0.01, 100.0),
    "rear_axle_to_cog_m": Range(1e-3, 100.0),
    "front_axle_to_cog_m": Range(1e-3, 100.0),
    "center_x_in_base_m": Range(-100.0, 100.0),
    "mass_kg": Range(0.01, 1e6),
    "yaw_inertia_kg_m2": Range(1e-6, 1e8),
    "cog_height_m": Range(0.0, 10.0),
    "friction": Range(1e-3, 10.0),
    "cornering_stiffness_front": Range(0.01, 1000.0),
    "cornering_stiffness_rear": Range(0.01, 1000.0),
    "steering_limit_rad": Range(1e-3, 0.5 * math.pi - 1e-3),
    "steering_rate_limit_rad_s": Range(1e-3, 100.0),
    "accel_limit_m_s2": Range(1e-3, 100.0),
    "brake_limit_m_s2": Range(1e-3, 100.0),
    "speed_limit_m_s": Range(1e-3, 200.0),
    "reverse_limit_m_s": Range(0.0, 200.0),
    "switch_speed_m_s": Range(1e-3, 1000.0),
}


def _commonroad(
    name: str,
    number: int,
    size_m: tuple[float, float],
    axles_m: tuple[float, float],
    inertia: tuple[float, float, float],
    steering_limit_rad: float,
    speeds_m_s: tuple[float, float, float],
    shares: tuple[float, float],
) -> CarSpec:
    """One of the sets that share tyres, wheels, steering rate and largest acceleration.

    CommonRoad measures the box from the centre of gravity. Its single-track model takes the height of the sprung mass's
    centre of gravity (``h_s``), and the front tyre's normalised stiffness -p_ky1 / p_dy1 for both axles.
    """
    front_m, rear_m = axles_m
    mass_kg, yaw_inertia_kg_m2, cog_height_m = inertia
    speed_limit_m_s, reverse_limit_m_s, switch_speed_m_s = speeds_m_s
    return CarSpec(
        name=name,
        length_m=size_m[0],
        width_m=size_m[1],
        wheelbase_m=front_m + rear_m,
        rear_axle_to_cog_m=rear_m,
        front_axle_to_cog_m=front_m,
        center_x_in_base_m=rear_m,
        mass_kg=mass_kg,
        yaw_inertia_kg_m2=yaw_inertia_kg_m2,
        cog_height_m=cog_height_m,
        friction=1.0489,
        cornering_stiffness_front=21.92 / 1.0489,
        cornering_stiffness_rear=21.92 / 1.0489,
        steering_limit_rad=steering_limit_rad,
        steering_rate_limit_rad_s=0.4,
        accel_limit_m_s2=11.5,
        brake_limit_m_s2=11.5,
        speed_limit_m_s=speed_limit_m_s,
        reverse_limit_m_s=reverse_limit_m_s,
        switch_speed_m_s=switch_speed_m_s,
        source=f"{COMMONROAD} {number}",
        wheels=WheelSpec(0.344, 1.7, *shares),
    )


def _f1tenth(
    name: str,
    steering_limit_rad: float,
    accel_limit_m_s2: float,
    speeds_m_s: tuple[float, float],
    switch_speed_m_s: float,
    source: str,
) -> CarSpec:
    """The gym's car with limits of its own; the gym's box, too, is drawn around the centre of gravity."""
    front_m, rear_m = 0.15875, 0.17145
    return CarSpec(
        name=name,
        length_m=0.58,
        width_m=0.31,
        wheelbase_m=front_m + rear_m,
        rear_axle_to_cog_m=rear_m,
        front_axle_to_cog_m=front_m,
        center_x_in_base_m=rear_m,
        mass_kg=3.74,
        yaw_inertia_kg_m2=0.04712,
        cog_height_m=0.074,
        friction=1.0489,
        cornering_stiffness_front=4.718,
        cornering_stiffness_rear=5.4562,
        steering_limit_rad=steering_limit_rad,
        steering_rate_limit_rad_s=3.2,
        accel_limit_m_s2=accel_limit_m_s2,
        brake_limit_m_s2=accel_limit_m_s2,
        speed_limit_m_s=speeds_m_s[0],
        reverse_limit_m_s=speeds_m_s[1],
        switch_speed_m_s=switch_speed_m_s,
        source=source,
    )


SERVO_MIN, SERVO_MAX, SERVO_GAIN, SERVO_OFFSET = 0.15, 0.85, -1.2135, 0.5304
"""Stock VESC: servo position = gain * steering angle + offset, between the two ends."""
ERPM_LIMIT, ERPM_PER_M_S = 23250.0, 4614.0
"""Stock VESC: largest electrical speed to either side, and its gain."""

_CARS = (
    _commonroad(
        "ford_escort",
        1,
        (4.298, 1.674),
        (0.88392, 1.50876),
        (1225.8878467253344, 1538.8533713561394, 0.59436),
        0.91,
        (45.8, 13.9, 4.755),
        (0.76, 1.0),
    ),
    _commonroad(
        "bmw_320i",
        2,
        (4.508, 1.61),
        (1.1561957064, 1.4227170936),
        (1093.2952334674046, 1791.5995300122856, 0.61373004),
        1.066,
        (50.8, 13.9, 7.319),
        (0.66, 0.0),
    ),
    _commonroad(
        "vw_vanagon",
        3,
        (4.569, 1.844),
        (1.1507916024, 1.3211363976000001),
        (1478.8979637767998, 2473.1176915564442, 0.804490644),
        1.023,
        (41.7, 11.2, 7.824),
        (0.64, 0.0),
    ),
    # The gym took the speed where power limits over from the BMW; it was never measured on the car.
    _f1tenth("f1tenth", 0.4189, 9.51, (20.0, 5.0), 7.319, "f1tenth_gym, default parameters"),
    # The servo turns 0.313 rad to the left and 0.263 rad to the right; a policy shall rely on what both sides reach.
    # Within its speeds the ramp of 2.5 m/s^2 is the limit, never power. The odometry's wheelbase in the same file
    # (0.25 m) is not the car's, and is left out.
    _f1tenth(
        "f1tenth_vesc",
        min((SERVO_MIN - SERVO_OFFSET) / SERVO_GAIN, (SERVO_OFFSET - SERVO_MAX) / SERVO_GAIN),
        2.5,
        (ERPM_LIMIT / ERPM_PER_M_S, ERPM_LIMIT / ERPM_PER_M_S),
        7.319,
        "f1tenth_gym for geometry and tyres; limits of f1tenth_system's stock vesc.yaml",
    ),
)

_BY_NAME = {car.name: car for car in _CARS}


def car_names() -> tuple[str, ...]:
    """Names that :func:`car_spec` knows, sorted."""
    return tuple(sorted(_BY_NAME))


def car_spec(name: str) -> CarSpec:
    """The published car of that name.

    Raises:
        UnknownNameError: If there is none; it names the nearest one.
    """
    if name not in _BY_NAME:
        raise UnknownNameError("car", name, car_names())
    return _BY_NAME[name]
