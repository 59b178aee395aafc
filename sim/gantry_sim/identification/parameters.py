"""Parameters of a fit beside each other in one vector: start, steps, bounds, and how wide an interval may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.model.dynamics import PARAMETERS
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

DELAY = "command_delay_s"
"""Parameter that all joints share."""
EFFORT_AGE = "effort_age_s"
"""Age of the torque readings beyond their stamps, s; a property of the recording that no file of dynamics holds."""


@dataclass(frozen=True)
class FitParameter:
    """Numbers of the search for one parameter, in its unit."""

    start: float | None
    """Value to begin with; None for the robot's nominal one."""
    step: float
    """Difference for derivatives."""
    prior: float
    """Deviation that is assumed before any data, far wider than machines differ."""
    widest: float
    """Half width from which on an interval counts as 'not excited'."""
    low: float
    """Smallest value that is tried."""
    high: float
    """Largest value that is tried."""


JOINT_PARAMETERS: Mapping[str, FitParameter] = {
    "armature_kg_m2": FitParameter(None, 5e-4, 0.2, 0.01, 0.0, 10.0),
    "viscous_friction_nm_s_rad": FitParameter(0.1, 0.01, 10.0, 0.25, 0.0, 100.0),
    "coulomb_friction_nm": FitParameter(0.2, 0.02, 10.0, 0.25, 0.0, 100.0),
    "stiffness_share": FitParameter(1.0, 0.005, 1.0, 0.1, 0.1, 5.0),
    "damping_share": FitParameter(1.0, 0.01, 1.0, 0.2, 0.1, 5.0),
    "encoder_offset_rad": FitParameter(0.0, 0.002, 0.5, 0.05, -0.45, 0.45),
}
"""Parameters that every joint of a hanging robot has one of, in the order of the vector."""
WHOLE_PARAMETERS: Mapping[str, FitParameter] = {
    DELAY: FitParameter(None, 5e-4, 0.1, 0.01, 0.0, 0.2),
    EFFORT_AGE: FitParameter(0.002, 5e-4, 0.05, 0.01, 0.0, 0.05),
}
"""Parameters of the whole robot and of its recording."""


class Vector:
    """Layout of all parameters of a robot: n of each in :data:`JOINT_PARAMETERS`, then the shared ones.

    Args:
        spec: The robot.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self.n = spec.num_joints
        """Number of joints."""
        self.size = len(JOINT_PARAMETERS) * self.n + len(WHOLE_PARAMETERS)
        """Number of parameters."""
        each = [item for item in JOINT_PARAMETERS.values() for _ in range(self.n)] + list(WHOLE_PARAMETERS.values())
        self.step, self.prior, self.low, self.high = (
            np.array([getattr(item, name) for item in each]) for name in ("step", "prior", "low", "high")
        )
        self.start = np.array([0.0 if item.start is None else item.start for item in each])
        """Shape (size,), values to begin with, each in its unit."""
        self.start[self.of_joints("armature_kg_m2")] = spec.array("armature_kg_m2")

    def of_joints(self, name: str) -> slice:
        """Places of a parameter of the joints."""
        place = list(JOINT_PARAMETERS).index(name)
        return slice(place * self.n, (place + 1) * self.n)

    def of_whole(self, name: str) -> int:
        """Place of a shared parameter."""
        return len(JOINT_PARAMETERS) * self.n + list(WHOLE_PARAMETERS).index(name)

    def joint_arrays(self, values: FloatArray) -> dict[str, FloatArray]:
        """Parameters of the joints by name, each (n,), from a vector (size,), all in their units."""
        return {name: values[self.of_joints(name)] for name in JOINT_PARAMETERS}


def within(name: str, value: float) -> float:
    """A value of a parameter, in its unit, moved into the bounds that its table gives."""
    bounds = PARAMETERS[name].bounds
    return float(np.clip(value, bounds[0], bounds[1]))
