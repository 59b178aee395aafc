"""Comparison of one machine's dynamics with the ranges that a contract's policy was trained for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.parts import TrainedRange
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.model.dynamics import JOINT, PARAMETERS, RobotDynamics, usual_value
from gantry_hardware.model.spec import JointSpec, RobotSpec

TOLERANCE = 1e-9
"""Distance from a range that still counts as inside, for numbers that were written and read."""
MARKED = {
    "stiffness_share": 0.1,
    "damping_share": 0.1,
    "gain": 0.1,
    "encoder_offset_rad": 0.01,
    "offset": 0.01,
    "response_s": 0.05,
    "command_delay_s": 0.005,
    "imu_delay_s": 0.005,
    "imu_roll_rad": 0.01,
    "imu_pitch_rad": 0.01,
    "imu_yaw_rad": 0.01,
}
"""Parameter -> distance from its usual value from which a policy may notice it, in the parameter's unit."""
MARKED_SHARES = {
    "armature_kg_m2": ("armature_kg_m2", 0.3),
    "effort_limit_nm": ("effort_limit_nm", 0.1),
    "coulomb_friction_nm": ("effort_limit_nm", 0.01),
    "viscous_friction_nm_s_rad": ("damping_nm_s_rad", 0.1),
}
"""Parameter -> the field of the joint's spec that such a distance is a share of, and the share."""
SPEED_LIMITS = {"corner_speed_rad_s": 0.5, "no_load_speed_rad_s": 1.0}
"""Speed of a motor's curve -> share of the joint's speed limit below which it is told."""


def beyond_training(dynamics: RobotDynamics, contract: PolicyContract, spec: RobotSpec) -> list[str]:
    """Lines about all that a policy has not met in training, one for each joint and parameter; empty if it fits.

    A parameter of which the contract has a range must lie in it. One without a range did not vary in training, or was
    not told; it is named where it differs so much from the usual value that a policy may notice.

    Args:
        dynamics: Of the machine.
        contract: Of the policy.
        spec: The robot.

    Raises:
        GantryError: If the dynamics are another robot's.
    """
    dynamics.check_robot(spec)
    ranges = {(item.joint, item.name): item for item in contract.trained_for}
    lines = []
    for joint in spec.joints:
        for name, estimate in dynamics.joints.get(joint.name, {}).items():
            found = ranges.get((joint.name, name), ranges.get(("", name)))
            lines += _line(f"{joint.name}: ", name, estimate.value, found, usual_value(name, spec, joint.name), joint)
    for name, estimate in dynamics.whole.items():
        lines += _line("", name, estimate.value, ranges.get(("", name)), usual_value(name, spec), None)
    return lines


def ranges_of_joints(
    name: str, usual: NDArray[np.float64], share: tuple[float, ...], spec: RobotSpec
) -> list[TrainedRange]:
    """Ranges of a parameter that is drawn as a share; one for all joints where they are equal.

    Args:
        name: Parameter of a joint.
        usual: Shape (num_joints,), value of each joint that the share is of, in the parameter's unit.
        share: Least and largest share.
        spec: The robot.
    """
    low, high = share[0] * usual, share[1] * usual
    if np.ptp(usual) == 0.0:
        return [TrainedRange(name, float(low[0]), float(high[0]))]
    ends = zip(spec.joint_names, low, high, strict=True)
    return [TrainedRange(name, float(least), float(largest), joint) for joint, least, largest in ends]


def _line(
    where: str, name: str, value: float, trained: TrainedRange | None, usual: float, joint: JointSpec | None
) -> list[str]:
    """The line about one parameter, or none."""
    if trained is not None:
        if trained.lower - TOLERANCE <= value <= trained.upper + TOLERANCE:
            return []
        span = f"{trained.lower:.4g} to {trained.upper:.4g}"
        return [f"{where}{name} {value:.4g} lies outside {span}, the range of the training"]
    if not _is_marked(name, value, usual, joint):
        return []
    there = "no such limit" if name in SPEED_LIMITS else f"{usual:.4g}"
    return [f"{where}{name} {value:.4g} was not varied in training, says the contract ({there} there)"]


def _is_marked(name: str, value: float, usual: float, joint: JointSpec | None) -> bool:
    """Whether a value differs from the usual one so much that a policy may notice."""
    if name in MARKED:
        return abs(value - usual) > MARKED[name]
    assert joint is not None, PARAMETERS[name].scope == JOINT
    if name in SPEED_LIMITS:
        return value < SPEED_LIMITS[name] * joint.velocity_limit_rad_s
    field, share = MARKED_SHARES[name]
    return abs(value - usual) > share * float(getattr(joint, field))
