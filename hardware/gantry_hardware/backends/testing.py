"""The conformance kit: what every robot backend must do, run on the mock, on simulators and on drivers alike."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.model.capabilities import HasFaults, NeedsTakeOver, missing_methods


class ConformanceError(GantryError):
    """A backend does not do what :class:`gantry_hardware.backends.backend.Robot` promises."""


def check_backend(
    robot: Robot, *, rate_hz: float = 50.0, hold_s: float = 1.0, tolerance_rad: float = 0.5, max_age_s: float = 0.05
) -> None:
    """Connect a robot, exercise the whole interface, and close it. It holds its default pose, so let it hang or stand.

    Args:
        robot: A backend that is not connected yet.
        rate_hz: Rate of the commands.
        hold_s: How long the default pose is commanded before the joints are compared with it.
        tolerance_rad: How far joints may be from the default pose then; covers sagging under the weight.
        max_age_s: How old a state may be right after a tick.

    Raises:
        ConformanceError: Naming the promise that was broken, with the values.
    """
    robot.connect()
    try:
        lacking = missing_methods(robot, Robot)
        _require(not lacking, f"{type(robot).__name__} lacks methods of Robot: {', '.join(lacking)}")
        _check_clock(robot, 1.0 / rate_hz)
        _check_state(robot, max_age_s)
        _check_take_over(robot)
        _check_hold(robot, 1.0 / rate_hz, hold_s, tolerance_rad, max_age_s)
        _check_limits(robot)
        _check_refusals(robot)
        _check_snapshots(robot, 1.0 / rate_hz)
        robot.write(JointCommand.damping(robot.spec))
        robot.write(JointCommand.passive(robot.spec))
    finally:
        robot.close()
    robot.close()


def _check_clock(robot: Robot, dt_s: float) -> None:
    last = robot.now_s()
    for _ in range(5):
        goal = last + dt_s
        robot.sleep_until(goal)
        now = robot.now_s()
        _require(now >= goal - 1e-6, f"sleep_until({goal:.4f}) returned at {now:.4f} s, expected at that time or later")
        last = now
    robot.sleep_until(last - 1.0)
    _require(robot.now_s() >= last, f"the clock went back from {last:.4f} s to {robot.now_s():.4f} s")


def _check_state(robot: Robot, max_age_s: float) -> None:
    state, n = robot.read(), robot.spec.num_joints
    shapes = {
        "joint_pos_rad": (n,),
        "joint_vel_rad_s": (n,),
        "joint_effort_nm": (n,),
        "quat_base_to_world_wxyz": (4,),
        "ang_vel_base_in_base_rad_s": (3,),
        "lin_acc_base_in_base_m_s2": (3,),
        "pos_base_in_world_m": (3,),
        "lin_vel_base_in_base_m_s": (3,),
        "foot_contact": (len(robot.spec.feet),),
    }
    for name, shape in shapes.items():
        values = getattr(state, name)
        if values is None and name in ("pos_base_in_world_m", "lin_vel_base_in_base_m_s", "foot_contact"):
            continue
        if not isinstance(values, np.ndarray):
            raise ConformanceError(f"Robot backend: state.{name} is a {type(values).__name__}, expected an array.")
        _require(values.shape == shape, f"state.{name} has shape {values.shape}, expected {shape}")
        kind = np.bool_ if name == "foot_contact" else np.float64
        _require(values.dtype == kind, f"state.{name} has type {values.dtype}, expected {np.dtype(kind)}")
    _require(state.is_finite(), "the first state is not finite")
    norm = float(np.linalg.norm(state.quat_base_to_world_wxyz))
    _require(abs(norm - 1.0) < 1e-3, f"the quaternion has norm {norm:.6f}, expected 1")
    _check_age(robot, state, max_age_s)


def _check_take_over(robot: Robot) -> None:
    """A robot that must be taken over does not move before; then it is, twice, and it has no fault."""
    able: Any = robot
    if not missing_methods(robot, NeedsTakeOver):
        try:
            robot.write(JointCommand.position(robot.spec, robot.spec.array("default_rad")))
        except RobotError:
            able.take_over()
            able.take_over()
        else:
            raise ConformanceError(f"{type(robot).__name__} took a command before take_over(), expected a RobotError.")
    if not missing_methods(robot, HasFaults):
        able.reset_faults()
        fault = able.fault()
        _require(fault is None, f"there is a fault: {fault and fault.text}")


def _check_age(robot: Robot, state: RobotState, max_age_s: float) -> None:
    age = robot.now_s() - state.stamp_s
    _require(-1e-6 <= age <= max_age_s, f"the state is {age:.4f} s old, expected 0 to {max_age_s} s")


def _check_hold(robot: Robot, dt_s: float, hold_s: float, tolerance_rad: float, max_age_s: float) -> None:
    goal = robot.spec.array("default_rad")
    start = robot.now_s()
    first = robot.read().stamp_s
    for i in range(1, round(hold_s / dt_s) + 1):
        robot.write(JointCommand.position(robot.spec, goal))
        robot.sleep_until(start + i * dt_s)
        _check_age(robot, robot.read(), max_age_s)
    state = robot.read()
    _require(state.stamp_s > first, f"the state's stamp stayed at {first:.4f} s while the clock went on")
    error = np.abs(state.joint_pos_rad - goal)
    worst = int(np.argmax(error))
    _require(
        error[worst] <= tolerance_rad,
        f"after {hold_s} s at the default pose joint '{robot.spec.joint_names[worst]}' is "
        f"{error[worst]:.3f} rad away, expected at most {tolerance_rad} rad",
    )


def _check_limits(robot: Robot) -> None:
    """A command beyond the limits is limited, and the answer says so; the command that was given stays as it was."""
    spec = robot.spec
    asked = JointCommand.position(spec, spec.array("upper_rad") + 1.0)
    asked = replace(asked, stiffness_nm_rad=np.zeros(spec.num_joints), effort_nm=spec.array("effort_limit_nm") * 0.0)
    before = {item.name: getattr(asked, item.name).copy() for item in fields(asked)}
    sent = robot.write(asked)
    if sent is None:  # An arm that takes positions alone has no way to say this; where it is, is within its limits.
        here = np.clip(robot.read().joint_pos_rad, spec.array("lower_rad"), spec.array("upper_rad"))
        sent = robot.write(JointCommand.position(spec, here))
    if not isinstance(sent, JointCommand):
        raise ConformanceError(f"Robot backend: write() returned a {type(sent).__name__}, expected what was sent.")
    over = np.flatnonzero(sent.pos_rad > spec.array("upper_rad") + 1e-6)
    names = ", ".join(spec.joint_names[i] for i in over)
    _require(over.size == 0, f"positions beyond the upper limit were sent for {names}")
    for name, values in before.items():
        _require(np.array_equal(getattr(asked, name), values), f"write() changed the caller's {name}")


def _check_refusals(robot: Robot) -> None:
    spec = robot.spec
    good = JointCommand.damping(spec)
    nan = good.pos_rad.copy()
    nan[0] = np.nan
    for bad, what in (
        (replace(good, pos_rad=nan), "a position that is not a number"),
        (replace(good, damping_nm_s_rad=np.full(spec.num_joints, np.inf)), "an infinite gain"),
        (replace(good, vel_rad_s=np.zeros(spec.num_joints + 1)), "one joint too many"),
    ):
        try:
            robot.write(bad)
        except RobotError:
            continue
        raise ConformanceError(f"{type(robot).__name__} took a command with {what}, expected a RobotError.")
    robot.write(good)


def _check_snapshots(robot: Robot, dt_s: float) -> None:
    """A state that was read stays as it was when the robot moves on."""
    state = robot.read()
    before = state.joint_pos_rad.copy()
    goal = np.clip(before + 0.1, robot.spec.array("lower_rad"), robot.spec.array("upper_rad"))
    start = robot.now_s()
    for i in range(1, 6):
        robot.write(JointCommand.position(robot.spec, goal))
        robot.sleep_until(start + i * dt_s)
        robot.read()
    _require(np.array_equal(state.joint_pos_rad, before), "a state that had been read changed afterwards")


def _require(condition: bool, promise: str) -> None:
    if not condition:
        raise ConformanceError(f"Robot backend: {promise}.")
