"""Robots of Unitree that are known: their messages, and which motor moves which joint."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.unitree.layout import GO, HG, Family

_GO2_MOTORS = tuple(f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf"))
_G1_LEG = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
_G1_ARM = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_roll", "wrist_pitch", "wrist_yaw")
_G1_MOTORS = tuple(
    f"{name}_joint"
    for name in (
        *(f"{side}_{part}" for side in ("left", "right") for part in _G1_LEG),
        *("waist_yaw", "waist_roll", "waist_pitch"),
        *(f"{side}_{part}" for side in ("left", "right") for part in _G1_ARM),
    )
)


@dataclass(frozen=True)
class UnitreeModel:
    """One robot of Unitree."""

    name: str
    """Robot in Gantry's registry, for example ``go2``."""
    family: Family
    """Messages that it speaks."""
    motors: tuple[str, ...]
    """Joint that each motor moves, in the order of the messages."""
    mode_machine: bool
    """Whether its commands must repeat the kind of machine that its state names."""
    has_battery: bool
    """Whether its state tells of the battery."""

    def motor_indices(self, spec: RobotSpec) -> tuple[int, ...]:
        """The motor of every joint of a spec, in the spec's order, found by name.

        Raises:
            RobotError: If the robot has no motor for a joint, or the spec none of its joints.
        """
        unknown = [name for name in spec.joint_names if name not in self.motors]
        missing = [name for name in self.motors if name not in spec.joint_names]
        if unknown or missing:
            raise RobotError(
                f"Robot '{spec.name}' and a Unitree {self.name} differ: joints without a motor: "
                f"{', '.join(unknown) or 'none'}; motors without a joint: {', '.join(missing) or 'none'}."
            )
        return tuple(self.motors.index(name) for name in spec.joint_names)


MODELS = {
    "go2": UnitreeModel("go2", GO, _GO2_MOTORS, mode_machine=False, has_battery=True),
    "g1": UnitreeModel("g1", HG, _G1_MOTORS, mode_machine=True, has_battery=False),
}
"""Known robots by name."""


def unitree_model(name: str) -> UnitreeModel:
    """The robot of a name.

    Raises:
        UnknownNameError: If it is none of Unitree's that is known here.
    """
    if name not in MODELS:
        raise UnknownNameError("Unitree robot", name, MODELS)
    return MODELS[name]
