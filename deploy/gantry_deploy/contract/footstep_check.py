"""Consistency checks of a contract for legs that are told where to step, before a robot is moved by it."""

from __future__ import annotations

from gantry_deploy.contract.bounds import check_ranges
from gantry_deploy.contract.footstep_spec import StepsSpec
from gantry_deploy.contract.parts import ActionSpec, GaitSpec, MapWindow
from gantry_deploy.errors import ContractError


def check_steps(
    steps: StepsSpec, gait: GaitSpec, action: ActionSpec, window: MapWindow, stiffness_nm_rad: tuple[float, ...]
) -> None:
    """Refuse numbers by which no legs may be moved.

    Raises:
        ContractError: With the field, the value, and what was expected.
    """
    check_legs(steps)
    check_clock(steps, gait.duty, gait.foot_offset)
    for name, values in (("action.scale", action.scale), ("stiffness_nm_rad", stiffness_nm_rad)):
        _require(all(value > 0.0 for value in values), name, values, "more than 0")
    cells = f"{window.rows} x {window.cols} cells"
    _require(min(window.rows, window.cols) >= 2, "map_window", cells, "2 x 2 or more")
    _require(window.channels[:1] == ("elevation",), "map_window.channels", window.channels, "elevation first")
    if steps.body_pose is not None:
        front_m, ahead_m = window.center_x_m + 0.5 * window.rows * window.resolution_m, steps.body_pose.ahead_m
        expected = f"no further than the map_window, {front_m:g} m"
        _require(ahead_m[1] <= front_m, "gait.steps.body_pose.ahead_m", ahead_m, expected)


def check_legs(steps: StepsSpec) -> None:
    """Refuse geometry and rules by which no legs may be moved.

    Raises:
        ContractError: With the field, the value, and what was expected.
    """
    check_ranges(steps, "gait.steps.")
    support, pose = steps.support, steps.body_pose
    if pose is not None:
        _require(pose.ahead_m[0] < pose.ahead_m[1], "gait.steps.body_pose.ahead_m", pose.ahead_m, "rising numbers")
    heights = (support.lowest_m, support.height_m, support.highest_m)
    _require(
        heights == tuple(sorted(heights)),
        "gait.steps.support's lowest_m, height_m, highest_m",
        heights,
        "rising numbers",
    )
    corners = set()
    for i, leg in enumerate(steps.legs):
        _require(
            leg.side_m * leg.stand_y_m > 0.0, f"gait.steps.legs[{i}].stand_y_m", leg.stand_y_m, "on the side of side_m"
        )
        corners.add((leg.hip_in_base_m[0] > 0.0, leg.side_m > 0.0))
    _require(
        len(steps.legs) == 4 == len(corners),
        "gait.steps.legs",
        f"{len(steps.legs)} at {len(corners)} corners",
        "four at four",
    )


def check_clock(steps: StepsSpec, duty: float, foot_offset: tuple[float, ...]) -> None:
    """Refuse a clock that lifts both feet of an end at once.

    Raises:
        ContractError: With the field, the value, and what was expected.
    """
    _require(0.5 <= duty < 1.0, "gait.duty", duty, "0.5 to below 1: of each end one foot stands")
    for front in (True, False):
        feet = [i for i, leg in enumerate(steps.legs) if (leg.hip_in_base_m[0] > 0.0) == front]
        apart = abs(foot_offset[feet[0]] - foot_offset[feet[1]]) % 1.0
        _require(
            min(apart, 1.0 - apart) >= 1.0 - duty - 1e-9,
            "gait.foot_offset",
            foot_offset,
            f"{1.0 - duty:g} periods or more between the {'front' if front else 'rear'} feet",
        )


def _require(holds: bool, what: str, value: object, expected: str) -> None:
    if not holds:
        raise ContractError(
            f"Of legs that are told where to step, the contract's {what} is {value}, expected {expected}."
        )
