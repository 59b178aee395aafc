"""An episode's actions on a robot again, at the rate at which they were recorded."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.features import ACTION
from gantry_deploy.dataset.motion import motion_of
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.storage.checksums import require_checksums
from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import RobotError

APPROACH_S, APPROACH_SPEED = 2.0, 0.2
"""The way to the first pose takes at least this long, at no more than this share of any joint's speed limit."""
MAX_AGE_S = 0.25
"""A robot whose newest reading is older than this is not commanded any further."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Replayed:
    """Result of replaying an episode; n joints in the robot's order."""

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


def replay_episode(
    dataset: Dataset,
    episode: int,
    robot: Robot,
    *,
    key: str = ACTION,
    on_frame: Callable[[int, RobotState], None] | None = None,
) -> Replayed:
    """Send an episode's actions to a robot: slowly to the first pose, then frame by frame; then damp, or hold an arm.

    Args:
        dataset: Dataset with the episode.
        episode: Its number.
        robot: Connected, of the dataset's robot; supervised if it is real.
        key: The feature that is sent; joint positions or an arm's steps, see :func:`motion_of`.
        on_frame: Told each frame's number and the state before its action.

    Raises:
        DatasetError: If the actions are not such of this robot, or files have changed; nothing has moved.
        RobotError: If the robot's readings grow old or are not numbers; it has been damped.
    """
    require_checksums(dataset.folder)
    motion = motion_of(dataset, episode, robot.spec, key)
    times, asked, sent, measured = [], [], [], []
    last = motion.first_rad
    try:
        _approach(robot, motion.first_rad, 1.0 / dataset.fps)
        motion.begin(_checked_state(robot).joint_pos_rad)
        start_s = robot.now_s()
        for frame in range(motion.frames):
            robot.sleep_until(start_s + frame / dataset.fps)
            state = _checked_state(robot)
            if on_frame is not None:
                on_frame(frame, state)
            last = motion.target(frame, state.joint_pos_rad)
            command = robot.write(JointCommand.position(robot.spec, last))
            times.append(robot.now_s() - start_s)
            measured.append(state.joint_pos_rad)
            asked.append(last)
            sent.append(last if command is None else command.pos_rad)
        robot.sleep_until(start_s + motion.frames / dataset.fps)
    finally:
        # Also when Ctrl-C ends it; a robot that does not answer any more cannot be told.
        with contextlib.suppress(RobotError):
            _end(robot, last)
    return Replayed(np.array(times), np.array(asked), np.array(sent), np.array(measured))


def _end(robot: Robot, last_rad: FloatArray) -> None:
    """Damp a robot that stands, and let an arm hold its last target: without stiffness it would fall."""
    hold = embodiment_of_robot(robot.spec).holds_position
    robot.write((JointCommand.position if hold else JointCommand.damping)(robot.spec, last_rad))


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
