"""Episodes of a policy that walks to goals: on the terrain's own goals, or on a plane to places drawn ahead of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.commands import goal_command
from gantry_deploy.contract.policy_contract import BODY_POSE
from gantry_deploy.control.goals import Goal
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import GoalScores, goal_errors, goal_reached, goal_scores, has_fallen
from gantry_deploy.evaluation.rollout import EpisodeWatch, RolloutConfig, count_faults, draw_robot
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backend import Robot
from gantry_hardware.errors import RobotError

DISTANCE_M = (1.5, 4.0)
"""Range of the distance of goals on a plane."""
CONE_RAD = math.radians(60.0)
"""Goals lie within this of straight ahead, and ask for a heading within it (AME-2, episode setup)."""


@dataclass(frozen=True)
class GoalEpisode:
    """Outcome of one episode."""

    friction: float
    """Between feet and floor."""
    added_mass_kg: float
    """Payload."""
    seconds: float
    """Time under the policy."""
    goal: Goal
    """Commanded goal."""
    distance_m: float
    """From the goal at the end; NaN if the policy never ran."""
    heading_error_rad: float
    """At the end; NaN if the policy never ran."""
    reached: bool
    """Whether it stood at the goal, in its heading, at the end."""
    failed: bool
    """Whether it ended early: by a fall, by a fault that damped the robot, or before the policy could start."""
    fault: str = ""
    """Code of the fault that damped the robot; empty if none did."""
    reason: str = ""
    """Reason for an early end, for people; empty if there was none."""


@dataclass(frozen=True)
class GoalRolloutResult:
    """All episodes and their scores."""

    episodes: tuple[GoalEpisode, ...]
    """In order."""
    scores: GoalScores
    """Rates with confidence intervals."""

    @property
    def faults(self) -> dict[str, int]:
        """Number of times that each kind of fault damped the robot."""
        return count_faults(episode.fault for episode in self.episodes)


def run_goal_episodes(
    runner: PolicyRunner, config: RolloutConfig, on_episode: Callable[[int, GoalEpisode], None] | None = None
) -> GoalRolloutResult:
    """Run every episode: stand up, then the policy towards one goal until it falls or the time is over.

    Args:
        runner: The policy; its robot is simulated and knows its odometry.
        config: Conditions.
        on_episode: Told of each episode that is over, with its index.

    Raises:
        ContractError: If the policy does not walk to goals, or needs a map that the robot does not have.
        RobotError: If the backend is missing or knows no ground truth.
    """
    if runner.contract.command.kind != BODY_POSE:
        raise ContractError(f"The policy follows '{runner.contract.command.kind}', expected '{BODY_POSE}'.")
    episodes = []
    for index in range(config.episodes):
        episode = _run_episode(runner, config, index)
        episodes.append(episode)
        if on_episode is not None:
            on_episode(index, episode)
    scores = goal_scores([episode.reached for episode in episodes], [episode.failed for episode in episodes])
    return GoalRolloutResult(tuple(episodes), scores)


def draw_goal(places_m: NDArray[np.float64], rng: np.random.Generator) -> Goal:
    """A goal for a robot at the origin that looks along x.

    Args:
        places_m: Shape (goals, 3), the terrain's goals; none for a plane, where any place ahead will do.
        rng: Draws.
    """
    turn = rng.uniform(-CONE_RAD, CONE_RAD)
    if len(places_m):
        x, y, _ = places_m[int(rng.integers(len(places_m)))].tolist()
        return Goal(x, y, turn)
    distance, bearing = rng.uniform(*DISTANCE_M), rng.uniform(-CONE_RAD, CONE_RAD)
    return Goal(distance * math.cos(bearing), distance * math.sin(bearing), turn)


def _run_episode(runner: PolicyRunner, config: RolloutConfig, index: int) -> GoalEpisode:
    rng = np.random.default_rng((config.seed, index))
    robot, options = draw_robot(runner, config, rng)
    if not hasattr(robot, "pos_base_in_world_m"):
        raise RobotError(f"Backend '{config.backend}' does not tell where it is; goals need 'pos_base_in_world_m'.")
    goal = draw_goal(np.asarray(getattr(robot, "goals_in_world_m", np.zeros((0, 3)))), rng)
    watch = _GoalWatch(robot, runner, goal, config.seconds)
    watch.run()
    distance, error = (float(values[0]) for values in goal_errors(watch.last[None]))
    ended = bool(watch.reason)
    return GoalEpisode(
        friction=float(options["friction"]),
        added_mass_kg=float(options["added_mass_kg"]),
        seconds=watch.steps / runner.contract.rate_hz,
        goal=goal,
        distance_m=distance,
        heading_error_rad=error,
        reached=not ended and bool(goal_reached(watch.last[None])[0]),
        failed=ended,
        fault=watch.fault,
        reason=watch.reason,
    )


class _GoalWatch(EpisodeWatch):
    """Sends the robot to one goal."""

    def __init__(self, robot: Robot, runner: PolicyRunner, goal: Goal, seconds: float) -> None:
        super().__init__(robot, runner, seconds)
        self._robot: Any = robot
        self._goal = goal
        self._fall_height_m = runner.spec.fall_height_m
        self.last = np.full(4, np.nan)
        """Shape (4,), the true goal command after the newest step."""
        self.controller.set_goal(goal)

    def command(self, time_s: float) -> None:
        return None

    def score(self, command: NDArray[np.float64]) -> bool:
        quat = self._truth.quat_base_to_world_wxyz[None]
        place = np.array([[self._goal.x_in_world_m, self._goal.y_in_world_m, 0.0]])
        yaw = np.array([self._goal.yaw_in_world_rad])
        self.last = goal_command(place, yaw, self._robot.pos_base_in_world_m[None], quat)[0]
        return bool(has_fallen(quat, np.array([self._truth.base_height_m]), self._fall_height_m)[0])
