"""Metrics of command tracking, defined once for training and for the sim-to-sim gate (Array API standard).

Goals are either reached or not, see :func:`goal_reached`. For velocity commands an episode counts from the policy's
first control step to its end, or to the last step before the fall. Its planar error is the mean over those steps of the
norm of measured minus commanded planar velocity in the base frame; its yaw error is the mean of the absolute difference
of the yaw rates. Scores are means over episodes, so that one that falls early weighs as much as one that does not.

N is the number of episodes that run side by side: one on a robot, thousands in training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from array_api_compat import device
from numpy.typing import ArrayLike

from gantry_deploy.contract.policy_contract import Acceptance
from gantry_hardware.model.spec import FALL_TILT_RAD
from gantry_mapping.elevation.ops import namespace

Array = Any

GOAL_POS_M = 0.5
"""A goal is reached nearer than this..."""
GOAL_HEADING_RAD = 0.5
"""...with a heading error smaller than this."""

_Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def planar_velocity_error_m_s(lin_vel_base_in_base_m_s: Array, command: Array) -> Array:
    """Norm of measured minus commanded planar velocity, shape (N,), m/s.

    Args:
        lin_vel_base_in_base_m_s: Shape (N, 3) or (N, 2), base frame.
        command: Shape (N, c), the first two being forward and lateral velocity in m/s in the base frame.
    """
    xp = namespace(lin_vel_base_in_base_m_s)
    error = lin_vel_base_in_base_m_s[:, :2] - command[:, :2]
    return xp.sqrt(xp.sum(error * error, axis=-1))


def yaw_rate_error_rad_s(ang_vel_base_in_base_rad_s: Array, command: Array) -> Array:
    """Absolute difference of measured and commanded yaw rate, shape (N,), rad/s.

    Args:
        ang_vel_base_in_base_rad_s: Shape (N, 3), base frame.
        command: Shape (N, c), the third being the yaw rate in rad/s.
    """
    xp = namespace(ang_vel_base_in_base_rad_s)
    return xp.abs(ang_vel_base_in_base_rad_s[:, 2] - command[:, 2])


def has_fallen(quat_base_to_world_wxyz: Array, base_height_m: Array, fall_height_m: float) -> Array:
    """Whether the base is too low or tilted by more than :data:`gantry_hardware.model.spec.FALL_TILT_RAD`, shape (N,),
    bool; so is a pose of NaN.

    Args:
        quat_base_to_world_wxyz: Shape (N, 4), unit quaternions from the base to the world frame.
        base_height_m: Shape (N,), of the base's origin above the ground under it.
        fall_height_m: The robot's ``RobotSpec.fall_height_m``.
    """
    x, y = quat_base_to_world_wxyz[:, 1], quat_base_to_world_wxyz[:, 2]
    upright = 1.0 - 2.0 * (x * x + y * y) >= math.cos(FALL_TILT_RAD)
    # Written as "not standing", because every comparison with NaN is false.
    return ~(upright & (base_height_m >= fall_height_m))


def goal_errors(command: Array) -> tuple[Array, Array]:
    """Distance from the goal in m and absolute heading error in rad, each (N,), of goal commands (N, 4) in
    the base's yaw frame.
    """
    xp = namespace(command)
    distance = xp.sqrt(xp.sum(command[:, :2] * command[:, :2], axis=-1))
    return distance, xp.abs(xp.atan2(command[:, 2], command[:, 3]))


def goal_reached(command: Array) -> Array:
    """Whether the base is within 0.5 m and 0.5 rad of the goal, (N,) bool; an episode whose last step finds it so and
    which did not end early is a success. The paper (AME-2) publishes no definition of its own.

    Args:
        command: Shape (N, 4), the full :func:`gantry_deploy.actions.commands.goal_command`.
    """
    distance, error = goal_errors(command)
    return (distance < GOAL_POS_M) & (error < GOAL_HEADING_RAD)


class EpisodeScores:
    """Running errors of N episodes; each stops counting before the step of its fall.

    Args:
        like: Any floating array of the namespace, dtype and device to work on; its first dimension is N.
        fall_height_m: The robot's ``RobotSpec.fall_height_m``.
    """

    def __init__(self, like: Array, fall_height_m: float) -> None:
        self._xp = xp = namespace(like)
        self._fall_height_m = fall_height_m
        zeros = xp.zeros((like.shape[0],), dtype=like.dtype, device=device(like))
        self._planar, self._yaw, self.steps = zeros, zeros, zeros
        self.fallen = xp.zeros((like.shape[0],), dtype=xp.bool, device=device(like))
        """Shape (N,), bool: which have fallen."""

    def update(
        self,
        lin_vel_base_in_base_m_s: Array,
        ang_vel_base_in_base_rad_s: Array,
        quat_base_to_world_wxyz: Array,
        base_height_m: Array,
        command: Array,
    ) -> Array:
        """Take one control step of every episode, from the truth and not from noisy sensors.

        Args:
            lin_vel_base_in_base_m_s: Shape (N, 3).
            ang_vel_base_in_base_rad_s: Shape (N, 3).
            quat_base_to_world_wxyz: Shape (N, 4).
            base_height_m: Shape (N,), above the ground under the base.
            command: Shape (N, 3), forward and lateral velocity in m/s and yaw rate in rad/s, base frame.

        Returns:
            Shape (N,), bool: which have fallen by now.
        """
        xp = self._xp
        self.fallen = self.fallen | has_fallen(quat_base_to_world_wxyz, base_height_m, self._fall_height_m)
        planar = planar_velocity_error_m_s(lin_vel_base_in_base_m_s, command)
        yaw = yaw_rate_error_rad_s(ang_vel_base_in_base_rad_s, command)
        # Physics that broke down has no velocity to speak of; it counts as a fall and not as an error.
        counts = ~self.fallen & xp.isfinite(planar) & xp.isfinite(yaw)
        zero = xp.zeros_like(planar)
        self._planar = self._planar + xp.where(counts, planar, zero)
        self._yaw = self._yaw + xp.where(counts, yaw, zero)
        self.steps = self.steps + xp.astype(counts, self.steps.dtype)
        return self.fallen

    @property
    def lin_vel_error_m_s(self) -> Array:
        """Shape (N,), mean planar velocity error of each episode in the base frame; NaN before its first step."""
        return self._mean(self._planar)

    @property
    def yaw_rate_error_rad_s(self) -> Array:
        """Shape (N,), mean yaw-rate error of each episode in the base frame; NaN before its first step."""
        return self._mean(self._yaw)

    def _mean(self, total: Array) -> Array:
        xp = self._xp
        mean = total / xp.maximum(self.steps, xp.ones_like(self.steps))
        return xp.where(self.steps > 0, mean, xp.full_like(mean, math.nan))


@dataclass(frozen=True)
class Score:
    """A mean over episodes with its 95 % confidence interval."""

    mean: float
    """The mean; NaN if there was nothing to measure."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


