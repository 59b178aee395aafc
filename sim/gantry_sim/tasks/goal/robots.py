"""What the goal tasks need to know of a robot beside how it walks."""

from __future__ import annotations

from dataclasses import dataclass, field

from gantry_hardware.errors import UnknownNameError
from gantry_sim.tasks.locomotion.robots import Walker, walker


@dataclass(frozen=True)
class Climber:
    """A robot that walks to goals."""

    body: Walker
    """How it walks."""
    base_shapes: tuple[str, ...]
    """Regular expressions of the base's collision shapes."""
    few_shapes: tuple[str, ...]
    """Regular expressions of the shapes that the cheap model collides beside the feet."""
    thighs: tuple[str, ...]
    """Per foot, the body whose vertical acceleration tells a hard landing."""
    thigh_acc_m_s2: float
    """Most that it may be: data of dogs and of people (paper)."""
    spin_rad_s: float
    """Turning faster than this is undesired."""
    extra_weights: dict[str, float] = field(default_factory=dict)
    """Rewards of this robot alone."""


def _go2() -> Climber:
    body = walker("go2")
    return Climber(
        body=body,
        base_shapes=("^base_collision$", r"^head_collision\d$"),
        few_shapes=("^base_collision$", "^head_collision2$", r".*_calf_collision\d"),
        thighs=tuple(f"{foot}_thigh" for foot in body.spec.feet),
        thigh_acc_m_s2=60.0,
        spin_rad_s=2.0,
    )


def _g1() -> Climber:
    body = walker("g1")
    return Climber(
        body=body,
        base_shapes=("^pelvis_collision$", "^torso_collision$"),
        few_shapes=("^pelvis_collision$", "^torso_collision$", ".*_shin_collision"),
        thighs=("left_hip_yaw_link", "right_hip_yaw_link"),
        thigh_acc_m_s2=100.0,
        spin_rad_s=3.0,
        extra_weights={"arm_posture": -1.0, "foot_yaw": -1.0},
    )


def climber(name: str) -> Climber:
    """The parameters of a robot that walks to goals.

    Raises:
        UnknownNameError: If the robot has none.
    """
    makers = {"go2": _go2, "g1": _g1}
    if name not in makers:
        raise UnknownNameError("robot that walks to goals", name, makers)
    return makers[name]()
