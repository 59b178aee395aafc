"""Episodes of a policy that drives a simulated car, through the runtime's own loop and safety."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.control.loop import TickReport
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.drive_metrics import COEFFICIENTS, COLLISIONS, DriveEpisodes, infraction_scores
from gantry_deploy.evaluation.metrics import GoalScores, Score, Verdict, bootstrap_mean, goal_scores, rate_interval
from gantry_deploy.evaluation.rollout import EpisodeWatch, RolloutConfig, count_faults
from gantry_deploy.perception.simulated_road import ROAD, make_road_view, refuse_roadless, road_options
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends import make_backend
from gantry_hardware.errors import RobotError

CAR_OPTIONS = ("task", "split", "map_count", "seed", "noise", "vary")
"""Options that a backend for episodes of a car takes."""
CAR_SECONDS = 300.0
"""Longest episode of a car, unless asked otherwise; that of its task counts where it is shorter."""
MAPS = 32
"""So many maps are drawn for a check, however many episodes it has, so that the first ones are always the same."""
FINISHED = "finished"
"""The end of an episode that is a success."""


@runtime_checkable
class CarOnTask(Protocol):
    """Capability of a simulated car to report ground truth beside its sensors and to begin again."""

    @property
    def episode_s(self) -> float:
        """Length of an episode of its task in training."""
        ...

    @property
    def outcome(self) -> dict[str, Any]:
        """Events since the last reset, the truth."""
        ...

    def reset(self) -> None:
        """Begin another episode, at rest."""
        ...


@dataclass(frozen=True)
class CarEpisode:
    """Outcome of one episode."""

    seconds: float
    """Time under the policy."""
    completion: float
    """Share of the route or of the way to the goal, 0 to 1."""
    driven_m: float
    """Way driven."""
    lateral_rmse_m: float
    """Root of the mean square distance from the lane's middle; 0 where there is no lane."""
    off_route_share: float
    """Share of the time outside the route's lanes."""
    finished: bool
    """Whether the route was driven to its end, or the goal reached, which ends the episode."""
    failed: bool
    """Whether it ended early otherwise: by a collision, a red light, off the road, blocked, or by a fault."""
    ended: str = ""
    """Name of the end in the car's task; empty for running out of time and for faults."""
    fault: str = ""
    """Code of the fault that braked the car; empty if none did."""
    reason: str = ""
    """Reason for an early end, for people; empty if there was none."""


@dataclass(frozen=True)
class CarScores:
    """Scores of a set of episodes with 95 % intervals."""

    episodes: int
    """Number of episodes."""
    success_rate: Score
    """Share that was driven to the end."""
    early_end_rate: Score
    """Share that ended early otherwise."""
    collided: Score
    """Share with a collision."""
    driving_score: Score
    """Completion times penalties, 0 to 100, see :mod:`gantry_deploy.evaluation.drive_metrics`."""
    completion: Score
    """In percent."""
    lateral_rmse_m: Score
    """Mean over episodes."""
    coefficients: str
    """Version of the penalties."""
    km: float
    """Kilometres driven by all of them."""

    def verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """The success rate against its threshold, if there is one."""
        return GoalScores(self.episodes, self.success_rate, self.early_end_rate).verdicts(acceptance)


@dataclass(frozen=True)
class CarRolloutResult:
    """All episodes and their scores."""

    episodes: tuple[CarEpisode, ...]
    """In order."""
    scores: CarScores
    """Means and rates with confidence intervals."""
    short_of_s: float | None = None
    """Duration of the task's episodes, where these were asked to end earlier; None where they were not."""

    @property
    def faults(self) -> dict[str, int]:
        """Number of times that each kind of fault braked the car."""
        return count_faults(episode.fault for episode in self.episodes)


