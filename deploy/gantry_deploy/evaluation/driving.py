"""Episodes of simulated cars: routes, tracks and lots on held-out maps, each time another car."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.parts import Acceptance
from gantry_deploy.evaluation.drive_metrics import COEFFICIENTS, COLLISIONS, DriveEpisodes, infraction_scores
from gantry_deploy.evaluation.metrics import GoalScores, Score, Verdict, bootstrap_mean, goal_scores, rate_interval
from gantry_deploy.evaluation.scenario import End, Episode, FloatArray, RolloutConfig, Scenario
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.backend import Robot
from gantry_hardware.model.capabilities import HasEpisodes

MAPS = 32
"""So many maps are drawn for a check, however many episodes it has, so that the first ones are always the same."""
FINISHED = "finished"
"""The end of an episode that is a success."""
MEASURED = ("completion", "driven_m", "lateral_rmse_m", "off_route_share")
"""Numbers of an episode that a car tells itself: share of the route or of the way to the goal, way driven, root of the
mean square distance from the lane's middle (0 where there is no lane), share of the time outside the route's lanes."""


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
        return self._rates.verdicts(acceptance)

    def perturbed_verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """The success rate under a perturbation against its threshold, if there is one."""
        return self._rates.perturbed_verdicts(acceptance)

    @property
    def severity(self) -> tuple[float, ...]:
        """Numbers that order results from good to bad: shares of failures and early ends, then of routes left, %."""
        return (*self._rates.severity, 100.0 - self.completion.mean)

    @property
    def line(self) -> str:
        """The scores in one line, for people."""
        return f"{self._rates.line}  {self.completion.mean:.0f} % driven, {self.lateral_rmse_m.mean:.2f} m off"

    @property
    def _rates(self) -> GoalScores:
        return GoalScores(self.episodes, self.success_rate, self.early_end_rate)


class RoadScenario(Scenario):
    """Episodes from standstill, until the route is driven, something ends them, or their time is over.

    One car drives them all, each time another one within what training varies; other road users are those of its task.
    """

    drawn = ("task", "split", "map_count", "seed", "noise", "vary")
    conditions = "at most, and no longer than in training, from standstill on held-out maps; car and noise are drawn"
    seconds = 300.0
    perturbed_episodes = 3
    unused = ("friction", "added_mass_share", "resample_s")
    counts_success = True

    def __init__(self, runner: PolicyRunner, config: RolloutConfig) -> None:
        super().__init__(runner, config)
        runner.embodiment.check_backend(runner.contract, config.backend)
        usual = {"seed": config.seed, "noise": config.noise, "vary": True, "split": "test", "map_count": MAPS}
        robot: Any = self.build(HasEpisodes, "has no episodes", **usual)
        self._car = robot
        self._outcome: dict[str, Any] = {}

    def make_robot(self, index: int) -> Robot:
        """The same car."""
        self._outcome = {}
        return self._car

    def length_s(self) -> float:
        """No longer than in training."""
        return min(self.config.seconds, self._car.episode_s)

    def stood_up(self) -> None:
        """Begin anew: the others have gone on while the car took its stand, which is no part of the episode."""
        self._car.reset()

    def judge(self, command: FloatArray) -> End | None:
        """Ends of the car's task; the command (0,), dimensionless, asks for nothing."""
        self._outcome = self._car.outcome
        ended = self._outcome["ended"]
        what = ended.replace("_", " ")
        if ended in ("", FINISHED):
            return End() if ended else None
        return End(f"collision: {what}" if ended in COLLISIONS else what)

    def measured(self, failed: bool) -> dict[str, Any]:
        """:data:`MEASURED`, the name of the end in the car's task, and whether it was a success."""
        ended = self._outcome.get("ended", "")
        numbers = {name: float(self._outcome.get(name, 0.0)) for name in MEASURED}
        return {**numbers, "finished": ended == FINISHED and not failed, "ended": ended}

    def summarise(self, episodes: Sequence[Episode]) -> CarScores:
        """See :func:`car_scores`."""
        return car_scores(episodes)

    def short_of_s(self) -> float | None:
        """Duration of the task's episodes, where these were asked to end earlier."""
        whole_s = self._car.episode_s
        return whole_s if self.config.seconds < min(whole_s, self.seconds) else None

    @staticmethod
    def line(episode: Episode) -> str:
        """See :meth:`Scenario.line`."""
        completion, off_m = episode.scores["completion"], episode.scores["lateral_rmse_m"]
        return f"{100.0 * completion:3.0f} % in {episode.seconds:.1f} s, {off_m:.2f} m off"


def car_scores(episodes: Sequence[Episode], version: str = "carla-2.0") -> CarScores:
    """Score episodes; each has ended with its first infraction, if there was one."""

    def values(name: str) -> NDArray[np.float64]:
        return np.array([episode.scores[name] for episode in episodes], dtype=np.float64)

    completion, count, ended = values("completion"), len(episodes), [item.scores["ended"] for item in episodes]
    kept = infraction_scores(
        DriveEpisodes(
            completion=completion,
            driven_m=values("driven_m"),
            duration_s=np.array([episode.seconds for episode in episodes]),
            infractions={kind: np.array([int(end == kind) for end in ended]) for kind in COEFFICIENTS[version]},
            off_route_share=values("off_route_share"),
            lateral_rmse_m=values("lateral_rmse_m"),
            discomfort_share=np.full(count, np.nan),  # Not measured, and no part of these scores.
        ),
        version,
    )
    rates = goal_scores(values("finished") > 0.5, [episode.failed for episode in episodes])
    return CarScores(
        episodes=count,
        success_rate=rates.success_rate,
        early_end_rate=rates.early_end_rate,
        collided=rate_interval(sum(end in COLLISIONS for end in ended), count),
        driving_score=bootstrap_mean(100.0 * completion * kept),
        completion=bootstrap_mean(100.0 * completion),
        lateral_rmse_m=bootstrap_mean(values("lateral_rmse_m")),
        coefficients=version,
        km=float(values("driven_m").sum()) / 1000.0,
    )
