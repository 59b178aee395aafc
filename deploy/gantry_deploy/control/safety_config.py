"""Limits and timeouts of the safety machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gantry_deploy.errors import SafetyError
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields, value_text, whole

SETTINGS = "safety"
"""Prefix of a setting's name where people are told of it: the parameters of a node are called so."""
_DIGITS = 7
"""Of milliseconds, at most; clocks count nanoseconds."""


@dataclass(frozen=True)
class SafetyConfig:
    """Limits of the judge. The defaults suit a legged robot at 50 Hz: a lost robot is damped within 80 ms."""

    state_timeout_s: float = 0.05
    """A state older than this is stale."""
    command_timeout_s: float = 0.5
    """An operator's command older than this becomes zero."""
    require_heartbeat: bool = False
    """Whether STAND and POLICY need a living operator link."""
    heartbeat_timeout_s: float = 0.5
    """A heartbeat older than this is lost."""
    max_tilt_rad: float = 1.0
    """Largest angle between the base's up axis and the vertical."""
    require_accelerometer: bool = True
    """Whether a robot is refused whose accelerometer reads exactly nothing, as one that was never filled in does; false
    for robots that have none."""
    max_imu_error_rad: float = 0.3
    """Largest angle, before standing up and at rest, between the vertical of orientation and of accelerometer."""
    joint_pos_margin_rad: float = 0.15
    """Distance by which a measured position may be beyond a joint's limit; covers encoder offsets and soft stops."""
    joint_vel_factor: float = 1.5
    """Largest measured speed in units of the joint's limit; above 1 because impacts spin unloaded joints."""
    joint_effort_factor: float = 1.5
    """Largest measured torque in units of the joint's limit; above 1 because torque is estimated from current."""
    limit_ticks: int = 2
    """Consecutive ticks beyond a tilt or joint limit that make a fault in STAND and POLICY, where a single noisy
    reading does not; in the other modes one is enough, because it only keeps the robot from standing up."""
    max_missed_deadlines: int = 5
    """Largest number of control periods in a row in which no tick began."""
    stand_duration_s: float = 2.0
    """Time in which STAND moves from the measured pose to the default pose."""
    stand_tolerance_rad: float = 0.7
    """Distance of a joint from the standing pose at which the policy may take over; covers sagging under the weight."""
    max_target_step_rad: float = 2.0
    """Largest change of a joint's target in one control step under the policy, and never more than three quarters of
    the joint's range; what it wants beyond that comes in the next ones. Legs of shipped policies change theirs by up to
    0.8 rad, when they begin or step far, and by 1.4 rad when they stumble."""
    arm_speed_rad_s: float = 0.5
    """An arm's joints move no faster than this on the way to the standing pose, however long it takes."""
    surroundings_timeout_s: float = 0.3
    """Objects, scan or stop line of a car that are older than this end the policy."""

    def __post_init__(self) -> None:
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise SafetyError(f"{LABEL}{name} is {value_text(getattr(self, name))}, expected true or false.")
        for name in _COUNTS:
            low, high = RANGES[name]
            whole(f"{LABEL}{name}", getattr(self, name), int(low), int(high), SafetyError)
        check_fields(self, RANGES, LABEL, SafetyError)


LABEL = "Safety setting "
"""Prefix of a setting's name where its value is refused."""
RANGES: dict[str, Range] = {
    "state_timeout_s": Range(0.001, 1.0),
    "command_timeout_s": Range(0.01, 5.0),
    "heartbeat_timeout_s": Range(0.01, 5.0),
    "max_tilt_rad": Range(0.05, math.pi),
    "max_imu_error_rad": Range(0.01, math.pi),
    "joint_pos_margin_rad": Range(0.0, 0.5),
    "joint_vel_factor": Range(0.1, 5.0),
    "joint_effort_factor": Range(0.1, 5.0),
    "limit_ticks": Range(1, 50),
    "max_missed_deadlines": Range(0, 1000),
    "stand_duration_s": Range(0.05, 60.0),
    "stand_tolerance_rad": Range(0.01, math.pi),
    "max_target_step_rad": Range(0.01, 10.0),
    "arm_speed_rad_s": Range(0.01, 10.0),
    "surroundings_timeout_s": Range(0.01, 5.0),
}
"""Setting to what it may be: no value switches a limit off. A robot that is not heard for a second is lost."""
_SWITCHES = ("require_heartbeat", "require_accelerometer")
_COUNTS = ("limit_ticks", "max_missed_deadlines")


def safety_config(settings: Mapping[str, Any]) -> SafetyConfig:
    """The default limits with some of them replaced.

    Raises:
        UnknownNameError: If there is no such setting.
        SafetyError: If a value is of another type or out of its range.
    """
    known = [item.name for item in fields(SafetyConfig)]
    for name in settings:
        if name not in known:
            raise UnknownNameError("safety setting", name, known)
    return SafetyConfig(**settings)


def age_text(age_s: float, setting: str, allowed_s: float) -> str:
    """``152 ms old, allowed are 150 ms (safety.state_timeout_s)``, in as many digits as tell the two apart.

    Args:
        age_s: What is too old; negative for a stamp from the future.
        setting: The field of :class:`SafetyConfig` that allows more.
        allowed_s: Its value.
    """
    told, allowed = "", f"{1e3 * allowed_s:g}"
    for digits in range(_DIGITS):
        told = f"{1e3 * abs(age_s):.{digits}f}"
        if float(told) > float(allowed):
            break
    return f"{told} ms {'in the future' if age_s < 0.0 else 'old'}, allowed are {allowed} ms ({SETTINGS}.{setting})"
