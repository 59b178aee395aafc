"""Findings of a demo, and its requirements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.cli.command import counted
from gantry_deploy.evaluation.gate import Stage
from gantry_deploy.evaluation.scenario import RolloutConfig, RolloutResult
from gantry_deploy.report import Score
from gantry_sim.demo.measured import MeasuredWalk
from gantry_sim.demo.profile import Profile, total_s
from gantry_sim.demo.walk import Walk

MAX_WALK_ERROR_M_S = 0.2
"""Largest mean planar velocity error of the recorded walk."""
LEAST_JUDGED_S = 12.0
"""A shorter walk is mostly changes of command, which no policy follows at once; its velocity error has no verdict."""


@dataclass(frozen=True)
class Gate:
    """Outcome of the sim-to-sim gate."""

    stages: tuple[Stage, ...]
    """In order, the thresholds on the scores last."""
    config: RolloutConfig
    """Conditions of its episodes."""
    result: RolloutResult
    """Its episodes."""

    @property
    def passed(self) -> bool:
        """Whether every stage did."""
        return all(stage.passed for stage in self.stages)


@dataclass(frozen=True)
class Outcome:
    """Everything that the report is made of."""

    folder: Path
    """Folder of all files."""
    bundle: Bundle
    """The policy."""
    trained: bool
    """Whether this demo trained it."""
    evaluation: Mapping[str, Any] | None
    """Scores of held-out episodes by model, ``training_model`` and perhaps ``full_model``; None if impossible."""
    evaluation_note: str
    """Reason for a missing evaluation; empty if there is one."""
    curve_file: Path | None
    """Learning curve, if there is one."""
    gate: Gate
    """The sim-to-sim gate."""
    profile: Profile
    """Commands of the recorded walk."""
    walk: Walk
    """Run of the recorded walk."""
    walk_note: str
    """Reason for not using ROS 2; empty if it was used."""
    measured: MeasuredWalk | None
    """Its recording; None if there is nothing to read."""
    video: bytes | None
    """MP4 of the walk."""
    video_note: str
    """Reason for a missing video; empty if there is one."""
    stage_s: Mapping[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each part of the demo."""

    def scores(self) -> list[Score]:
        """Everything that was measured, with what was asked of it."""
        return [*self._training_scores(), *self._evaluation_scores(), *self._gate_scores(), *self._walk_scores()]

    @property
    def passed(self) -> bool:
        """Whether no score misses its limit, the gate is open and the walk was completed."""
        return self.gate.passed and self.walk.completed and all(score.passed is not False for score in self.scores())

    def score(self, name: str) -> Score | None:
        """The score of that name, if there is one."""
        return next((score for score in self.scores() if score.name == name), None)

    @property
    def judges_velocity(self) -> bool:
        """Whether the recorded walk is long enough for a verdict on its velocity error."""
        return judges_velocity(self.profile)

    def _training_scores(self) -> list[Score]:
        provenance = self.bundle.contract.provenance
        steps = f"{provenance.env_steps / 1e6:.2f} million control steps"
        if self.trained:
            return [Score("training time", provenance.train_wall_s, unit="s", note=steps)]
        if not provenance.train_wall_s:
            return []
        note = f"{steps}, on the machine where it was trained; not part of this run"
        return [Score("training time, when it was trained", provenance.train_wall_s, unit="s", note=note)]

    def _evaluation_scores(self) -> list[Score]:
        if self.evaluation is None:
            return []
        acceptance = self.bundle.contract.acceptance
        limits = (acceptance.max_lin_vel_error_m_s, acceptance.max_yaw_rate_error_rad_s, acceptance.max_fall_rate)
        training_model = self.evaluation["training_model"]
        scores = _triple("held out", training_model, limits, "in the training environment")
        standing = training_model.get("standing")
        if standing is not None:
            note = f"{counted(standing['episodes'], 'more episode')} with a command of zero"
            scores.append(Score("held out, standing: drift", standing["drift_m_s"]["mean"], unit="m/s", note=note))
            scores.append(Score("held out, standing: falls", standing["fall_rate"]["mean"], unit="%"))
        if "full_model" in self.evaluation:
            note = "with every collision shape and finer physics, for comparison"
            scores += _triple("held out, full model", self.evaluation["full_model"], (None, None, None), note)
        return scores

    def _gate_scores(self) -> list[Score]:
        acceptance = self.bundle.contract.acceptance
        limits = (acceptance.max_lin_vel_error_m_s, acceptance.max_yaw_rate_error_rad_s, acceptance.max_fall_rate)
        scores = {name: vars(value) for name, value in vars(self.gate.result.scores).items() if name != "episodes"}
        scores["episodes"] = self.gate.result.scores.episodes
        return _triple("gate", scores, limits, "in plain MuJoCo, through the runtime that robots use")

    def _walk_scores(self) -> list[Score]:
        return walk_scores(self.walk, self.measured, self.profile)


