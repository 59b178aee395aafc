"""Checks of a contract's gait: as many numbers as feet and joints, and none that moves a joint beyond its range."""

from __future__ import annotations

from gantry_deploy.contract.bounds import require, require_length
from gantry_deploy.contract.footstep_check import check_steps
from gantry_deploy.contract.footstep_spec import STEP_NAMES, StepsSpec
from gantry_deploy.contract.parts import GaitSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError


def check_gait_shape(contract: PolicyContract, gait: GaitSpec) -> None:
    """Refuse a gait whose parts do not fit each other or the contract.

    Raises:
        ContractError: With the field, what it has, and what was expected.
    """
    n, feet = len(contract.joint_names), len(gait.foot_offset)
    lengths = {"joint_foot": n, "joint_gain": n}
    if gait.foot_x_m:
        lengths |= {"foot_x_m": feet, "foot_y_m": feet, "stride_x_rad_m": n, "stride_y_rad_m": n}
    lengths |= {name: n for name in ("sway_rad", "stride_yaw") if getattr(gait, name)}
    for name, expected in lengths.items():
        require_length(f"gait.{name}", getattr(gait, name), expected)
    if gait.balance is not None:
        for name, values in vars(gait.balance).items():
            require_length(f"gait.balance.{name}", values, n)
    if gait.steps is not None:
        _check_steps_shape(contract, gait.steps, gait)
    if gait.ground is not None:
        require_length("gait.ground.lift_rad_m", gait.ground.lift_rad_m, n)
        if contract.map_window is None or not gait.foot_x_m:
            raise ContractError("A gait that follows the ground needs 'map_window' and 'gait.foot_x_m'.")


def check_gait_numbers(contract: PolicyContract, gait: GaitSpec) -> None:
    """Refuse a gait whose feet do not exist, or whose swing moves a joint by more than its range.

    Raises:
        ContractError: With the joint, the value, and what was expected.
    """
    if gait.steps is not None and contract.map_window is not None:
        check_steps(gait.steps, gait, contract.action, contract.map_window, contract.stiffness_nm_rad)
    feet = len(gait.foot_offset)
    limits = zip(contract.joint_lower_rad, contract.joint_upper_rad, strict=True)
    numbers = zip(contract.joint_names, gait.joint_foot, gait.joint_gain, limits, strict=True)
    for joint, foot, gain, (lower, upper) in numbers:
        require(0 <= foot < feet, f"gait.joint_foot of '{joint}'", foot, f"0 to {feet - 1}")
        swing = abs(gait.amplitude_rad * gain)
        what = f"gait.amplitude_rad times joint_gain of '{joint}'"
        require(swing <= upper - lower, what, swing, f"at most {upper - lower:g}, its range")


def _check_steps_shape(contract: PolicyContract, steps: StepsSpec, gait: GaitSpec) -> None:
    """Legs that are told where to step: of three joints each, with a map to step on and no gait of another kind."""
    require_length("gait.steps.legs", steps.legs, len(gait.foot_offset))
    require_length("joint_names", contract.joint_names, 3 * len(steps.legs))
    require_length("action.scale", contract.action.scale, len(STEP_NAMES))
    require(not any(contract.action.offset_rad), "action.offset_rad", contract.action.offset_rad, "zeros for steps")
    order = tuple(i // 3 for i in range(len(contract.joint_names)))
    require(gait.joint_foot == order, "gait.joint_foot", gait.joint_foot, f"{order} for steps")
    for name in ("amplitude_rad", "lead_s", "foot_x_m", "sway_rad", "stride_yaw", "balance", "ground"):
        require(not getattr(gait, name), f"gait.{name}", getattr(gait, name), "none beside 'gait.steps'")
    if contract.map_window is None:
        raise ContractError("Legs that are told where to step need 'map_window'.")
