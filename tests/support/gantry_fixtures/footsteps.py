"""A robot of a Go2's size whose policy says where to step, for tests."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.footstep_spec import (
    STEP_NAMES,
    STEP_TARGET,
    BodyPoseSpec,
    LegSpec,
    StepsSpec,
    SupportSpec,
    SwingSpec,
)
from gantry_deploy.contract.policy_contract import ActionSpec, GaitSpec, GoalVelocitySpec, PolicyContract
from gantry_deploy.footsteps.controller import Stepper
from gantry_deploy.footsteps.legs import Legs
from gantry_deploy.footsteps.state import StepState
from gantry_deploy.testing.legs import map_contract_for
from gantry_hardware.robots import robot_spec

Floats = NDArray[np.float64]

_CORNERS = ((1, -1), (1, 1), (-1, -1), (-1, 1))
LEGS = tuple(LegSpec((x * 0.1934, y * 0.0465, 0.0), y * 0.0955, 0.213, 0.213, x * 0.19, y * 0.126) for x, y in _CORNERS)
"""FR, FL, RR, RL."""
MASS_KG, RADIUS_M, STAND_M = 15.0, 0.022, 0.28
"""Of the robot, of its feet, and how high its base is over flat ground."""
STEPS = StepsSpec(
    LEGS,
    SupportSpec(MASS_KG, (0.0, 0.0, 0.0), (0.12, 0.32, 0.36)),
    SwingSpec(RADIUS_M, most_lead_rad=(9.0, 9.0, 9.0)),
    body_pose=BodyPoseSpec(),
)
"""Its legs; their joints go wherever they are told at once."""
FAR, THERE = [[5.0, 0.0, 0.0, 1.0]], [[0.1, 0.0, 0.0, 1.0]]
"""Commands: a goal straight ahead, and one that is reached."""
SEEN = ("quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s", "joint_pos_rad", "joint_vel_rad_s", "elevation_map")
"""Inputs of :meth:`~gantry_deploy.footsteps.controller.Stepper.sense` after clock and command."""


def stepping_contract(**changes: Any) -> PolicyContract:
    """The contract, with these fields changed; a period is 0.4 s, a unit of action 0.1."""
    base = map_contract_for(robot_spec("go2"))
    n = len(base.joint_names)
    gait = GaitSpec(
        frequency_hz=2.5,
        duty=0.5,
        foot_offset=(0.5, 0.0, 0.0, 0.5),
        amplitude_rad=0.0,
        lead_s=0.0,
        joint_foot=tuple(i // 3 for i in range(n)),
        joint_gain=(0.0,) * n,
        stand_below=0.1,
        steps=STEPS,
    )
    action = ActionSpec(STEP_TARGET, (0.1,) * len(STEP_NAMES), (0.0,) * len(STEP_NAMES), 2.5)
    command = replace(base.command, goal_velocity=GoalVelocitySpec(speed_m_s=0.5, stop_m=0.3, stop_rad=0.3))
    return replace(base, **{"gait": gait, "action": action, "command": command, **changes})


def steps_with(part: str, **changes: Any) -> dict[str, GaitSpec]:
    """The contract's change for which numbers of a part of :data:`STEPS` are others."""
    gait, legs = stepping_contract().gait, replace(STEPS, **{part: replace(getattr(STEPS, part), **changes)})
    assert gait is not None
    return {"gait": replace(gait, steps=legs)}


def stepping_inputs(command: list[list[float]], time_s: float = 0.05, **changes: Any) -> dict[str, Floats]:
    """The decoder's inputs beside the action, one row: the robot stands on flat ground, feet where they stand."""
    window = stepping_contract().map_window
    assert window is not None
    values = {
        "time_s": np.array([time_s]),
        "command": np.array(command),
        "quat_base_to_world_wxyz": np.array([[1.0, 0.0, 0.0, 0.0]]),
        "ang_vel_base_in_base_rad_s": np.zeros((1, 3)),
        "elevation_map": np.full((1, window.rows, window.cols, 2), window.nominal_base_height_m - STAND_M),
        "joint_pos_rad": joints_of(standing_feet()),
        "joint_vel_rad_s": np.zeros((1, 12)),
    }
    values["elevation_map"][..., 1] = -1.8
    return {**values, **changes}


def standing_feet() -> Floats:
    """Positions of the standing feet, (1, 4, 3), m in the base frame."""
    return np.array([[(leg.stand_x_m, leg.stand_y_m, RADIUS_M - STAND_M) for leg in LEGS]])


def raised_feet(which: list[int], up_m: float = 0.07) -> Floats:
    """Joints (1, 12) of the standing robot with some of its feet in the air."""
    feet = standing_feet()
    feet[:, which, 2] += up_m
    return joints_of(feet)


def joints_of(feet_b: Floats) -> Floats:
    """Joints (N, 12), rad, of feet (N, 4, 3), m in the base frame."""
    return Legs(LEGS, np.zeros(1)).joints(feet_b)


def random_joints(count: int, seed: int = 0) -> Floats:
    """Joint positions of legs below the hips, knees bent neither fully nor not at all, (count, 12), rad."""
    low, high = np.array([-0.7, -0.2, -2.3]), np.array([0.7, 1.4, -0.9])
    return (low + (high - low) * np.random.default_rng(seed).random((count, 4, 3))).reshape(count, 12)


def make_stepper() -> Stepper:
    """Its legs, on numpy."""
    return Stepper(stepping_contract(), np.zeros((1, 1)))


def sensed(time_s: float = 0.05, *, far: bool = True, **changes: Any) -> StepState:
    """State of the standing robot's body, on the way to its goal or, ``far=False``, at it."""
    inputs = stepping_inputs(FAR if far else THERE, time_s, **changes)
    return make_stepper().sense(inputs["time_s"], inputs["command"], *(inputs[name] for name in SEEN))


def quaternion(roll: float, pitch: float, yaw: float) -> Floats:
    """An attitude (1, 4), w first: roll first, then pitch, then yaw, about the world's axes, rad."""
    (cr, sr), (cp, sp), (cy, sy) = ((math.cos(a / 2), math.sin(a / 2)) for a in (roll, pitch, yaw))
    w, x = cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy
    return np.array([[w, x, cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy]])


def forces_of(targets_rad: Floats, inputs: dict[str, Floats]) -> Floats:
    """Forces with which the joints' stiffness makes the feet push the ground for targets (12,), (4, 3), N in the base
    frame.
    """
    jacobian = Legs(LEGS, np.zeros(1)).feet(inputs["joint_pos_rad"])[1][0]
    torque = np.array(stepping_contract().stiffness_nm_rad) * (targets_rad - inputs["joint_pos_rad"][0])
    return np.array([np.linalg.solve(jacobian[i].T, torque[3 * i : 3 * i + 3]) for i in range(len(LEGS))])
