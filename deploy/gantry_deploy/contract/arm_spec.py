"""Arm part of a policy contract: geometry, gripper, and what keeps an action from doing harm."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_deploy.errors import ContractError
from gantry_hardware.model.chain import Chain, Quaternion, Vector

JOINT_TARGET = "target/joint/position"
"""Semantic kind of an action that moves joints."""
BODY_TARGET = "target/body/pose"
"""Semantic kind of an action that moves the end effector."""


@dataclass(frozen=True)
class ArmSpec:
    """Conversion of an arm's actions to joint targets, see :class:`gantry_deploy.actions.arm.ArmDecoder`.

    With the action kind ``target/body/pose`` an action is a step of the end effector's target in the base frame, 3
    numbers along x, y, z and, where it turns, 3 of a rotation vector, then the gripper's place. ``ActionSpec.scale``
    holds m, rad and m per unit of action, and ``ActionSpec.offset_rad`` zeros and the gripper's middle. With
    ``target/joint/position`` it is one number per joint, a step or a place, and so are scale and offset.
    """

    chain: Chain
    """Geometry from the base to the end effector."""
    lower_ee_in_base_m: Vector
    """Lowest x, y, z of the end effector's target."""
    upper_ee_in_base_m: Vector
    """Highest x, y, z of the end effector's target."""
    quat_ee_to_base_wxyz: Quaternion
    """Orientation that the end effector keeps, or from which it turns."""
    max_turn_rad: float = 0.0
    """Farthest that the target turns from that orientation; 0 for an action of the end effector without rotation."""
    max_lead_m: float = 0.05
    """Farthest that the end effector's target runs ahead of the end effector, which bounds how hard it pushes."""
    max_lead_rad: float = 0.3
    """Farthest that a joint's target runs ahead of the joint, for an action of the joints."""
    max_step_rad: float = 0.2
    """Largest change of a joint's target in one step, whatever the action."""
    damping: float = 0.02
    """Damping of the inverse kinematics: the singular value below which it gives way."""
    gripper_joint: str = ""
    """Joint of the gripper; empty for none."""
    gripper_closed_m: float = 0.0
    """Target of the gripper when it is told to close."""
    gripper_open_m: float = 0.0
    """Target of the gripper when it is told to open."""
    gripper_step_m: float = 0.02
    """Largest change of the gripper's target in one step."""
    relative: bool = True
    """An action of the joints is added to the last target; otherwise it is the target's distance from the offset."""

    def __post_init__(self) -> None:
        for axis, lower, upper in zip("xyz", self.lower_ee_in_base_m, self.upper_ee_in_base_m, strict=True):
            if not lower < upper:
                raise ContractError(
                    f"The arm's workspace is [{lower}, {upper}] m along {axis}, expected lower < upper."
                )
        for name in ("max_lead_m", "max_lead_rad", "max_step_rad", "damping", "gripper_step_m"):
            if not getattr(self, name) > 0.0:
                raise ContractError(f"body.{name} is {getattr(self, name)}, expected more than 0.")

    def check_joints(self, joint_names: tuple[str, ...]) -> None:
        """Refuse a chain or gripper whose joints are not among the contract's.

        Raises:
            ContractError: With the missing joint.
        """
        for name in (*self.chain.joint_names, *((self.gripper_joint,) if self.gripper_joint else ())):
            if name not in joint_names:
                raise ContractError(f"The arm's joint '{name}' is none of the contract's: {', '.join(joint_names)}.")
