"""Mechanisms on a fixed base, pushed by efforts: poles on carts, pendulums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gantry_deploy.actions.decoder import ActionKind
from gantry_deploy.contract.bounds import require, require_length
from gantry_deploy.contract.mechanism_spec import JOINT_EFFORT, MechanismSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_deploy.errors import ContractError
from gantry_hardware.model.mechanism import Mechanism
from gantry_hardware.model.spec import RobotSpec

EFFORT_TOLERANCE = 1e-3
"""Difference that efforts may have, N m or N: some hundred of them in single precision."""


class MechanismEmbodiment(Embodiment):
    """A mechanism on a fixed base, with or without joints that swing freely."""

    name = "mechanism"
    noun = "a mechanism"
    body_type = MechanismSpec
    robot_body_type = Mechanism
    action_kinds = (
        ActionKind(
            JOINT_EFFORT,
            "gantry_deploy.actions.efforts:EffortDecoder",
            lambda contract: contract.body_as(MechanismSpec).driven_joints,
            tolerance_rad=EFFORT_TOLERANCE,
            gives_effort=True,
        ),
    )
    base_moves = False
    start_words = "move to its start and act for"
    idle_commands = "gantry_deploy.control.idle_commands:MechanismIdleCommands"
    driver_launches = ()
    without: ClassVar[Mapping[str, str]] = {
        "commission": "its first motions scale position loops, and efforts have none",
        "identify": "its recordings come from position loops",
        "excite": "it moves joints by position loops",
        "serve": "answers are actions and joint positions, and a client would miss the efforts",
        "session": "no operator's device gives efforts",
        "data from-mcap": "datasets hold joint positions as actions, and a recording has efforts",
    }
    perturbations = "gantry_deploy.evaluation.perturbations.mechanism:mechanism_perturbations"

    def scenario(self, contract: PolicyContract) -> str:
        """Balance, from poses in which training began."""
        return "gantry_deploy.evaluation.balancing:BalanceScenario"

    def check_contract(self, contract: PolicyContract) -> None:
        """Refuse also joints that do not exist, and what a mechanism has not."""
        super().check_contract(contract)
        body, names = contract.body_as(MechanismSpec), contract.joint_names
        driven = body.driven_joints
        for joint in driven:
            require(joint in names, "body.driven_joints", f"'{joint}'", f"joints among {', '.join(names)}")
        require(0 < len(set(driven)) == len(driven), "body.driven_joints", driven, "joints, each once")
        for name in ("start_lower_rad", "start_upper_rad"):
            require_length(f"body.{name}", getattr(body, name), len(names))
        for name in ("gait", "map_window"):
            require(getattr(contract, name) is None, name, "given", "none for a mechanism")
        offset = contract.action.offset_rad
        require(not any(offset), "action.offset_rad", offset, "zeros for efforts")

    def check_numbers(self, contract: PolicyContract) -> None:
        """Refuse also actions of which one unit is nothing or beyond the joint's effort limit, position loops that
        would work against efforts, and starts outside the joints' limits."""
        super().check_numbers(contract)
        body = contract.body_as(MechanismSpec)
        for joint, share in zip(body.driven_joints, contract.action.scale, strict=True):
            told = "other than 0 and at most 1, the joint's effort limit"
            require(0.0 < abs(share) <= 1.0, f"action.scale of '{joint}'", share, told)
        starts = zip(contract.joint_limits.items(), body.start_lower_rad, body.start_upper_rad, strict=True)
        for (joint, (lower, upper)), low, high in starts:
            told = f"{lower:g} <= start_lower_rad <= start_upper_rad <= {upper:g}, within the joint's limits"
            require(lower <= low <= high <= upper, f"body's start of '{joint}'", f"{low:g} to {high:g}", told)
        for joint, stiffness in zip(contract.joint_names, contract.stiffness_nm_rad, strict=True):
            require(stiffness == 0.0, f"stiffness_nm_rad of '{joint}'", stiffness, "0 beside efforts")

    def check_robot(self, contract: PolicyContract, spec: RobotSpec) -> None:
        """Refuse efforts of joints that have no motor."""
        passive = spec.body_as(Mechanism).passive_joints
        for joint in contract.body_as(MechanismSpec).driven_joints:
            if joint in passive:
                raise ContractError(
                    f"The contract pushes the joint '{joint}', which has no motor in '{spec.name}'; passive are "
                    f"{', '.join(passive)}."
                )


MECHANISM = MechanismEmbodiment()
"""Registered as ``mechanism``."""
