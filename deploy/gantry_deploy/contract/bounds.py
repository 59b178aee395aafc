"""Bounds of every number of a policy contract: finite, and of a size that a machine can have.

One table for all of a contract's parts. A number outside is a mistake, whatever the robot; what a particular robot
allows, and how numbers must fit each other, is checked elsewhere (:mod:`gantry_deploy.contract.policy_contract`,
:mod:`gantry_deploy.contract.footstep_check`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from gantry_deploy.contract.arm_spec import ArmSpec
from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.contract.drive_spec import DriveSpec, LidarLayout
from gantry_deploy.contract.footstep_spec import (
    BodyPoseSpec,
    LegSpec,
    PathSelectorSpec,
    StepsSpec,
    SupportSpec,
    SwingSpec,
)
from gantry_deploy.contract.graph_spec import MAX_STATE, GraphInput, GraphSpec, GraphState
from gantry_deploy.contract.mechanism_spec import MechanismSpec
from gantry_deploy.contract.parts import (
    BODY_POSE,
    BODY_POSE_NAMES,
    BODY_VELOCITY,
    BODY_VELOCITY_NAMES,
    OBJECT_GOAL,
    OBJECT_GOAL_NAMES,
    Acceptance,
    ActionSpec,
    BalanceSpec,
    CameraInput,
    ChunkSpec,
    CommandSpec,
    GaitSpec,
    GoalVelocitySpec,
    GroundSpec,
    InstructionSpec,
    MapWindow,
    ObservationTerm,
    Provenance,
    TrainedRange,
)
from gantry_deploy.errors import ContractError
from gantry_hardware.errors import unknown_name_text
from gantry_hardware.files.bounds import Range, check_fields

LEAST = 1e-6
"""Smallest number that counts as more than 0."""
MIN_RATE_HZ, MAX_RATE_HZ = 10.0, 1000.0
"""Slower, a robot would be looked at too seldom; faster, no loop keeps up."""
SLOWEST_RATE_HZ = 5.0
"""The same of an embodiment that says so, as cars do: they fall over nothing, and parking is done at this rate."""

_SHARE = Range(0.0, 1.0)
_PLACE_M = Range(-10.0, 10.0)
_LENGTH_M = Range(LEAST, 10.0)
_GAIN, _DAMPING = Range(0.0, 1e5), Range(0.0, 1e5)
_TRAVEL = Range(-1e9, 1e9)
_NOT_NEGATIVE = Range(0.0, 100.0)
_POSITIVE = Range(LEAST, 100.0)

CONTRACT_RANGES: dict[str, Range] = {
    "rate_hz": Range(SLOWEST_RATE_HZ, MAX_RATE_HZ),
    # A car's drive turns for ever.
    "joint_lower_rad": _TRAVEL,
    "joint_upper_rad": _TRAVEL,
    "default_pos_rad": _TRAVEL,
    "stiffness_nm_rad": _GAIN,
    "damping_nm_s_rad": _DAMPING,
    "effort_limit_nm": Range(0.0, 1e6),
    "version": Range(1, 1000),
}
"""Numbers of the contract itself."""

RANGES: dict[type, dict[str, Range]] = {
    ObservationTerm: {
        "size": Range(1, 1_000_000),
        "scale": Range(-1e6, 1e6),
        "clip": Range(LEAST, 1e9),
        "history": Range(1, 1000),
        "point_in_base_m": _PLACE_M,
    },
    ActionSpec: {"scale": Range(-10.0, 10.0), "offset_rad": _PLACE_M, "clip": Range(LEAST, 1000.0)},
    BalanceSpec: {
        "joint_axis": Range(0, 1),
        "stance_tilt": _PLACE_M,
        "stance_rate_s": _PLACE_M,
        "swing_tilt": _PLACE_M,
        "swing_rate_s": _PLACE_M,
    },
    GroundSpec: {
        "lift_rad_m": Range(-50.0, 50.0),
        "rise_m": Range(0.0, 2.0),
        "drop_m": Range(0.0, 2.0),
        "deep_m": Range(0.0, 2.0),
        "level_tilt": Range(0.0, 10.0),
        "level_rate_s": Range(0.0, 10.0),
        "level_m": Range(0.0, 1.0),
    },
    GaitSpec: {
        "frequency_hz": Range(0.05, 20.0),
        "duty": Range(0.01, 0.99),
        "foot_offset": Range(-10.0, 10.0),
        "amplitude_rad": Range(-math.pi, math.pi),
        "lead_s": Range(-1.0, 1.0),
        "joint_foot": Range(0, 100),
        "joint_gain": Range(-10.0, 10.0),
        "stand_below": Range(0.0, 100.0),
        "foot_x_m": _PLACE_M,
        "foot_y_m": _PLACE_M,
        "stride_x_rad_m": Range(-50.0, 50.0),
        "stride_y_rad_m": Range(-50.0, 50.0),
        "sway_rad": Range(-math.pi, math.pi),
        "sway_offset": Range(-10.0, 10.0),
        "stride_yaw": Range(-10.0, 10.0),
        "stride_lag": Range(-10.0, 10.0),
    },
    GoalVelocitySpec: {
        "speed_m_s": Range(LEAST, 20.0),
        "lateral_m_s": Range(LEAST, 20.0),
        "speed_gain_s": _POSITIVE,
        "yaw_rate_rad_s": Range(LEAST, 20.0),
        "yaw_gain_s": _POSITIVE,
        "near_m": Range(0.001, 100.0),
        "stop_m": Range(LEAST, 100.0),
        "stop_rad": Range(LEAST, math.pi),
    },
    CommandSpec: {"lower": Range(-1e4, 1e4), "upper": Range(-1e4, 1e4), "max_rate": Range(0.0, 1e4)},
    MapWindow: {
        "rows": Range(1, 1000),
        "cols": Range(1, 1000),
        "resolution_m": Range(0.001, 10.0),
        "center_x_m": Range(-100.0, 100.0),
        "center_y_m": Range(-100.0, 100.0),
        "nominal_base_height_m": _PLACE_M,
    },
    ChunkSpec: {"steps": Range(1, 1000), "execute": Range(1, 1000), "ensemble_decay": _NOT_NEGATIVE},
    TrainedRange: {"lower": Range(-1e9, 1e9), "upper": Range(-1e9, 1e9)},
    Acceptance: {
        "max_lin_vel_error_m_s": Range(0.0, 10.0),
        "max_yaw_rate_error_rad_s": Range(0.0, 10.0),
        "max_fall_rate": _SHARE,
        "min_success_rate": _SHARE,
        "max_perturbed_fall_rate": _SHARE,
        "max_perturbed_lin_vel_error_m_s": Range(0.0, 10.0),
        "min_perturbed_success_rate": _SHARE,
    },
    Provenance: {"seed": Range(-(2.0**63), 2.0**64), "env_steps": Range(0, 1e18), "train_wall_s": Range(0.0, 1e10)},
    InstructionSpec: {},
    CameraInput: {"height": Range(1, 8192), "width": Range(1, 8192)},
    ArmSpec: {
        "lower_ee_in_base_m": _PLACE_M,
        "upper_ee_in_base_m": _PLACE_M,
        "quat_ee_to_base_wxyz": Range(-10.0, 10.0),
        "max_turn_rad": Range(0.0, math.pi),
        "max_lead_m": Range(LEAST, 1.0),
        "max_lead_rad": Range(LEAST, math.pi),
        "max_step_rad": Range(LEAST, 1.0),
        "damping": Range(LEAST, 10.0),
        "gripper_closed_m": Range(-1.0, 1.0),
        "gripper_open_m": Range(-1.0, 1.0),
        "gripper_step_m": Range(LEAST, 1.0),
    },
    MechanismSpec: {"start_lower_rad": _TRAVEL, "start_upper_rad": _TRAVEL},
    LidarLayout: {
        "beams": Range(1, 100_000),
        "angle_min_rad": Range(-4.0 * math.pi, 4.0 * math.pi),
        "angle_max_rad": Range(-4.0 * math.pi, 4.0 * math.pi),
        "range_max_m": Range(LEAST, 10_000.0),
        "pos_x_in_base_m": Range(-100.0, 100.0),
    },
    BevLayout: {
        "pixels": Range(8, 1024),
        "metres_per_pixel": Range(0.001, 100.0),
        "behind_m": Range(0.0, 1000.0),
        "nose_m": Range(-100.0, 100.0),
    },
    DriveSpec: {
        "wheelbase_m": Range(0.01, 30.0),
        "length_m": Range(0.01, 50.0),
        "width_m": Range(0.01, 10.0),
        "center_x_in_base_m": Range(-30.0, 30.0),
        "steering_limit_rad": Range(LEAST, math.pi / 2),
        "steering_rate_limit_rad_s": Range(LEAST, 100.0),
        "accel_limit_m_s2": Range(LEAST, 100.0),
        "brake_limit_m_s2": Range(LEAST, 100.0),
        "speed_limit_m_s": Range(LEAST, 150.0),
        "reverse_limit_m_s": Range(0.0, 150.0),
        "lookahead_m": Range(0.0, 10_000.0),
        "curvature_reach_m": Range(LEAST, 1000.0),
        "max_objects": Range(0, 10_000),
        "object_range_m": Range(LEAST, 10_000.0),
        "stop_line_range_m": Range(0.0, 10_000.0),
    },
    LegSpec: {
        "hip_in_base_m": _PLACE_M,
        "side_m": _PLACE_M,
        "thigh_m": _LENGTH_M,
        "calf_m": _LENGTH_M,
        "stand_x_m": _PLACE_M,
        "stand_y_m": _PLACE_M,
    },
    SupportSpec: {
        "mass_kg": Range(LEAST, 1000.0),
        "mass_in_base_m": _PLACE_M,
        "inertia_kg_m2": Range(LEAST, 1000.0),
        "height_m": _LENGTH_M,
        "highest_m": _LENGTH_M,
        "lowest_m": _LENGTH_M,
        "drag_1_s": _NOT_NEGATIVE,
    },
    SwingSpec: {
        "foot_radius_m": Range(0.0, 1.0),
        "capture_s": Range(0.0, 2.0),
        "capture_aside_s": Range(0.0, 2.0),
        "ahead_m": Range(0.0, 2.0),
        "aside_m": Range(0.0, 2.0),
        "clearance_m": Range(0.0, 1.0),
        # Places are looked at one by one: a hundred times as many are no search any more.
        "search_m": Range(0.0, 0.5),
        "most_lead_rad": Range(LEAST, 10.0),
    },
    PathSelectorSpec: {
        # The first of seven points on a path is one of those by which the base goes, 0.4 m ahead and nearer.
        "reach_m": Range(LEAST, 2.8),
        "track_m": Range(0.0, 2.0),
        "deep_m": Range(LEAST, 10.0),
        "wall_m": Range(LEAST, 10.0),
    },
    BodyPoseSpec: {"ahead_m": Range(0.0, 10.0), "nose_m": Range(LEAST, 2.0), "belly_m": Range(0.0, 0.3)},
    StepsSpec: {},
    GraphInput: {"order": Range(0, MAX_STATE)},
    GraphState: {"shape": Range(1, MAX_STATE), "initial": Range(-1e9, 1e9)},
    GraphSpec: {"order": Range(0, MAX_STATE)},
}
"""Part of a contract to its numbers. A test holds that none is left out."""


COMMANDS: dict[str, tuple[str, ...]] = {
    "": (),
    BODY_VELOCITY: BODY_VELOCITY_NAMES,
    BODY_POSE: BODY_POSE_NAMES,
    OBJECT_GOAL: OBJECT_GOAL_NAMES,
}
"""Kind of a command to its names in order; the empty one is for policies of which nothing is asked."""


def check_ranges(part: Any, where: str = "", ranges: dict[str, Range] | None = None) -> None:
    """Refuse numbers of a part of a contract, and of the parts inside it, that leave their ranges.

    Args:
        part: A dataclass of :data:`RANGES`.
        where: The part's name and a dot, for messages: ``"gait."``.
        ranges: Of a dataclass that is not in the table, its own; if not given, its class attribute ``RANGES``.

    Raises:
        ContractError: With the field, the value, and the range.
    """
    own = RANGES.get(type(part), getattr(type(part), "RANGES", {})) if ranges is None else ranges
    check_fields(part, own, f"The contract's {where}", ContractError)
    for item in fields(part):
        value = getattr(part, item.name)
        for i, inner in enumerate(value if isinstance(value, tuple) else (value,)):
            if is_dataclass(inner):
                index = f"[{i}]" if isinstance(value, tuple) else ""
                check_ranges(inner, f"{where}{item.name}{index}.")


def check_joint_action(action: ActionSpec, limits_rad: Mapping[str, tuple[float, float]], *, relative: bool) -> None:
    """Refuse joint actions of which one unit moves a joint through more than its range, or that begin outside it.

    Args:
        action: Of the kind ``target/joint/position``.
        limits_rad: Joint to its lower and upper limit, in the order of the action.
        relative: Whether actions are added to the last targets, and the offset is none of a place.

    Raises:
        ContractError: With the joint, the value, and what was expected.
    """
    for (joint, (lower, upper)), scale, offset in zip(limits_rad.items(), action.scale, action.offset_rad, strict=True):
        where = f"The contract's action.%s of '{joint}' is %g, expected "
        if not abs(scale) <= upper - lower:
            raise ContractError(where % ("scale", scale) + f"at most {upper - lower:g}, the joint's range.")
        if not relative and not lower <= offset <= upper:
            raise ContractError(where % ("offset_rad", offset) + f"{lower:g} to {upper:g}.")


def check_command(command: CommandSpec, *, has_gait: bool) -> None:
    """Refuse a command of an unknown kind, with other names than its kind has, or whose range lacks rest.

    Args:
        command: What may be asked of the policy.
        has_gait: Whether it drives a gait, too.

    Raises:
        ContractError: With the field, the value, and what was expected or exists.
    """
    if command.kind not in COMMANDS:
        raise ContractError(f"The contract: {unknown_name_text('command.kind', command.kind, COMMANDS)}")
    names = COMMANDS[command.kind]
    if command.names != names:
        raise ContractError(f"The contract's command.names is {command.names}, expected {names}.")
    if command.kind == BODY_POSE and command.goal_velocity is None and has_gait:
        raise ContractError("The contract's command.goal_velocity is None, expected one: a gait needs a velocity.")
    for name, lower, upper in zip(names, command.lower, command.upper, strict=True):
        # Zero is what a lost operator's command becomes, and a range without it would make that a motion. The place of
        # an object is no motion, and is never forgotten.
        if not (lower <= upper if command.kind == OBJECT_GOAL else lower <= 0.0 <= upper):
            raise ContractError(
                f"The contract's command '{name}' is {lower} to {upper}, expected a range with 0 in it."
            )


def require(holds: bool, what: str, value: object, expected: str) -> None:
    """Refuse a part of a contract unless a condition holds.

    Raises:
        ContractError: With the part, its value, and what was expected.
    """
    if not holds:
        raise ContractError(f"The contract's {what} is {value}, expected {expected}.")


def require_length(name: str, values: Sequence[object], expected: int) -> None:
    """Refuse a list of another length.

    Raises:
        ContractError: With both lengths.
    """
    if len(values) != expected:
        raise ContractError(f"{name} has {len(values)} entries, expected {expected}.")
