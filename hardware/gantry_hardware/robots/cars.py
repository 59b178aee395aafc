"""Cars as robots: two joints, made from the published numbers of :mod:`gantry_hardware.model.cars`.

``steering`` is the angle of a virtual wheel in the middle of the front axle, held by position. ``drive`` is a servo of
the speed of ``base_link``, so its stiffness is 0 and a command's target velocity is the set-point. It slides, so that
its position is in m where a name says rad (what the odometry has counted), its velocity in m/s and its force in N.

The gains of a car's actuators are not published. A steering servo that reaches its place with a time constant of 0.05 s
and a speed servo of 0.2 s (the low-pass constants of nuPlan's bicycle model) stand in: damping of the drive is the mass
over 0.2 s, and the steering's gains are those of a rotor with that constant, critically damped. Cars take angles and
speeds over their interface, and their own controllers do the rest.
"""

from __future__ import annotations

from gantry_hardware.model.cars import CarSpec, car_spec
from gantry_hardware.model.spec import JointSpec, RobotSpec

STEERING_JOINT, DRIVE_JOINT = "steering", "drive"
"""Names of a car's joints, in canonical order."""
TRAVEL_LIMIT_M = 1e9
"""The drive turns for ever; contracts and limits want a finite number."""
STEERING_TIME_S, SPEED_TIME_S = 0.05, 0.2
"""Time constants of the two servos."""
STEERING_INERTIA_KG_M2 = 0.01
"""Of whatever turns with the wheels, per kg of a car; a stand-in, like the gains that follow from it."""


def car_robot(car: CarSpec, name: str | None = None) -> RobotSpec:
    """A car as a robot that the runtime drives.

    Args:
        car: Its numbers.
        name: Registry name; the car's own if not given.
    """
    inertia = STEERING_INERTIA_KG_M2 * car.mass_kg
    stiffness, damping = inertia / STEERING_TIME_S**2, 2.0 * inertia / STEERING_TIME_S
    steering = JointSpec(
        name=STEERING_JOINT,
        lower_rad=-car.steering_limit_rad,
        upper_rad=car.steering_limit_rad,
        velocity_limit_rad_s=car.steering_rate_limit_rad_s,
        effort_limit_nm=stiffness * car.steering_limit_rad,
        default_rad=0.0,
        stiffness_nm_rad=stiffness,
        damping_nm_s_rad=damping,
        armature_kg_m2=inertia,
    )
    drive = JointSpec(
        name=DRIVE_JOINT,
        lower_rad=-TRAVEL_LIMIT_M,
        upper_rad=TRAVEL_LIMIT_M,
        velocity_limit_rad_s=car.speed_limit_m_s,
        effort_limit_nm=car.mass_kg * max(car.accel_limit_m_s2, car.brake_limit_m_s2),
        default_rad=0.0,
        stiffness_nm_rad=0.0,
        damping_nm_s_rad=car.mass_kg / SPEED_TIME_S,
        armature_kg_m2=car.mass_kg,
        reverse_limit_rad_s=car.reverse_limit_m_s,
    )
    return RobotSpec(
        name=name or car.name,
        embodiment="car",
        joints=(steering, drive),
        feet=(),
        base_height_m=0.0,
        fall_height_m=-1.0,
        mass_kg=car.mass_kg,
        source=car.source,
        body=car,
    )


def car_of(spec: RobotSpec) -> CarSpec:
    """Dimensions and limits of a car, for its drivers.

    Raises:
        RobotError: If the robot is no car.
    """
    return spec.body_as(CarSpec)


F1TENTH = car_robot(car_spec("f1tenth"))
"""The small racing car with the gym's limits."""
F1TENTH_VESC = car_robot(car_spec("f1tenth_vesc"))
"""The same with the limits that its motor controller comes with."""
BMW_320I = car_robot(car_spec("bmw_320i"))
"""CommonRoad's second car."""