def missed(walk: Walk, measured: MeasuredWalk | None, profile: Profile) -> str:
    """The first thing that a recorded walk misses, in words; empty if it misses nothing."""
    if walk.trouble or not walk.completed:
        return walk.trouble or "the walk was not completed"
    return next((score.name for score in walk_scores(walk, measured, profile) if score.passed is False), "")


def walk_scores(walk: Walk, measured: MeasuredWalk | None, profile: Profile) -> list[Score]:
    """Measurements of a recorded walk, with the requirements on it.

    Args:
        walk: How it went.
        measured: Its recording; None if there is nothing to read.
        profile: What it was asked for.
    """
    where = "over ROS 2" if walk.over_ros else "in one process"
    if measured is None:
        return [Score(f"{where}: velocity error", math.nan, MAX_WALK_ERROR_M_S, "m/s", note=walk.trouble)]
    judges = judges_velocity(profile)
    note = f"mean over {measured.time_s[-1]:.0f} s, the changes of command included"
    note += "" if judges else f"; no verdict below {LEAST_JUDGED_S:g} s"
    limit = MAX_WALK_ERROR_M_S if judges else None
    driven = float(walk.completed)  # Of a walk that was not completed, never all, however short the rest was.
    if not walk.completed:
        driven = min(0.99, float(measured.time_s[-1]) / total_s(profile))
    return [
        Score(f"{where}: velocity error", measured.lin_vel_error_m_s, limit, "m/s", note=note),
        Score(f"{where}: yaw-rate error", measured.yaw_rate_error_rad_s, unit="rad/s"),
        Score(f"{where}: falls and faults", float(measured.fell or bool(measured.fault)), 0.0, note=measured.fault),
        Score(f"{where}: share of the profile driven", driven, 1.0, "%", above=True, note=walk.trouble),
    ]


def judges_velocity(profile: Profile) -> bool:
    """Whether a walk is long enough for a verdict on its velocity error."""
    return total_s(profile) >= LEAST_JUDGED_S - 1e-6


def _triple(
    prefix: str, scores: Mapping[str, Any], limits: tuple[float | None, float | None, float | None], note: str
) -> list[Score]:
    names = ("lin_vel_error_m_s", "yaw_rate_error_rad_s", "fall_rate")
    words, units = ("velocity error", "yaw-rate error", "falls"), ("m/s", "rad/s", "%")
    rows = []
    for index, (name, word, unit, limit) in enumerate(zip(names, words, units, limits, strict=True)):
        value = scores[name]
        row = Score(f"{prefix}: {word}", value["mean"], limit, unit)
        low, high = row.text(value["low"]).removesuffix(unit).strip(), row.text(value["high"])
        interval = f"95 % interval {low} to {high}"
        small = f"{counted(scores['episodes'], 'episode')} {note}; {interval}" if index == 0 else interval
        rows.append(Score(row.name, row.value, limit, unit, note=small))
    return rows
