"""The geometry of an arm: where each joint sits on the link before it, and the tool on the last one."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.errors import GantryError

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


@dataclass(frozen=True)
class JointFrame:
    """A revolute joint and the frame of the link that it turns."""

    joint: str
    """Name of the joint."""
    pos_m: Vector
    """The frame's origin in the frame before, which is the base's for the first joint."""
    quat_wxyz: Quaternion
    """The frame's orientation in the frame before while the joint is at zero; need not have unit length."""
    axis: Vector = (0.0, 0.0, 1.0)
    """Axis of the joint in its own frame, unit length."""


@dataclass(frozen=True)
class Chain:
    """A serial chain of revolute joints from the base to the tool."""

    frames: tuple[JointFrame, ...]
    """From base to tool."""
    pos_ee_m: Vector
    """The end effector's origin in the last joint's frame."""
    quat_ee_wxyz: Quaternion
    """The end effector's orientation in the last joint's frame; need not have unit length."""

    def __post_init__(self) -> None:
        if not self.frames:
            raise GantryError("A chain has no joints, expected at least one.")
        names = self.joint_names
        if len(set(names)) != len(names):
            raise GantryError(f"A chain names a joint twice: {', '.join(names)}.")

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Joints from base to tool."""
        return tuple(frame.joint for frame in self.frames)
