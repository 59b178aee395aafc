"""Perturbations of arms: joints, delays, noise, and the object that is handled."""

from __future__ import annotations

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.perturbations.perturbation import Perturbation, all_joints, merged, scaled_joints
from gantry_hardware.model.spec import RobotSpec

LATE_S = 0.04
"""Delay of commands, close to one step of a policy at 20 Hz."""


def arm_perturbations(contract: PolicyContract, spec: RobotSpec) -> tuple[Perturbation, ...]:
    """Perturbations of an arm under a contract's policy."""
    stiff = merged(
        scaled_joints(spec, spec.array("effort_limit_nm"), coulomb_friction_nm=(0.01, 0.05)),
        scaled_joints(spec, spec.array("damping_nm_s_rad"), viscous_friction_nm_s_rad=(0.05, 0.2)),
    )
    lower = {name: (0.85, 0.85) for name in ("stiffness_share", "damping_share", "effort_limit_nm")}
    offsets = all_joints(spec, encoder_offset_rad=(-0.01, 0.01))
    for gripper in spec.gripper_joints:
        offsets.pop(gripper)
    return (
        Perturbation("late", "commands act 40 ms later", whole={"command_delay_s": (LATE_S, LATE_S)}),
        Perturbation("weak", "gains and torque limits 15 % lower", joints=all_joints(spec, **lower)),
        Perturbation(
            "stiff_joints",
            "dry friction of 1 to 5 % of the torque limit and viscous friction of 5 to 20 % of the damping gain, drawn "
            "for each joint",
            joints=stiff,
        ),
        Perturbation("misaligned", "encoders off by up to 0.01 rad, but the gripper's", joints=offsets),
        Perturbation("noisy", "twice the sensor noise", noise_share=2.0),
        Perturbation("heavy_object", "an object of twice the mass", options={"object_mass_share": 2.0}),
        Perturbation("slippery_object", "friction of everything 40 % lower", options={"object_friction_share": 0.6}),
    )
