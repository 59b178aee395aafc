"""Motors of joints: ids, types, and the way from a motor's shaft to its joint and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gantry_hardware.dm_motors.frames import KD_MAX, KP_MAX, MotorCommand, MotorFeedback, MotorRange, motor_range
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.yaml_file import read_yaml
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots.yam import CRANK_M_RAD, GRIPPER_JOINT

FEEDBACK_OFFSET = 0x10
"""Feedback of a motor has its id and this, as the YAM's motors are set."""


@dataclass(frozen=True)
class MotorLink:
    """Motor of one joint: joint position = scale * motor position + offset."""

    motor_id: int
    """Id of its commands on the bus."""
    kind: str
    """Type, for example ``DM4310``."""
    scale: float = 1.0
    """Joint position per motor position: 1, -1 where the motor turns the other way, m/rad of a sliding joint."""
    offset: float = 0.0
    """Joint position where the motor's is zero, rad or m."""
    feedback_id: int = 0
    """Id of its feedback; 0 for its own id and 16."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, f"Motor {self.motor_id}: ", RobotError)
        motor_range(self.kind)
        if not abs(self.scale) >= 1e-6:
            raise RobotError(f"Motor {self.motor_id}: scale is {self.scale}, expected a size of 1e-6 or more.")

    @property
    def answers_as(self) -> int:
        """Id of its feedback."""
        return self.feedback_id or self.motor_id + FEEDBACK_OFFSET

    @property
    def limits(self) -> MotorRange:
        """Ranges of its type."""
        return motor_range(self.kind)

    def command(self, pos: float, vel: float, effort: float, stiffness: float, damping: float) -> MotorCommand:
        """Command to the motor for one to the joint, in rad or m, N m or N, and the gains of these."""
        scale = self.scale
        return MotorCommand(
            pos_rad=(pos - self.offset) / scale,
            vel_rad_s=vel / scale,
            kp_nm_rad=min(stiffness * scale * scale, KP_MAX),
            kd_nm_s_rad=min(damping * scale * scale, KD_MAX),
            torque_nm=effort * scale,
        )

    def joint(self, feedback: MotorFeedback) -> tuple[float, float, float]:
        """Position, velocity and effort of the joint for a reading of the motor."""
        scale = self.scale
        return scale * feedback.pos_rad + self.offset, scale * feedback.vel_rad_s, feedback.torque_nm / scale


_RANGES = {
    "motor_id": Range(1, 0x7FE),
    "feedback_id": Range(0, 0x7FE),
    "scale": Range(-100.0, 100.0),
    "offset": Range(-100.0, 100.0),
}


@dataclass(frozen=True)
class DmArmCfg:
    """Motors of an arm."""

    motors: Mapping[str, MotorLink] = field(default_factory=dict)
    """Joint -> motor; of every joint."""


YAM_MOTORS = DmArmCfg(
    {
        "joint1": MotorLink(1, "DM4340"),
        "joint2": MotorLink(2, "DM4340"),
        "joint3": MotorLink(3, "DM4340"),
        "joint4": MotorLink(4, "DM4310"),
        "joint5": MotorLink(5, "DM4310"),
        "joint6": MotorLink(6, "DM4310"),
        GRIPPER_JOINT: MotorLink(7, "DM4310", CRANK_M_RAD),
    }
)
"""The YAM with its crank gripper as it is delivered, the gripper's motor at zero where it is closed."""
BY_ROBOT = {"yam": YAM_MOTORS}
"""Robots whose motors are known."""


def motor_links(spec: RobotSpec, path: str = "") -> tuple[MotorLink, ...]:
    """Motors of a robot in the order of its joints.

    Args:
        spec: The robot.
        path: YAML file with a :class:`DmArmCfg`; empty for the motors that are known.

    Raises:
        GantryError: If the robot's motors are not known, the file is not usable, names another joint, leaves one out,
            or gives an id twice.
    """
    if not path and spec.name not in BY_ROBOT:
        raise RobotError(
            f"The motors of '{spec.name}' are not known; give a file with one motor per joint: motors=FILE. Known: "
            f"{', '.join(BY_ROBOT)}."
        )
    cfg = from_plain(DmArmCfg, read_yaml(path), path, RobotError) if path else BY_ROBOT[spec.name]
    for name in cfg.motors:
        if name not in spec.joint_names:
            raise UnknownNameError(f"joint of '{spec.name}' in {path}", name, spec.joint_names)
    if lacking := [name for name in spec.joint_names if name not in cfg.motors]:
        raise RobotError(f"{path}: no motor for {', '.join(lacking)}; expected one for each joint of '{spec.name}'.")
    links = tuple(cfg.motors[name] for name in spec.joint_names)
    ids = [number for link in links for number in (link.motor_id, link.answers_as)]
    if twice := sorted({number for number in ids if ids.count(number) > 1}):
        raise RobotError(f"{path or spec.name}: ids {twice} are used twice; expected two of its own for every motor.")
    return links


def clipped(link: MotorLink, command: MotorCommand) -> tuple[float, float, float, float, float]:
    """Command to the joint once it is within the motor's ranges: position, velocity, effort, gains."""
    limits, scale = link.limits, link.scale
    pos = float(np.clip(command.pos_rad, -limits.pos_rad, limits.pos_rad))
    vel = float(np.clip(command.vel_rad_s, -limits.vel_rad_s, limits.vel_rad_s))
    torque = float(np.clip(command.torque_nm, -limits.torque_nm, limits.torque_nm))
    gains = (command.kp_nm_rad / scale**2, command.kd_nm_s_rad / scale**2)
    return scale * pos + link.offset, scale * vel, torque / scale, *gains