@dataclass(frozen=True)
class TrackingScores:
    """Scores of a set of episodes."""

    episodes: int
    """Number of episodes."""
    lin_vel_error_m_s: Score
    """Mean planar velocity error."""
    yaw_rate_error_rad_s: Score
    """Mean yaw-rate error."""
    fall_rate: Score
    """Share of episodes that fell."""

    def verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """Each score against its threshold."""
        return [
            Verdict("mean planar velocity error", self.lin_vel_error_m_s, acceptance.max_lin_vel_error_m_s, " m/s"),
            Verdict("mean yaw-rate error", self.yaw_rate_error_rad_s, acceptance.max_yaw_rate_error_rad_s, " rad/s"),
            Verdict("fall rate", self.fall_rate, acceptance.max_fall_rate, ""),
        ]

    def perturbed_verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """Scores under a perturbation against their thresholds; none where there are none."""
        asked = (
            ("fall rate", self.fall_rate, acceptance.max_perturbed_fall_rate, ""),
            ("planar velocity error", self.lin_vel_error_m_s, acceptance.max_perturbed_lin_vel_error_m_s, " m/s"),
        )
        return [Verdict(name, score, limit, unit) for name, score, limit, unit in asked if limit is not None]

    @property
    def severity(self) -> tuple[float, ...]:
        """Numbers that order results from good to bad: share of falls, then planar velocity error in m/s."""
        return _rising(self.fall_rate.mean, self.lin_vel_error_m_s.mean)

    @property
    def line(self) -> str:
        """The scores in one line, for people."""
        errors = f"{self.lin_vel_error_m_s.mean:.3f} m/s  {self.yaw_rate_error_rad_s.mean:.3f} rad/s"
        return f"{errors}  fell {_rate(self.fall_rate)}"


@dataclass(frozen=True)
class GoalScores:
    """Scores of a set of episodes with one goal each."""

    episodes: int
    """Number of episodes."""
    success_rate: Score
    """Share that stood at the goal, in its heading, at the end."""
    early_end_rate: Score
    """Share that fell or was ended for another reason before its time."""

    def verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """The success rate against its threshold, if there is one."""
        if acceptance.min_success_rate is None:
            return []
        return [Verdict("success rate", self.success_rate, acceptance.min_success_rate, "", at_least=True)]

    def perturbed_verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """The success rate under a perturbation against its threshold, if there is one."""
        limit = acceptance.min_perturbed_success_rate
        return [] if limit is None else [Verdict("success rate", self.success_rate, limit, "", at_least=True)]

    @property
    def severity(self) -> tuple[float, ...]:
        """Numbers that order results from good to bad: share of failures, then of early ends."""
        return _rising(1.0 - self.success_rate.mean, self.early_end_rate.mean)

    @property
    def line(self) -> str:
        """The scores in one line, for people."""
        return f"success {_rate(self.success_rate)}  ended early {_rate(self.early_end_rate)}"


