"""Differences of one simulated car from its numbers: those of training, of one machine, and of what is asked for."""

from __future__ import annotations

from dataclasses import replace

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import RobotDynamics, load_dynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.driving.vehicle.actuation import CarRandomization

FIELDS = {
    ("gain", STEERING): "steering_gain",
    ("offset", STEERING): "steering_offset_rad",
    ("response_s", STEERING): "steering_lag_s",
    ("gain", DRIVE): "acceleration_gain",
    ("response_s", DRIVE): "acceleration_lag_s",
}
"""Parameter of the dynamics and joint -> field of the randomisation that does the same."""


def car_chances(
    spec: RobotSpec,
    ranges: CarRandomization,
    dynamics: RobotDynamics | str,
    *,
    friction_share: float | None,
    mass_share: float | None,
) -> CarRandomization:
    """Ranges from which a car is drawn: those given, and a single value of what is known of it.

    Args:
        spec: The car.
        ranges: Ranges of what is not known.
        dynamics: Of one machine, or the path of their file; empty for none. Its delay, gains, lags and the steering's
            offset count; a simulated car has no other parameter.
        friction_share: Factor of the friction of its tyres; None for that of the ranges.
        mass_share: Factor of its mass; None for that of the ranges.

    Raises:
        GantryError: If the file is refused, the dynamics are another robot's, or its drive has an offset.
    """
    if isinstance(dynamics, str):
        dynamics = load_dynamics(dynamics, spec) if dynamics else RobotDynamics(spec.name)
    dynamics.check_robot(spec)
    known: dict[str, float] = {}
    for (name, joint), field in FIELDS.items():
        if name in dynamics.joints.get(spec.joint_names[joint], {}):
            known[field] = float(dynamics.joint_values(name, spec)[joint])
    if dynamics.joint_values("offset", spec)[DRIVE]:
        raise GantryError(f"The drive of '{spec.name}' has an offset, which the simulated car cannot have.")
    if dynamics.has("command_delay_s"):
        known["delay_s"] = dynamics.value("command_delay_s")
    given = {"friction_scale": friction_share, "mass_scale": mass_share}
    known |= {field: value for field, value in given.items() if value is not None}
    return replace(ranges, **{field: (value, value) for field, value in known.items()})
