"""Findings of the demo of an arm, and its requirements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.cli.command import counted
from gantry_deploy.evaluation.gate import Stage
from gantry_deploy.evaluation.metrics import Score as Interval
from gantry_deploy.evaluation.metrics import rate_interval
from gantry_deploy.report import Score
from gantry_sim.demo.arm.learning import Recipe
from gantry_sim.demo.arm.measured import MeasuredArm, RecordedEpisode
from gantry_sim.demo.walk import Walk

Scores = Mapping[str, Any]


@dataclass(frozen=True)
class Learned:
    """Results of learning in this demo."""

    recipe: Recipe
    """Amounts of everything."""
    demo_frames: int
    """Frames of the demonstrations."""
    expert_success: float
    """Share of the expert's tries that succeeded; the others were left out."""
    base: Scores | None
    """Scores of the clone on held-out episodes, as ``gantry eval`` gives them; None if they were left out."""
    looks: Sequence[Scores]
    """Evaluations on the way, the first one of the clone alone."""
    corrections: Sequence[Scores]
    """Rows of metrics while the correction was learned."""


@dataclass(frozen=True)
class ArmOutcome:
    """Everything that the report is made of."""

    folder: Path
    """Folder of all files."""
    bundle: Bundle
    """The policy."""
    task: str
    """Task whose things lie on the table."""
    learned: Learned | None
    """Results of learning; None where a finished policy is shown."""
    scores: Scores | None
    """Of the policy on held-out episodes; None if they were left out."""
    stages: Sequence[Stage]
    """Verified properties of the bundle."""
    asked: int
    """Episodes that were to be recorded."""
    walk: Walk
    """Run of the recorded episodes."""
    note: str = ""
    """Reason for not using ROS 2; empty if it was used."""
    measured: MeasuredArm | None = None
    """The recorded episodes; None if there is nothing to read."""
    rerun: float | None = None
    """Largest difference of the recorded actions from those of the networks run again."""
    loop: Scores | None = None
    """Statistics of the control loop; None if there are none."""
    robot: Scores | None = None
    """Statistics of the simulated robot's node; None if there are none."""
    video: bytes | None = None
    """MP4 of the recorded episodes."""
    video_note: str = ""
    """Reason for a missing video; empty if there is one."""
    stage_s: Mapping[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each part of the demo."""

    @property
    def least(self) -> float | None:
        """Share of successes that the policy's contract asks for."""
        return self.bundle.contract.acceptance.min_success_rate

    @property
    def done(self) -> Interval:
        """Share of the recorded episodes that did the task, of all that were asked for."""
        return rate_interval(0 if self.measured is None else self.measured.done, self.asked)

    @property
    def where(self) -> str:
        """Over what the episodes were recorded, in words."""
        return "over ROS 2" if self.walk.over_ros else "in one process"

    @property
    def passed(self) -> bool:
        """Whether nothing that was asked for was missed."""
        return not self.missed

    @property
    def missed(self) -> list[str]:
        """Names of what was missed."""
        stages = [f"check: {stage.name}" for stage in self.stages if not stage.passed]
        return stages + [item.name for item in self.all_scores() if item.passed is False]

    def all_scores(self) -> list[Score]:
        """Everything that was measured, with what was asked of it."""
        return [*self._held_out(), *self._recorded()]

    def _held_out(self) -> list[Score]:
        found, base = self.scores, None if self.learned is None else self.learned.base
        if found is None:
            return []
        rows = [] if base is None else [_share("held out: the clone alone", base)]
        name = "held out: clone and correction" if self.learned is not None else "held out: success"
        rows.append(_share(name, found, self.least))
        if base is not None:
            gain = found["success_once"]["mean"] - base["success_once"]["mean"]
            note = "share of successes with the correction minus without it, on episodes that begin alike"
            rows.append(Score("held out: gain", gain, 0.0, "%", above=True, note=note))
            rows.append(Score("held out: steps to success, the clone", _or_nan(base["steps_to_success"])))
        rows.append(Score("held out: steps to success", _or_nan(found["steps_to_success"])))
        for key, word in (("mean_base_action", "base action"), ("mean_residual", "correction")):
            if key in found:
                rows.append(Score(f"held out: mean |{word}|", found[key], note="of 1, the largest action"))
        return rows

    def _recorded(self) -> list[Score]:
        found, share = self.measured, self.done
        count = 0 if found is None else found.done
        note = f"{count} of {counted(self.asked, 'episode')}, judged by the simulator; {_interval(share)}"
        rows = [Score(f"{self.where}: success", share.mean, self.least, "%", above=True, note=note)]
        damped = float(not self.walk.completed)
        rows.append(Score(f"{self.where}: faults", damped, 0.0, note=self.walk.trouble))
        times = [] if found is None else [e.done_after_s for e in found.episodes if e.done_after_s is not None]
        mean_s = float(np.mean(times)) if times else math.nan
        rows.append(Score(f"{self.where}: time to success", mean_s, unit="s", note="mean of those that did the task"))
        return rows


def arm_result(outcome: ArmOutcome) -> dict[str, Any]:
    """The outcome in numbers, for ``--json``."""
    from gantry_sim.demo.pipeline import REPORT, VIDEO

    found, learned = outcome.measured, outcome.learned
    return {
        "passed": outcome.passed,
        "missed": outcome.missed,
        "report": str((outcome.folder / REPORT).resolve()),
        "bundle": str(outcome.bundle.path.resolve()),
        "task": outcome.task,
        "provenance": asdict(outcome.bundle.contract.provenance),
        "scores": [asdict(item) | {"passed": item.passed} for item in outcome.all_scores()],
        "learned": None if learned is None else asdict(learned),
        "evaluation": outcome.scores,
        "check": [asdict(stage) for stage in outcome.stages],
        "episodes": {
            "over_ros": outcome.walk.over_ros,
            "note": outcome.note,
            "completed": outcome.walk.completed,
            "trouble": outcome.walk.trouble,
            "earlier_attempts": list(outcome.walk.earlier),
            "recording": str(outcome.walk.recording),
            "asked": outcome.asked,
            "success": asdict(outcome.done),
            "rerun_difference": outcome.rerun,
            "each": [] if found is None else [_row(episode) for episode in found.episodes],
            "timing": None if found is None else timing_of(found),
            "robot": outcome.robot,
        },
        "video": outcome.video_note or str((outcome.folder / VIDEO).resolve()),
        "stage_s": dict(outcome.stage_s),
    }


def timing_of(found: MeasuredArm) -> dict[str, dict[str, float]]:
    """Count and percentiles in s of the networks' time and of the time between ticks."""
    result = {}
    for name, key in (("network", "infer_s"), ("period", "period_s")):
        values = found.all(key)
        p50, p99 = np.percentile(values, (50, 99)).tolist()
        result[name] = {"count": len(values), "p50_s": p50, "p99_s": p99, "max_s": float(values.max())}
    return result


def _row(episode: RecordedEpisode) -> dict[str, Any]:
    correction = episode.correction
    return {
        "done": episode.trial.done,
        "done_after_s": episode.done_after_s,
        "reason": episode.trial.reason,
        "object_start_in_base_m": episode.shown_object_pose_in_base[0, :3].tolist(),
        "goal_in_base_m": None if episode.goal_in_base_m is None else episode.goal_in_base_m.tolist(),
        "ticks": len(episode.time_s),
        "mean_base_action": None if episode.base_action is None else float(np.abs(episode.base_action).mean()),
        "mean_correction": None if correction is None else float(np.abs(correction).mean()),
        "max_correction": None if correction is None else float(np.abs(correction).max()),
    }


def _share(name: str, scores: Scores, limit: float | None = None) -> Score:
    found = Interval(**scores["success_once"])
    note = f"{counted(scores['episodes'], 'episode')}, seed {scores['seed']}; {_interval(found)}"
    return Score(name, found.mean, limit, "%", above=True, note=note)


def _interval(found: Interval) -> str:
    return f"95 % interval {100 * found.low:.0f} to {100 * found.high:.0f} %"


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