def verdicts_on(scores: Mapping[str, Any], acceptance: Acceptance) -> list[Verdict]:
    """Scores that a task has as plain data against the thresholds of its contract; none where nothing is asked."""
    for kind in (TrackingScores, GoalScores):
        names = [item.name for item in fields(kind) if item.name != "episodes"]
        if all(name in scores for name in names):
            found = {name: Score(**{key: scores[name][key] for key in ("mean", "low", "high")}) for name in names}
            return kind(scores["episodes"], **found).verdicts(acceptance)
    for name in ("success_rate", "finished"):  # The success of a car is a route driven to its end.
        if name in scores and acceptance.min_success_rate is not None:
            score = Score(**{key: scores[name][key] for key in ("mean", "low", "high")})
            return [Verdict("success rate", score, acceptance.min_success_rate, "", at_least=True)]
    return []


def goal_scores(success: ArrayLike, ended_early: ArrayLike) -> GoalScores:
    """Rates over episodes with Wilson's intervals.

    Args:
        success: Shape (N,), bool, whether the goal was reached at the end.
        ended_early: Shape (N,), bool; such an episode is no success.
    """
    ended = np.asarray(ended_early, dtype=bool)
    good = np.asarray(success, dtype=bool) & ~ended
    return GoalScores(len(good), rate_interval(int(good.sum()), len(good)), rate_interval(int(ended.sum()), len(ended)))


@dataclass(frozen=True)
class Verdict:
    """One score against its threshold."""

    name: str
    """Name of the measured quantity."""
    score: Score
    """Result."""
    limit: float
    """Largest mean that passes, or smallest."""
    unit: str
    """With a leading space; empty for a share."""
    at_least: bool = False
    """Whether the mean must reach the limit instead of keeping below it."""

    @property
    def passed(self) -> bool:
        """Whether the mean is within the limit; a mean of NaN is not."""
        return self.score.mean >= self.limit if self.at_least else self.score.mean <= self.limit

    @property
    def text(self) -> str:
        """For people, for example ``0.131 m/s, 95 % interval 0.118 to 0.144, allowed 0.15 m/s``."""
        score = self.score
        interval = f"95 % interval {score.low:.3f} to {score.high:.3f}"
        asked = "asked for" if self.at_least else "allowed"
        doubt = "; more episodes would tell" if score.low < self.limit < score.high else ""
        return f"{score.mean:.3f}{self.unit}, {interval}, {asked} {self.limit:g}{self.unit}{doubt}"


def tracking_scores(
    lin_vel_error_m_s: ArrayLike, yaw_rate_error_rad_s: ArrayLike, fallen: ArrayLike, *, seed: int = 0
) -> TrackingScores:
    """Means over episodes with confidence intervals: bootstrap for the errors, Wilson's for the fall rate.

    A bootstrap of 20 episodes without a fall would claim a fall rate of exactly zero; Wilson's interval does not.

    Args:
        lin_vel_error_m_s: Shape (N,), one per episode; NaN where nothing was measured.
        yaw_rate_error_rad_s: Shape (N,).
        fallen: Shape (N,), bool.
        seed: Of the bootstrap.
    """
    falls = np.asarray(fallen, dtype=bool)
    return TrackingScores(
        episodes=len(falls),
        lin_vel_error_m_s=bootstrap_mean(lin_vel_error_m_s, seed=seed),
        yaw_rate_error_rad_s=bootstrap_mean(yaw_rate_error_rad_s, seed=seed),
        fall_rate=rate_interval(int(falls.sum()), len(falls)),
    )


def bootstrap_mean(values: ArrayLike, *, resamples: int = 4000, seed: int = 0) -> Score:
    """Mean and percentile-bootstrap 95 % interval (Efron, 1979) of the finite ones among ``values`` (N,)."""
    array = np.asarray(values, dtype=np.float64)
    array = array[np.isfinite(array)]
    if not array.size:
        return Score(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    # In chunks, because 4000 resamples of thousands of episodes at once would not fit a small machine.
    chunk = max(1, 2_000_000 // array.size)
    means = np.concatenate(
        [
            array[rng.integers(0, array.size, (min(chunk, resamples - start), array.size))].mean(axis=1)
            for start in range(0, resamples, chunk)
        ]
    )
    low, high = np.percentile(means, (2.5, 97.5))
    return Score(float(array.mean()), float(low), float(high))


def rate_interval(hits: int, trials: int) -> Score:
    """Share of ``hits`` in ``trials`` and its 95 % score interval (Wilson, 1927)."""
    if trials == 0:
        return Score(math.nan, math.nan, math.nan)
    rate, z2 = hits / trials, _Z95**2
    center = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    # The interval reaches the ends exactly where all or none are hits; rounding must not take it past the rate.
    return Score(rate, max(0.0, min(rate, center - half)), min(1.0, max(rate, center + half)))


def _rate(score: Score) -> str:
    return f"{100.0 * score.mean:.0f} % [{100.0 * score.low:.0f}, {100.0 * score.high:.0f}]"


def _rising(*values: float) -> tuple[float, ...]:
    """Numbers to order by, NaN as the worst."""
    return tuple(math.inf if math.isnan(value) else value for value in values)
