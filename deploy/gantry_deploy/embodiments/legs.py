"""Robots with legs: joint targets with a gait, or steps that legs make by themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.decoder import ActionKind, joint_labels
from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.footstep_spec import STEP_NAMES, STEP_TARGET
from gantry_deploy.contract.parts import BODY_POSE
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_deploy.errors import ContractError
from gantry_deploy.perception.maps import needs_map

DECODER = "gantry_deploy.actions.joints:JointDecoder"
STEP_TOLERANCE_RAD = 1e-4
"""Difference that joint targets which follow from steps may have: forces of a least-squares problem, in single
precision."""


class Legs(Embodiment):
    """A robot that stands and walks on legs."""

    name = "legs"
    noun = "a robot with legs"
    action_kinds = (
        ActionKind(
            JOINT_TARGET,
            DECODER,
            joint_labels,
            needs_map=lambda contract: contract.gait is not None and contract.gait.ground is not None,
        ),
        ActionKind(
            STEP_TARGET,
            DECODER,
            lambda contract: STEP_NAMES,
            tolerance_rad=STEP_TOLERANCE_RAD,
            needs_map=lambda contract: True,
        ),
    )
    has_accelerometer_check = True
    walks = True
    perturbations = "gantry_deploy.evaluation.perturbations.legs:legs_perturbations"

    def scenario(self, contract: PolicyContract) -> str:
        """Velocities to follow, or goals to walk to."""
        goals = contract.command.kind == BODY_POSE
        return f"gantry_deploy.evaluation.walking:{'GoalScenario' if goals else 'VelocityScenario'}"

    def simulated_options(self, contract: PolicyContract) -> dict[str, Any]:
        """A camera, for a policy that looks at a map."""
        return {"camera": True} if needs_map(contract) else {}

    def check_contract(self, contract: PolicyContract) -> None:
        """Refuse steps without legs that make them, and such legs without steps."""
        steps = contract.gait is not None and contract.gait.steps is not None
        if (contract.action.kind == STEP_TARGET) != steps:
            raise ContractError(
                f"The contract's action.kind is '{contract.action.kind}' {'with' if steps else 'without'} "
                f"'gait.steps', expected '{STEP_TARGET}' with them and another kind without."
            )
        super().check_contract(contract)

    def rehearsal(self, contract: PolicyContract) -> list[NDArray[np.float64]]:
        """Commands (c,), in the contract's units: at rest, then a whole step of each leg that is told where to step."""
        gait, rest = contract.gait, super().rehearsal(contract)
        if gait is None or gait.steps is None:
            return rest
        return rest + [np.array([1.0, 0.0, 0.0, 1.0])] * math.ceil(contract.rate_hz / gait.frequency_hz)


LEGS = Legs()
"""Registered as ``legs``."""
