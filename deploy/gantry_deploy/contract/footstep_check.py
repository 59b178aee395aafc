"""Consistency checks of a contract for legs that are told where to step, before a robot is moved by it."""

from __future__ import annotations

from gantry_deploy.contract.bounds import check_ranges
from gantry_deploy.contract.footstep_spec import LIFT_SHARE, PostureSpec, SteerSpec, StepsSpec
from gantry_deploy.contract.parts import ActionSpec, GaitSpec, MapWindow
from gantry_deploy.errors import ContractError

MOST_POINTS = 1000
"""Of all ways together that are compared."""
LEAST_TURN_RAD = 0.01
"""A share that grows over less is a jump."""


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
    if steps.posture is not None:
        front_m = window.center_x_m + 0.5 * window.rows * window.resolution_m
        expected = f"no further than the map_window, {front_m:g} m"
        _require(steps.posture.ahead_m[1] <= front_m, "gait.steps.posture.ahead_m", steps.posture.ahead_m, expected)


def check_legs(steps: StepsSpec) -> None:
    """Refuse geometry and rules by which no legs may be moved.

    Raises:
        ContractError: With the field, the value, and what was expected.
    """
    check_ranges(steps, "gait.steps.")
    support, swing = steps.support, steps.swing
    if steps.posture is not None:
        _check_posture(steps.posture)
    if steps.steer is not None:
        _check_steering(steps.steer)
    heights = (support.lowest_m, support.height_m, support.highest_m)
    _require(
        heights == tuple(sorted(heights)),
        "gait.steps.support's lowest_m, height_m, highest_m",
        heights,
        "rising numbers",
    )
    _require(
        LIFT_SHARE < swing.arrive <= 1.0, "gait.steps.swing.arrive", swing.arrive, f"more than {LIFT_SHARE}, at most 1"
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


def _check_posture(posture: PostureSpec) -> None:
    rising = (
        ("ahead_m", (0.0, *posture.ahead_m)),
        ("free_m and wall_m", (posture.free_m, posture.wall_m)),
    )
    for name, values in rising:
        far_enough = values[-2] < values[-1] and values == tuple(sorted(values))
        _require(far_enough, f"gait.steps.posture.{name}", values[-2:], "rising numbers from 0")


def _check_steering(steer: SteerSpec) -> None:
    where, points = "gait.steps.steer", steer.ways * steer.points
    _require(points <= MOST_POINTS, f"{where}'s ways times points", points, f"at most {MOST_POINTS}")
    turns = steer.turn_rad
    rising = turns[0] <= turns[1] - LEAST_TURN_RAD
    _require(rising, f"{where}.turn_rad", turns, f"rising angles, {LEAST_TURN_RAD} apart")
    first_m = steer.reach_m / steer.points
    _require(steer.go_m >= first_m - 1e-9, f"{where}.go_m", steer.go_m, f"at least the first point, {first_m:g} m")


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
