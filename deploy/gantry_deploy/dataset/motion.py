"""Joint targets of a recorded episode: its joint positions, or the steps of an arm through the policy's own decoder."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.arm import ArmDecoder
from gantry_deploy.dataset.features import ACTION, JOINT_POSITION_TARGET, STATE, Feature
from gantry_deploy.dataset.notes import NOTES, PHYSICAL, read_notes, recorded_contract, values_of
from gantry_deploy.dataset.physical import (
    BODY_STEP,
    GRIPPER,
    JOINT_STEP,
    action_numbers,
    joint_labels,
    out_of_range,
    policy_action,
)
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]


class Motion(Protocol):
    """An episode as joint targets; n joints in the robot's order."""

    first_rad: FloatArray
    """Pose (n,) in which the episode begins; of a gripper in m."""
    frames: int
    """Number of targets."""

    def begin(self, joint_pos_rad: FloatArray) -> None:
        """Begin the episode with the joints at (n,) [rad, of a gripper m]."""
        ...

    def target(self, frame: int, joint_pos_rad: FloatArray) -> FloatArray:
        """Joint target (n,) of a frame, of a gripper in m, with the joints (n,) measured just before it."""
        ...


def motion_of(dataset: Dataset, episode: int, spec: RobotSpec, key: str = ACTION) -> Motion:
    """An episode's actions for a robot.

    Raises:
        UnknownNameError: If there is no such feature.
        DatasetError: If the actions are of another robot or cannot become joint targets, or there is no such episode.
    """
    if key not in dataset.features:
        raise UnknownNameError("feature", key, dataset.features)
    if dataset.features[key].kind in (BODY_STEP, JOINT_STEP):
        return ArmMotion(dataset, episode, spec, key)
    return JointMotion(joint_targets(dataset, episode, spec, key))


class JointMotion:
    """Recorded joint positions.

    Args:
        targets: Shape (frames, n).
    """

    def __init__(self, targets: FloatArray) -> None:
        self._targets = targets
        self.first_rad, self.frames = targets[0], len(targets)

    def begin(self, joint_pos_rad: FloatArray) -> None:
        """See :meth:`Motion.begin`; nothing depends on the joints' places."""

    def target(self, frame: int, joint_pos_rad: FloatArray) -> FloatArray:
        """See :meth:`Motion.target`; the recorded positions."""
        return self._targets[frame]


class ArmMotion:
    """Recorded steps of an arm's end effector or joints, decoded as a policy's actions are.

    Args:
        dataset: With Gantry's notes, which hold the contract.
        episode: Its number.
        spec: The robot.
        key: The feature.

    Raises:
        DatasetError: If the steps are of another robot, or not what the contract says.
    """

    def __init__(self, dataset: Dataset, episode: int, spec: RobotSpec, key: str) -> None:
        _require_robot(dataset, spec)
        notes = read_notes(dataset.folder)
        if notes is None:
            raise DatasetError(
                f"'{key}' holds steps, and '{dataset.folder}' has no {NOTES} that says how they are taken."
            )
        if values_of(notes) != PHYSICAL:
            raise DatasetError(
                f"'{dataset.folder}' holds a session's numbers, which are not physical; "
                "'gantry session replay' shows them."
            )
        contract = recorded_contract(notes, dataset.folder)
        if contract.robot != spec.name or contract.joint_names != spec.joint_names or contract.rate_hz != dataset.fps:
            raise DatasetError(f"'{dataset.folder / NOTES}' is of another robot or rate than the dataset says.")
        part, feature = action_numbers(contract), dataset.features[key]
        if feature.names != part.names:
            raise DatasetError(f"'{key}' has the numbers {feature.names}, and {NOTES} describes {part.names}.")
        labels = joint_labels(contract, "pos")
        state = dataset.features.get(STATE)
        if state is None or not set(labels) <= set(state.names or ()):
            raise DatasetError(f"'{STATE}' does not hold the joints {', '.join(labels)}; the first pose is not known.")
        assert state.names is not None
        frames = dataset.frames(episode, [key, STATE])
        if (wrong := out_of_range(part, frames[key])) is not None:
            value = frames[key][wrong]
            raise DatasetError(
                f"'{part.names[wrong[1]]}' is {value:g} in frame {wrong[0]}, outside of the action's range."
            )
        self._actions = policy_action(part, frames[key])
        self.first_rad = frames[STATE][0, [state.names.index(label) for label in labels]].astype(np.float64)
        if not np.isfinite(self.first_rad).all():
            raise DatasetError(f"'{STATE}' of episode {episode} is not finite; 'gantry data check' says where.")
        self.frames = len(self._actions)
        self._decoder = ArmDecoder(contract, np.zeros((1, 1), np.float32))

    def begin(self, joint_pos_rad: FloatArray) -> None:
        """See :meth:`Motion.begin`; targets begin at the joints' places."""
        self._decoder.reset(joint_pos_rad.astype(np.float32)[None])

    def target(self, frame: int, joint_pos_rad: FloatArray) -> FloatArray:
        """See :meth:`Motion.target`; the frame's step from the target before."""
        joints = joint_pos_rad.astype(np.float32)[None]
        return self._decoder.follow(self._actions[frame : frame + 1], joints)[0].astype(np.float64)


def joint_targets(dataset: Dataset, episode: int, spec: RobotSpec, key: str = ACTION) -> FloatArray:
    """An episode's actions as joint positions of a robot, (frames, n) rad in the robot's joint order; a gripper's in m.

    Raises:
        UnknownNameError: If there is no such feature.
        DatasetError: If the actions are not joint positions of this robot, or there is no such episode.
    """
    _require_robot(dataset, spec)
    if key not in dataset.features:
        raise UnknownNameError("feature", key, dataset.features)
    feature = dataset.features[key]
    units = set(feature.unit_of_each)
    if feature.kind != JOINT_POSITION_TARGET or "rad" not in units or not units <= {"rad", "m"}:
        raise DatasetError(
            f"'{key}' is of kind '{feature.kind or 'unknown'}' in '{', '.join(sorted(units)) or 'an unknown unit'}'; "
            f"only '{JOINT_POSITION_TARGET}' in 'rad' (a gripper's in 'm'), and steps of an arm that Gantry collected, "
            "are sent to a robot, and the dataset's info.json must say so."
        )
    names = _joint_names(feature, spec)
    if sorted(names) != sorted(spec.joint_names):
        raise DatasetError(
            f"'{key}' is of the joints {', '.join(names) or '(unnamed)'}, and '{spec.name}' has "
            f"{', '.join(spec.joint_names)}."
        )
    order = [names.index(name) for name in spec.joint_names]
    targets = dataset.frames(episode, [key])[key].astype(np.float64)[:, order]
    if not np.isfinite(targets).all():
        raise DatasetError(f"'{key}' of episode {episode} is not finite; 'gantry data check' says where.")
    return targets


def _require_robot(dataset: Dataset, spec: RobotSpec) -> None:
    if dataset.robot_type != spec.name:
        raise DatasetError(f"The dataset is of robot '{dataset.robot_type}', and this is '{spec.name}'.")


def _joint_names(feature: Feature, spec: RobotSpec) -> list[str]:
    """The robot's names of the joints, which LeRobot writes as ``joint1.pos`` and ``gripper.pos``."""
    others = spec.gripper_joints
    plain = [name.removesuffix(".pos") for name in feature.names or ()]
    return [
        others[0] if name == GRIPPER and len(others) == 1 and name not in spec.joint_names else name for name in plain
    ]