def run_car_episodes(
    runner: PolicyRunner, config: RolloutConfig, on_episode: Callable[[int, CarEpisode], None] | None = None
) -> CarRolloutResult:
    """Run every episode from standstill, until the route is driven, something ends it, or its time is over.

    One car drives them all, each time another one within what training varies, on held-out maps; other road users are
    those of its task.

    Args:
        runner: The policy.
        config: Conditions; friction and payload do not count.
        on_episode: Told of each episode that is over, with its index.

    Raises:
        ContractError: If the policy drives no car, or the backend knows no road.
        RobotError: If the backend has no episodes.
    """
    contract = runner.contract
    if contract.drive is None:
        raise ContractError(f"The policy moves robot '{contract.robot}', expected a car.")
    refuse_roadless(contract, config.backend)
    usual = {"seed": config.seed, "noise": config.noise, "vary": True, "split": "test", "map_count": MAPS}
    robot = make_backend(config.backend, runner.spec, **{**road_options(contract), **usual, **config.options})
    if not isinstance(robot, CarOnTask):
        raise RobotError(f"Backend '{config.backend}' has no episodes; those of a car need '{ROAD}'.")
    episodes = []
    for index in range(config.episodes):
        watch = _CarWatch(robot, runner, min(config.seconds, robot.episode_s), config.backend)
        watch.run()
        episode = watch.episode()
        episodes.append(episode)
        if on_episode is not None:
            on_episode(index, episode)
    cut = config.seconds < min(robot.episode_s, CAR_SECONDS)
    return CarRolloutResult(tuple(episodes), car_scores(episodes), robot.episode_s if cut else None)


def car_scores(episodes: list[CarEpisode], version: str = "carla-2.0") -> CarScores:
    """Score episodes; each has ended with its first infraction, if there was one."""

    def values(name: str) -> NDArray[np.float64]:
        return np.array([getattr(episode, name) for episode in episodes], dtype=np.float64)

    completion, count = values("completion"), len(episodes)
    infractions = {
        kind: np.array([int(episode.ended == kind) for episode in episodes]) for kind in COEFFICIENTS[version]
    }
    kept = infraction_scores(
        DriveEpisodes(
            completion=completion,
            driven_m=values("driven_m"),
            duration_s=values("seconds"),
            infractions=infractions,
            off_route_share=values("off_route_share"),
            lateral_rmse_m=values("lateral_rmse_m"),
            discomfort_share=np.full(count, np.nan),  # Not measured, and no part of these scores.
        ),
        version,
    )
    rates = goal_scores(values("finished") > 0.5, values("failed") > 0.5)
    return CarScores(
        episodes=count,
        success_rate=rates.success_rate,
        early_end_rate=rates.early_end_rate,
        collided=rate_interval(sum(episode.ended in COLLISIONS for episode in episodes), count),
        driving_score=bootstrap_mean(100.0 * completion * kept),
        completion=bootstrap_mean(100.0 * completion),
        lateral_rmse_m=bootstrap_mean(values("lateral_rmse_m")),
        coefficients=version,
        km=float(values("driven_m").sum()) / 1000.0,
    )


class _CarWatch(EpisodeWatch):
    """Lets the policy drive one episode."""

    def __init__(self, robot: Any, runner: PolicyRunner, seconds: float, backend: str) -> None:
        view = make_road_view(runner.contract, robot, backend)
        super().__init__(robot, runner, seconds, surroundings=view)
        self._car: CarOnTask = robot
        self._fresh = False
        self._outcome: dict[str, Any] = {}

    def command(self, time_s: float) -> None:
        return None

    def score(self, command: NDArray[np.float64]) -> bool:
        self._outcome = self._car.outcome
        ended = self._outcome["ended"]
        if ended == FINISHED:
            self.controller.stop()
        return ended not in ("", FINISHED)

    def episode(self) -> CarEpisode:
        """Outcome of the episode, after :meth:`run`."""
        outcome = self._outcome
        ended = outcome.get("ended", "")
        return CarEpisode(
            seconds=self.steps / self._contract.rate_hz,
            completion=float(outcome.get("completion", 0.0)),
            driven_m=float(outcome.get("driven_m", 0.0)),
            lateral_rmse_m=float(outcome.get("lateral_rmse_m", 0.0)),
            off_route_share=float(outcome.get("off_route_share", 0.0)),
            finished=ended == FINISHED and not self.reason,
            failed=bool(self.reason),
            ended=ended,
            fault=self.fault,
            reason=self.reason,
        )

    def _while_standing(self, report: TickReport) -> None:
        # The others have gone on while the car took its stand, which is no part of the episode.
        if not self._fresh and self._stood_s(report) >= 0.0:
            self._fresh = True
            self._car.reset()
        super()._while_standing(report)

    def _fall_text(self) -> str:
        ended = self._outcome["ended"]
        what = ended.replace("_", " ")
        return f"collision: {what}" if ended in COLLISIONS else what
