"""Outcome of an identification: values with intervals, and what was refused with the reason in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.model.dynamics import JOINT, PARAMETERS, Estimate, RobotDynamics, usual_value
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.identification.parameters import within
from gantry_sim.identification.uncertainty import CONFIDENCE_95

FloatArray = NDArray[np.float64]

LEGS_PARAMETERS = (
    "armature_kg_m2",
    "viscous_friction_nm_s_rad",
    "coulomb_friction_nm",
    "stiffness_share",
    "damping_share",
    "effort_limit_nm",
    "corner_speed_rad_s",
    "no_load_speed_rad_s",
    "encoder_offset_rad",
    "command_delay_s",
    "imu_delay_s",
    "imu_roll_rad",
    "imu_pitch_rad",
    "imu_yaw_rad",
)
"""Parameters of a robot with joints that are held, in the order of tables."""
CAR_PARAMETERS = ("gain", "offset", "response_s", "command_delay_s")
"""Parameters of a car."""


@dataclass(frozen=True)
class Curve:
    """Measured and simulated course of one joint, T points."""

    joint: str
    """Name of the joint."""
    quantity: str
    """Quantity with its unit, for the axis."""
    time_s: FloatArray
    """Shape (T,)."""
    measured: FloatArray
    """Shape (T,), in the quantity's unit."""
    simulated: FloatArray
    """Shape (T,), in the quantity's unit."""


@dataclass
class Findings:
    """Identified parameters, and reasons for those that were not."""

    spec: RobotSpec
    """The robot."""
    kinds: list[str] = field(default_factory=list)
    """Kinds of the recordings that were used: ``hanging``, ``walking``, ``driving``."""
    joints: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    """Joint -> parameter -> estimate."""
    whole: dict[str, Estimate] = field(default_factory=dict)
    """Parameter of the whole robot -> estimate."""
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    """Joint, or an empty name for the whole robot -> parameter -> reason."""
    notes: list[str] = field(default_factory=list)
    """Observations about the recordings, in words."""
    curves: list[Curve] = field(default_factory=list)
    """Courses for plots."""

    def found(self, name: str, value: float, deviation: float, joint: str = "") -> None:
        """Take an estimate, unless there is one already; its interval stays within what makes sense."""
        value = within(name, value)
        low, high = (within(name, value + sign * CONFIDENCE_95 * deviation) for sign in (-1.0, 1.0))
        table = self.joints.setdefault(joint, {}) if joint else self.whole
        table.setdefault(name, Estimate(value, min(low, value), max(high, value)))
        self.refused.get(joint, {}).pop(name, None)

    def refuse(self, name: str, reason: str, joint: str = "") -> None:
        """Note why a parameter was not identified, unless it was."""
        table = self.joints.get(joint, {}) if joint else self.whole
        if name not in table:
            self.refused.setdefault(joint, {}).setdefault(name, reason)

    def refuse_everywhere(self, names: Sequence[str], reason: str) -> None:
        """Note the same reason for parameters of the robot or of all its joints."""
        for name in names:
            for joint in self.spec.joint_names if PARAMETERS[name].scope == JOINT else ("",):
                self.refuse(name, reason, joint)

    def dynamics(self, source: str) -> RobotDynamics:
        """The identified parameters alone, as a file holds them."""
        return RobotDynamics(
            self.spec.name, {joint: dict(table) for joint, table in self.joints.items() if table}, self.whole, source
        )

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Lines of a table: parameter with unit, joint, value, interval or reason, nominal value."""
        lines = []
        for name in dict.fromkeys([*LEGS_PARAMETERS, *CAR_PARAMETERS]):
            unit = PARAMETERS[name].unit
            label = f"{name} [{unit}]" if unit else name
            for joint in self.spec.joint_names if PARAMETERS[name].scope == JOINT else ("",):
                estimate = self._estimates(joint).get(name)
                reason = self.refused.get(joint, {}).get(name)
                if estimate is None and reason is None:
                    continue
                nominal = f"{usual_value(name, self.spec, joint):.4g}"
                value = "-" if estimate is None else f"{estimate.value:.4g}"
                interval = f"not excited: {reason}" if estimate is None else _interval(estimate)
                lines.append((label, joint or "robot", value, interval, nominal))
        return lines

    def plain(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "robot": self.spec.name,
            "kinds": self.kinds,
            "dynamics": self.dynamics("").plain(),
            "refused": {joint or "robot": dict(table) for joint, table in self.refused.items() if table},
            "notes": self.notes,
        }

    def _estimates(self, joint: str) -> Mapping[str, Estimate]:
        return self.joints.get(joint, {}) if joint else self.whole


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "not known"
    return f"{estimate.low:.4g} to {estimate.high:.4g}"
