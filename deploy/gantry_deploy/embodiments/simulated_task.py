"""Simulated tasks: done, lost, or neither, as the simulator knows it; and the way back to a start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.evaluation.drive_metrics import COLLISIONS
from gantry_hardware.backends.backend import Robot
from gantry_hardware.model.capabilities import HasEpisodes, HasReset, HasTask, capability


@dataclass(frozen=True)
class TaskVerdict:
    """State of a task after a control step."""

    done: bool = False
    """Whether the task is done."""
    lost: bool = False
    """Whether it cannot be done any more."""
    text: str = ""
    """Reason, in words; empty for none."""


class TaskJudge(Protocol):
    """Source of verdicts, and the length of an attempt."""

    episode_s: float
    """Length of an episode of the task in training, s."""

    def verdict(self) -> TaskVerdict:
        """The verdict of now."""
        ...

    def command(self) -> NDArray[np.float64] | None:
        """Command (c,) that the task asks of the policy, in the contract's units; None for none."""
        ...

    def instruction(self) -> str:
        """Instruction of the attempt in plain words; empty for none."""
        ...


def lost_text(robot: HasTask) -> str:
    """Reason for which a task at a workbench is lost."""
    return "the object is out of reach" + (", or another thing was moved" if robot.instruction else "")


class BenchJudge:
    """The task of a simulated workbench.

    Args:
        robot: With a task.
    """

    def __init__(self, robot: HasTask) -> None:
        self._robot = robot
        self.episode_s = robot.episode_s

    def verdict(self) -> TaskVerdict:
        """Done, or the object is out of reach."""
        if self._robot.task_done:
            return TaskVerdict(done=True)
        return TaskVerdict(lost=True, text=lost_text(self._robot)) if self._robot.task_lost else TaskVerdict()

    def command(self) -> NDArray[np.float64] | None:
        """Position (3,) where the object belongs, in the base frame [m]; None in a task without a goal."""
        return self._robot.goal_in_base_m

    def instruction(self) -> str:
        """As the workbench says."""
        return self._robot.instruction


class RoadJudge:
    """The route, lot or track of a simulated car.

    Args:
        robot: A car with episodes.
    """

    def __init__(self, robot: HasEpisodes) -> None:
        self._robot = robot
        self.episode_s = robot.episode_s

    def verdict(self) -> TaskVerdict:
        """Finished, or ended otherwise."""
        ended = str(self._robot.outcome.get("ended", ""))
        if ended == "finished":
            return TaskVerdict(done=True)
        what = ended.replace("_", " ")
        return TaskVerdict(lost=bool(ended), text=f"collision: {what}" if ended in COLLISIONS else what)

    def command(self) -> NDArray[np.float64] | None:
        """Nothing: the road says where to go."""
        return None

    def instruction(self) -> str:
        """Nothing, likewise."""
        return ""


def task_judge(robot: Robot) -> TaskJudge | None:
    """The judge of a simulated robot's task; None for a robot that knows of none, where a person must judge."""
    bench = capability(robot, HasTask)
    if bench is not None:
        return BenchJudge(bench)
    road = capability(robot, HasEpisodes)
    return None if road is None else RoadJudge(road)


def scene_reset(robot: Robot) -> Callable[[], None] | None:
    """Function that puts a simulated robot and its scene back to a start; None for a robot that cannot be put back."""
    simulated = capability(robot, HasReset)
    return None if simulated is None else simulated.reset
