"""Episodes of arms at a simulated workbench: one task, done, lost, or out of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gantry_deploy.contract.parts import OBJECT_GOAL
from gantry_deploy.control.loop import Controller
from gantry_deploy.embodiments.simulated_task import lost_text
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import GoalScores, goal_scores
from gantry_deploy.evaluation.scenario import End, Episode, FloatArray, Scenario
from gantry_hardware.backends.backend import Robot
from gantry_hardware.model.capabilities import HasTask


class TaskScenario(Scenario):
    """The task of a simulated workbench; where things lie, and what they weigh, is drawn there as in training."""

    drawn = ("task", "seed", "noise")
    conditions = "at most, and no longer than in training; where things lie, what they weigh and noise are drawn"
    unused = ("friction", "added_mass_share", "resample_s")
    counts_success = True

    def make_robot(self, index: int) -> Robot:
        """See :meth:`Scenario.make_robot`."""
        seed = int(np.random.default_rng((self.config.seed, index)).integers(2**31))
        robot: Any = self.build(HasTask, "has no task", noise=self.config.noise, seed=seed)
        self._task, self._done = robot, False
        return robot

    def length_s(self) -> float:
        """No longer than in training."""
        return min(self.config.seconds, self._task.episode_s)

    def begin(self, controller: Controller) -> None:
        """Say where the object belongs, or what is to be done, to a policy that asks."""
        if self.runner.contract.instruction is not None:
            if not self._task.instruction:
                raise ContractError("The policy follows instructions; the simulated task has none.")
            controller.instruct(self._task.instruction)
        if self.runner.contract.command.kind != OBJECT_GOAL:
            return
        if self._task.goal_in_base_m is None:
            raise ContractError("The policy asks where the object belongs; the simulated task has no such place.")
        controller.set_command(self._task.goal_in_base_m, controller.robot.now_s())

    def judge(self, command: FloatArray) -> End | None:
        """A task that is done or lost ends the episode; the command (c,) is in the contract's units."""
        self._done = self._task.task_done
        if self._done:
            return End()
        return End(lost_text(self._task)) if self._task.task_lost else None

    def measured(self, failed: bool) -> dict[str, Any]:
        """Whether the task was done."""
        return {"done": self._done}

    def summarise(self, episodes: Sequence[Episode]) -> GoalScores:
        """Rates with confidence intervals."""
        return goal_scores([item.scores["done"] for item in episodes], [item.failed for item in episodes])

    @staticmethod
    def line(episode: Episode) -> str:
        """See :meth:`Scenario.line`."""
        done = episode.scores["done"]
        return f"done after {episode.seconds:.1f} s" if done else f"not done in {episode.seconds:.1f} s"
