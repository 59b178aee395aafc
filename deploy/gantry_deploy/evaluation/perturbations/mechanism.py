"""Perturbations of mechanisms: motors, delays and noise."""

from __future__ import annotations

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.perturbations.perturbation import Perturbation, all_joints, scaled_joints
from gantry_hardware.model.mechanism import Mechanism
from gantry_hardware.model.spec import RobotSpec

LATE_S = 0.01
"""Delay of commands."""
BEARING_NM = (0.01, 0.03)
"""Dry friction of a joint without a motor."""


def mechanism_perturbations(contract: PolicyContract, spec: RobotSpec) -> tuple[Perturbation, ...]:
    """Perturbations of a mechanism under a contract's policy."""
    del contract
    mechanism: Mechanism = spec.body
    friction = scaled_joints(spec, spec.array("effort_limit_nm"), coulomb_friction_nm=(0.005, 0.01))
    friction |= {joint: {"coulomb_friction_nm": BEARING_NM} for joint in mechanism.passive_joints}
    return (
        Perturbation("late", "commands act 10 ms later", whole={"command_delay_s": (LATE_S, LATE_S)}),
        Perturbation("weak", "torque limits 15 % lower", joints=all_joints(spec, effort_limit_nm=(0.85, 0.85))),
        Perturbation(
            "stiff_joints",
            "dry friction of 0.5 to 1 % of the torque limit, and of 0.01 to 0.03 N m in joints without a motor",
            joints=friction,
        ),
        Perturbation("noisy", "twice the sensor noise", noise_share=2.0),
    )
