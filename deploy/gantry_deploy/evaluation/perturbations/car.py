"""Perturbations of cars: delays, steering, drive, tyres and load."""

from __future__ import annotations

from typing import Any

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.perturbations.perturbation import Perturbation
from gantry_hardware.model.spec import RobotSpec

TYRES: dict[str, Any] = {"model": "single-track-grip"}
"""Options of a road with tyre slip: without it neither friction nor mass would count."""


def car_perturbations(contract: PolicyContract, spec: RobotSpec) -> tuple[Perturbation, ...]:
    """Perturbations of a car under a contract's policy."""
    steering, drive = spec.joint_names[STEERING], spec.joint_names[DRIVE]
    return (
        Perturbation("late", "commands act after 60 ms", whole={"command_delay_s": (0.06, 0.06)}),
        Perturbation(
            "steering_offset", "wheels that stand 0.05 rad to the left", joints={steering: {"offset": (0.05, 0.05)}}
        ),
        Perturbation(
            "steering_lag",
            "steering that follows with a time constant of 0.2 s",
            joints={steering: {"response_s": (0.2, 0.2)}},
        ),
        Perturbation(
            "weak_drive",
            "70 % of the acceleration asked for, with a time constant of 0.4 s",
            joints={drive: {"gain": (0.7, 0.7), "response_s": (0.4, 0.4)}},
        ),
        Perturbation("slippery", "tyres with 60 % of their friction", options={**TYRES, "friction_share": 0.6}),
        Perturbation("heavy", "a car with tyres and 1.3 times its mass", options={**TYRES, "mass_share": 1.3}),
    )
