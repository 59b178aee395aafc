"""Episodes of an arm's policy at a simulated workbench, through the runtime's own loop and safety."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import OBJECT_GOAL, PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import GoalScores, goal_scores
from gantry_deploy.evaluation.rollout import EpisodeWatch, RolloutConfig, count_faults
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends import make_backend
from gantry_hardware.errors import RobotError

WORKBENCH = "workbench"
"""Backend of simulated arms, unless asked otherwise."""
ARM_OPTIONS = ("task", "seed", "noise")
"""Options that a backend for episodes of an arm takes."""


@runtime_checkable
class TaskRobot(Protocol):
    """Ground truth of a simulated arm beside its sensors."""

    @property
    def episode_s(self) -> float:
        """Length of an episode of its task in training."""
        ...

    @property
    def goal_in_base_m(self) -> NDArray[np.float64] | None:
        """Shape (3,), place where the object belongs, in the base frame [m]; None in a task without a goal."""
        ...

    @property
    def task_done(self) -> bool:
        """Whether the task is done now."""
        ...

    @property
    def task_lost(self) -> bool:
        """Whether it cannot be done any more."""
        ...


@dataclass(frozen=True)
class ArmEpisode:
    """Outcome of one episode."""

    seconds: float
    """Time under the policy."""
    done: bool
    """Whether the task was done, which ends the episode."""
    failed: bool
    """Whether it ended early otherwise: the object lost, a fault, or a policy that could not start."""
    fault: str = ""
    """Code of the fault; empty if there was none."""
    reason: str = ""
    """Reason for an early end, for people; empty if there was none."""


@dataclass(frozen=True)
class ArmRolloutResult:
    """All episodes and their scores."""

    episodes: tuple[ArmEpisode, ...]
    """In order."""
    scores: GoalScores
    """Rates with confidence intervals."""

    @property
    def faults(self) -> dict[str, int]:
        """Number of episodes that each kind of fault ended."""
        return count_faults(episode.fault for episode in self.episodes)


def workbench_options(contract: PolicyContract) -> dict[str, Any]:
    """Options of the simulated workbench that suit a policy: its task, and pictures of the size that it sees.

    Raises:
        ContractError: If its cameras are not all square and of one size, as those of the workbench are.
    """
    options: dict[str, Any] = {"task": contract.provenance.task} if contract.provenance.task else {}
    cameras = () if contract.arm is None else contract.arm.cameras
    sizes = {size for camera in cameras for size in (camera.height, camera.width)}
    if len(sizes) > 1:
        raise ContractError(
            f"The simulated cameras take square pictures of one size, the policy's are {sorted(sizes)}."
        )
    return {**options, "pictures_px": sizes.pop()} if sizes else options


def run_arm_episodes(
    runner: PolicyRunner, config: RolloutConfig, on_episode: Callable[[int, ArmEpisode], None] | None = None
) -> ArmRolloutResult:
    """Run every episode: move to the start, then the policy until the task is done, lost, or its time is over.

    Args:
        runner: The policy; its robot is an arm at a simulated workbench.
        config: Conditions; friction and payload are drawn by the workbench, as in training.
        on_episode: Told of each episode that is over, with its index.

    Raises:
        ContractError: If the policy moves no arm, or sees what the workbench does not show.
        RobotError: If the backend is missing or has no task.
    """
    if runner.contract.arm is None:
        raise ContractError(f"The policy moves robot '{runner.contract.robot}', expected an arm.")
    options = {**workbench_options(runner.contract), "noise": config.noise}
    episodes = []
    for index in range(config.episodes):
        drawn = {"seed": int(np.random.default_rng((config.seed, index)).integers(2**31))}
        robot = make_backend(config.backend, runner.spec, **{**options, **drawn, **config.options})
        if not isinstance(robot, TaskRobot):
            raise RobotError(f"Backend '{config.backend}' has no task; episodes of an arm need '{WORKBENCH}'.")
        watch = _TaskWatch(robot, runner, min(config.seconds, robot.episode_s))
        watch.run()
        seconds = watch.steps / runner.contract.rate_hz
        episode = ArmEpisode(seconds, watch.done, bool(watch.reason), watch.fault, watch.reason)
        episodes.append(episode)
        if on_episode is not None:
            on_episode(index, episode)
    scores = goal_scores([episode.done for episode in episodes], [episode.failed for episode in episodes])
    return ArmRolloutResult(tuple(episodes), scores)


class _TaskWatch(EpisodeWatch):
    """Lets the policy do its task once."""

    def __init__(self, robot: Any, runner: PolicyRunner, seconds: float) -> None:
        super().__init__(robot, runner, seconds)
        self._robot: TaskRobot = robot
        self.done = False
        """Whether the task was done."""
        if runner.contract.command.kind == OBJECT_GOAL:
            if self._robot.goal_in_base_m is None:
                raise ContractError("The policy asks where the object belongs; the simulated task has no such place.")
            self.controller.set_command(self._robot.goal_in_base_m, robot.now_s())

    def command(self, time_s: float) -> None:
        return None

    def score(self, command: NDArray[np.float64]) -> bool:
        self.done = self._robot.task_done
        if self.done:
            self.controller.stop()
        return not self.done and self._robot.task_lost

    def _fall_text(self) -> str:
        return "the object is out of reach"
