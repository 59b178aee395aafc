"""An episode's actions on a robot again, at the rate at which they were recorded."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.features import ACTION, JOINT_POSITION_TARGET
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.errors import DatasetError
from gantry_hardware.backend import Robot
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.spec import RobotSpec
from gantry_hardware.state import JointCommand, RobotState

APPROACH_S, APPROACH_SPEED = 2.0, 0.2
"""The way to the first pose takes at least this long, at no more than this share of any joint's speed limit."""
MAX_AGE_S = 0.25
"""A robot whose newest reading is older than this is not commanded any further."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Replayed:
    """How an episode went when it was replayed; n joints in the robot's order."""

    times_s: FloatArray
    """Shape (frames,), since the first action."""
    asked_rad: FloatArray
    """Shape (frames, n), the recorded actions."""
    sent_rad: FloatArray
    """Shape (frames, n), what the robot's limits made of them."""
    measured_rad: FloatArray
    """Shape (frames, n), joint positions just before each action."""

    @property
    def limited_frames(self) -> int:
        """Actions of which the robot's limits changed something."""
        return int((np.abs(self.asked_rad - self.sent_rad) > 1e-6).any(axis=1).sum())


def joint_targets(dataset: Dataset, episode: int, spec: RobotSpec, key: str = ACTION) -> FloatArray:
    """An episode's actions as joint positions of a robot, (frames, n) rad in the robot's joint order.

    Raises:
        UnknownNameError: If there is no such feature.
        DatasetError: If the actions are not joint positions of this robot, or there is no such episode.
    """
    if dataset.robot_type != spec.name:
        raise DatasetError(f"The dataset is of robot '{dataset.robot_type}', and this is '{spec.name}'.")
    if key not in dataset.features:
        raise UnknownNameError("feature", key, dataset.features)
    feature = dataset.features[key]
    if (feature.kind, feature.unit) != (JOINT_POSITION_TARGET, "rad"):
        raise DatasetError(
            f"'{key}' is of kind '{feature.kind or 'unknown'}' in '{feature.unit or 'an unknown unit'}'; only "
            f"'{JOINT_POSITION_TARGET}' in 'rad' is sent to a robot, and the dataset's info.json must say so."
        )
    if feature.names is None or sorted(feature.names) != sorted(spec.joint_names):
        raise DatasetError(
            f"'{key}' is of the joints {', '.join(feature.names or ()) or '(unnamed)'}, and '{spec.name}' has "
            f"{', '.join(spec.joint_names)}."
        )
    order = [feature.names.index(name) for name in spec.joint_names]
    targets = dataset.frames(episode, [key])[key].astype(np.float64)[:, order]
    if not np.isfinite(targets).all():
        raise DatasetError(f"'{key}' of episode {episode} is not finite; 'gantry data check' says where.")
    return targets


def replay_episode(
    dataset: Dataset,
    episode: int,
    robot: Robot,
    *,
    key: str = ACTION,
    on_frame: Callable[[int, RobotState], None] | None = None,
) -> Replayed:
    """Send an episode's actions to a robot: slowly to the first pose, then frame by frame, and damp at the end.

    Args:
        dataset: Where the episode is.
        episode: Its number.
        robot: Connected, of the dataset's robot; somebody watches it if it is real.
        key: The feature that is sent; joint positions, by its kind, unit and names.
        on_frame: Told each frame's number and the state before its action.

    Raises:
        DatasetError: If the actions are not joint positions of this robot; nothing has moved.
        RobotError: If the robot's readings grow old or are not numbers; it has been damped.
    """
    targets = joint_targets(dataset, episode, robot.spec, key)
    times, sent, measured = [], [], []
    try:
        _approach(robot, targets[0], 1.0 / dataset.fps)
        start_s = robot.now_s()
        for frame, target in enumerate(targets):
            robot.sleep_until(start_s + frame / dataset.fps)
            state = _checked_state(robot)
            if on_frame is not None:
                on_frame(frame, state)
            command = robot.write(JointCommand.position(robot.spec, target))
            times.append(robot.now_s() - start_s)
            measured.append(state.joint_pos_rad)
            sent.append(target if command is None else command.pos_rad)
        robot.sleep_until(start_s + len(targets) / dataset.fps)
    finally:
        # Also when Ctrl-C ends it; a robot that does not answer any more cannot be told.
        with contextlib.suppress(RobotError):
            robot.write(JointCommand.damping(robot.spec, targets[-1]))
    return Replayed(np.array(times), targets, np.array(sent), np.array(measured))


def _approach(robot: Robot, target: FloatArray, dt_s: float) -> None:
    """Move from where the robot is to the first pose in a straight line in joint space."""
    begin = _checked_state(robot).joint_pos_rad
    needed_s = float(np.max(np.abs(target - begin) / (APPROACH_SPEED * robot.spec.array("velocity_limit_rad_s"))))
    steps = math.ceil(max(APPROACH_S, needed_s) / dt_s)
    start_s = robot.now_s()
    for step in range(1, steps + 1):
        robot.write(JointCommand.position(robot.spec, begin + (target - begin) * (step / steps)))
        robot.sleep_until(start_s + step * dt_s)
        _checked_state(robot)


def _checked_state(robot: Robot) -> RobotState:
    state = robot.read()
    age_s = robot.now_s() - state.stamp_s
    if not abs(age_s) <= MAX_AGE_S:
        raise RobotError(f"The robot's newest reading is {age_s:.3f} s old, expected at most {MAX_AGE_S} s.")
    if not np.isfinite(state.joint_pos_rad).all():
        raise RobotError(f"The robot reports joint positions that are not numbers: {state.joint_pos_rad}.")
    return state
