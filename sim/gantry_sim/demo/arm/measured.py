"""Episodes of an arm read back from their recording: what its base wanted, what was added, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.arm_spec import BODY_TARGET
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.safety import Mode
from gantry_deploy.policy.golden import action_labels
from gantry_deploy.policy.policy import open_policy
from gantry_deploy.recording.reader import Recording, read_recording
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_hardware.spec import RobotSpec
from gantry_sim.demo.arm.episodes import Trial

FloatArray = NDArray[np.float64]

_POSED = ("/gantry/status", "/joint_states", "/object_pose")
_DECIDED = (*_POSED, "/joint_command", "/policy/observation", "/policy/action")


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode: T ticks under the policy, and S of them and after them that are shown; n joints, a numbers of an
    action."""

    trial: Trial
    """Result by its operator's node."""
    start_s: float
    """Its first tick, on the clock of the recording."""
    time_s: FloatArray
    """Shape (T,), since then."""
    joint_pos_rad: FloatArray
    """Shape (T, n), rad; a gripper in m."""
    target_rad: FloatArray
    """Shape (T, n), what the joints were told."""
    observation: NDArray[np.float32]
    """Shape (T, o)."""
    action: NDArray[np.float32]
    """Shape (T, a), what was done, in the range -1 to 1."""
    base_action: NDArray[np.float32] | None
    """Shape (T, a), what the base wanted; None of a policy without one."""
    period_s: FloatArray
    """Shape (T - 1,), time between ticks."""
    infer_s: FloatArray
    """Shape (T,), time inside the networks."""
    shown_s: FloatArray
    """Shape (S,), times of what is shown, since its first tick."""
    shown_joint_pos_rad: FloatArray
    """Shape (S, n)."""
    shown_object_pose_in_base: FloatArray
    """Shape (S, 7), m and unit quaternion, w first."""
    goal_in_base_m: FloatArray | None
    """Shape (3,), where the object belongs; None in a task without a goal."""

    @property
    def done_after_s(self) -> float | None:
        """Time of success since the first tick under the policy; None if it never was."""
        done_s = self.trial.done_s
        return None if done_s is None else max(0.0, done_s - self.start_s)

    @property
    def correction(self) -> NDArray[np.float32] | None:
        """Shape (T, a), what was added to the base's action."""
        return None if self.base_action is None else self.action - self.base_action


@dataclass(frozen=True)
class MeasuredArm:
    """All episodes of a recording."""

    spec: RobotSpec
    """The robot."""
    contract: PolicyContract
    """Of the policy."""
    episodes: tuple[RecordedEpisode, ...]
    """In order."""

    @cached_property
    def labels(self) -> list[str]:
        """Names of what the numbers of an action move."""
        if self.contract.action.kind == BODY_TARGET and self.contract.action_size == 4:
            return ["forward", "left", "up", "gripper"]
        return action_labels(self.contract)

    @property
    def done(self) -> int:
        """Number of episodes that did the task."""
        return sum(episode.trial.done for episode in self.episodes)

    def all(self, name: str) -> NDArray[Any]:
        """An array of all episodes, one after the other."""
        return np.concatenate([getattr(episode, name) for episode in self.episodes])


def measure_arm(path: Path, trials: Sequence[Trial]) -> MeasuredArm:
    """Read a recording of episodes.

    Args:
        path: The MCAP file.
        trials: Results by the operator's node, in order; of an episode that it did not see to its end nothing is said.

    Raises:
        GantryError: If there is none, or the policy never ran in it, or the object was never observed.
    """
    recording = read_recording(path)
    contract, status = recording.contract, recording.topics.get("/gantry/status")
    if contract is None or status is None or any(topic not in recording.topics for topic in _DECIDED):
        raise GantryError(f"{path}: no arm's policy ran in this recording.")
    times, modes = status["time_s"], status["mode"]
    running = modes == Mode.POLICY.value
    begins = np.flatnonzero(running & ~np.concatenate(([False], running[:-1])))
    seen = [*trials, *[Trial(False, reason="it was broken off")] * max(0, len(begins) - len(trials))]
    episodes = []
    for begin, trial in zip(begins, seen, strict=False):
        others = np.flatnonzero(~running[begin:])
        end = begin + int(others[0]) if len(others) else len(modes)
        held = np.flatnonzero(modes[end:] != Mode.STAND.value)
        last = end + int(held[0]) if len(held) else len(modes)
        episode = _episode(recording, contract, times[begin:end], times[begin:last], trial)
        if episode is not None:
            episodes.append(episode)
    if not episodes:
        raise GantryError(f"{path}: the policy never ran in this recording.")
    return MeasuredArm(robot_spec(recording.robot), contract, tuple(episodes))


def rerun_difference(found: MeasuredArm, bundle: Bundle) -> float:
    """Largest difference of the recorded actions, and of those of their base, from what the bundle's networks and their
    queue answer to the recorded observations."""
    policy = open_policy(bundle)
    worst, clip = 0.0, found.contract.action.clip
    for episode in found.episodes:
        policy.reset()
        for row, observation in enumerate(episode.observation):
            action, base = policy(observation[None])
            worst = max(worst, float(np.abs(np.clip(action[0], -clip, clip) - episode.action[row]).max()))
            if base is not None and episode.base_action is not None:
                worst = max(worst, float(np.abs(base[0] - episode.base_action[row]).max()))
    return worst


def _episode(
    recording: Recording, contract: PolicyContract, ticks: FloatArray, shown: FloatArray, trial: Trial
) -> RecordedEpisode | None:
    """An episode between two times; None if less than two of its ticks hold all that is needed."""
    residual = "/policy/base_action" in recording.topics
    needed = (*_DECIDED, *(("/policy/base_action",) if residual else ()))
    ticks, shown = _common(recording, ticks, needed), _common(recording, shown, _POSED)
    if len(ticks) < 2:
        return None

    def column(topic: str, name: str, when: FloatArray) -> NDArray[Any]:
        return recording[topic][name][np.searchsorted(recording[topic]["time_s"], when)]

    clip, goal = contract.action.clip, recording.topics.get("/object_goal")
    return RecordedEpisode(
        trial=trial,
        start_s=float(ticks[0]),
        time_s=ticks - ticks[0],
        joint_pos_rad=column("/joint_states", "joint_pos_rad", ticks),
        target_rad=column("/joint_command", "pos_rad", ticks),
        observation=column("/policy/observation", "data", ticks).astype(np.float32),
        action=np.clip(column("/policy/action", "data", ticks), -clip, clip).astype(np.float32),
        base_action=column("/policy/base_action", "data", ticks).astype(np.float32) if residual else None,
        period_s=column("/gantry/status", "period_s", ticks)[1:],
        infer_s=column("/gantry/status", "infer_s", ticks),
        shown_s=shown - ticks[0],
        shown_joint_pos_rad=column("/joint_states", "joint_pos_rad", shown),
        shown_object_pose_in_base=column("/object_pose", "data", shown),
        goal_in_base_m=None if goal is None else column("/object_goal", "data", ticks)[0],
    )


def _common(recording: Recording, ticks: FloatArray, topics: Sequence[str]) -> FloatArray:
    """Those times that all topics have."""
    for topic in topics:
        ticks = np.intersect1d(ticks, recording[topic]["time_s"])
    return ticks
