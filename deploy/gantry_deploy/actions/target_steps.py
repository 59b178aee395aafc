"""A bound on how far a policy's joint targets move from one control step to the next."""

from __future__ import annotations

import numpy as np

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.model.spec import RobotSpec

RANGE_SHARE = 0.75
"""A target moves by no more than this share of its joint's range in one step, however short the range is."""


class TargetSteps:
    """Keeps one wild action from moving a target across its joint's whole range in one step.

    A target that is too far from the one before is moved towards what the policy wants by as much as is allowed; a
    policy that goes on wanting it gets there a few steps later. Joints without stiffness, a car's drive, have no target
    position.

    Args:
        spec: The robot.
        max_step_rad: Largest change of a target in one step, rad or, where a joint slides, m.
    """

    def __init__(self, spec: RobotSpec, max_step_rad: float) -> None:
        self._most = np.minimum(max_step_rad, RANGE_SHARE * (spec.array("upper_rad") - spec.array("lower_rad")))
        self._held = spec.array("stiffness_nm_rad") > 0.0

    def limit(self, target: JointCommand, last: JointCommand | None) -> JointCommand:
        """The target, no farther than allowed from what was sent ``last``; as it is if that is None."""
        if last is None:
            return target
        step = target.pos_rad - last.pos_rad
        if not (np.abs(step) > self._most)[self._held].any():
            return target
        limited = last.pos_rad + np.clip(step, -self._most, self._most)
        return target.with_pos(np.where(self._held, limited, target.pos_rad))
