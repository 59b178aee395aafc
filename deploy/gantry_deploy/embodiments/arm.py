"""Arms: screwed down, so that they cannot tilt, with or without a gripper, held where legs are damped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gantry_deploy.actions.decoder import ActionKind, joint_labels
from gantry_deploy.contract.arm_spec import BODY_TARGET, JOINT_TARGET, ArmSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.scene import SCENE_SIGNALS
from gantry_hardware.backends.state import RobotState
from gantry_hardware.model.chain import Chain
from gantry_hardware.model.spec import RobotSpec

DECODER = "gantry_deploy.actions.arm:ArmDecoder"


def _ee_labels(contract: PolicyContract) -> tuple[str, ...]:
    """Numbers of an action of the end effector: a step along x, y, z, a rotation where it turns, a gripper's place."""
    arm = contract.body_as(ArmSpec)
    turns = ("rx", "ry", "rz") if arm.max_turn_rad > 0.0 else ()
    return ("x", "y", "z", *turns, *((arm.gripper_joint,) if arm.gripper_joint else ()))


class Arm(Embodiment):
    """An arm on a fixed base."""

    name = "arm"
    noun = "an arm"
    body_type = ArmSpec
    robot_body_type = Chain
    action_kinds = (ActionKind(JOINT_TARGET, DECODER, joint_labels), ActionKind(BODY_TARGET, DECODER, _ee_labels))
    base_moves = False
    holds_position = True
    repeats_episodes = True
    simulated_backend = "workbench"
    start_words = "move to its start and act for"
    perturbations = "gantry_deploy.evaluation.perturbations.arm:arm_perturbations"
    operator_map = "gantry_deploy.embodiments.operator_maps:ArmMap"
    launch = "sim_arm"
    driver_launches = ("arm",)

    def scenario(self, contract: PolicyContract) -> str:
        """A task at the simulated workbench."""
        return "gantry_deploy.evaluation.working:TaskScenario"

    def simulated_options(self, contract: PolicyContract) -> dict[str, Any]:
        """The workbench's task, and the policy's cameras with pictures of its size.

        Raises:
            ContractError: If its cameras are not all square and of one size, as those of the workbench are.
        """
        options: dict[str, Any] = {"task": contract.provenance.task} if contract.provenance.task else {}
        sizes = {size for camera in contract.cameras for size in (camera.height, camera.width)}
        if len(sizes) > 1:
            raise ContractError(
                f"The simulated cameras take square pictures of one size, the policy's are {sorted(sizes)}."
            )
        names = ",".join(camera.name for camera in contract.cameras)
        return {**options, "pictures_px": sizes.pop(), "cameras": names} if sizes else options

    def check_contract(self, contract: PolicyContract) -> None:
        """Refuse also a chain or gripper whose joints are not among the contract's."""
        super().check_contract(contract)
        contract.body_as(ArmSpec).check_joints(contract.joint_names)

    def check_robot(self, contract: PolicyContract, spec: RobotSpec) -> None:
        """Refuse an arm of another geometry."""
        chain = contract.body_as(ArmSpec).chain
        if chain != spec.body:
            raise ContractError(f"The contract's arm has another geometry: {chain}, '{spec.name}': {spec.body}.")

    def is_relative(self, contract: PolicyContract) -> bool:
        """As the contract's arm says."""
        return contract.body_as(ArmSpec).relative

    def rest_state(self, contract: PolicyContract) -> RobotState:
        """At rest; before the arm lies something to handle, and of a scene everything at one place."""
        ahead = np.array([0.3, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
        scene = {name: np.tile(ahead[:3], size // 3) for name, size in SCENE_SIGNALS.items()}
        return replace(super().rest_state(contract), object_pose_in_base=ahead, extra=scene)

    def gripper_joint(self, contract: PolicyContract) -> str:
        """Of the contract's arm."""
        return contract.body_as(ArmSpec).gripper_joint

    def gripper_range_m(self, contract: PolicyContract) -> tuple[float, float] | None:
        """Of the contract's arm."""
        arm = contract.body_as(ArmSpec)
        return (arm.gripper_closed_m, arm.gripper_open_m) if arm.gripper_joint else None


ARM = Arm()
"""Registered as ``arm``."""
