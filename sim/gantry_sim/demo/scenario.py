"""The interface of a kind of demo, and the one outcome that page, JSON and verdict are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.evaluation.gate import Stage
from gantry_deploy.evaluation.scenario import RolloutConfig, RolloutResult
from gantry_deploy.report import Report, Score
from gantry_sim.demo.measured import Measured
from gantry_sim.demo.rollout import LOOP, MAPPING, ROBOT, Plan, Rollout, Say

REPORT, RESULT, VIDEO = "report.html", "demo.json", "walk.mp4"
"""Files of a demo in its folder, beside those of its rollouts and its training."""
GATE = "gate: "
"""Beginning of the names of scores that the gate's thresholds are about."""
STATISTICS = {"loop": LOOP, "robot": ROBOT, "mapping": MAPPING}
"""Numbers that nodes and loop leave, and their files."""


class TrainingStopped(Exception):  # noqa: N818 - as KeyboardInterrupt, it is no error
    """A training was stopped and saved; ``args`` holds its folder, and what is to be done again or nothing."""


@dataclass(frozen=True)
class DemoConfig:
    """Settings of every demo."""

    output: Path
    """Folder for everything, new or empty."""
    bundle: Path | None = None
    """A finished policy, a bundle or a run folder; None to train one."""
    seed: int = 1
    """Of everything random."""
    ros: bool = True
    """Whether to roll out over ROS 2 where it is installed."""
    episodes: int = 200
    """Held-out episodes that policies are scored on; 0 for none."""
    video: bool = True
    """Whether to film."""
    realtime: bool = True
    """Without ROS 2: follow the clock instead of running as fast as possible."""


@dataclass(frozen=True)
class Display:
    """Callbacks for progress."""

    say: Callable[[str], None] = lambda text: None
    """Takes a line."""
    progress: Callable[[Any], None] = lambda progress: None
    """Takes an iteration, or a row of metrics, of a training."""
    share: Callable[[str], Callable[[float], None]] = lambda title: lambda share: None
    """From the name of a job to what takes its share done."""


@dataclass(frozen=True)
class Step:
    """One part of a demo."""

    name: str
    """Name in the times of the outcome."""
    title: str
    """Line that announces it."""
    run: Callable[[], None]
    """Do it."""


@dataclass
class Policy:
    """The policy of a demo, filled in by the steps that train and score it."""

    path: Path
    """Its bundle."""
    evaluation: Mapping[str, Any] | None = None
    """Scores of held-out episodes as ``gantry eval`` gives them; None without any."""
    evaluation_note: str = "it was left out"
    """Reason for a missing evaluation; empty if there is one."""
    learned: Any = None
    """Scenario's own findings while it was trained; None where a finished policy is shown, or if there are none."""


@dataclass(frozen=True)
class Gate:
    """Verified properties of the bundle, and episodes in a second simulator where a scenario has some."""

    stages: tuple[Stage, ...]
    """In order, the thresholds on the scores last."""
    config: RolloutConfig | None = None
    """Conditions of its episodes; None without episodes."""
    result: RolloutResult | None = None
    """Its episodes."""

    @property
    def passed(self) -> bool:
        """Whether every stage did."""
        return all(stage.passed for stage in self.stages)


@dataclass(frozen=True)
class Recorded:
    """One rollout with everything that was read from its recording."""

    name: str
    """Of its step."""
    folder: Path
    """Folder of its files."""
    rollout: Rollout
    """Its run."""
    note: str = ""
    """Reason for not using ROS 2; empty if it was used."""
    episodes: tuple[Any, ...] = ()
    """Episodes of the scenario's class of :mod:`gantry_sim.demo.measured`, a walk being one; empty if there is nothing
    to read."""
    statistics: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)
    """Numbers of :data:`STATISTICS`; None for those that nothing left."""
    rerun: float | None = None
    """Largest difference of the recorded actions from those of the networks run again."""
    films: Mapping[str, bytes] = field(default_factory=dict)
    """MP4 by file name."""
    film_note: str = ""
    """Reason for missing films; empty if there are some."""
    detail: Any = None
    """Scenario's own findings."""

    @property
    def walk(self) -> Any:
        """The first episode; None if there is nothing to read."""
        return next(iter(self.episodes), None)

    @property
    def real_time(self) -> float | None:
        """Simulated seconds per second of the clock, below 1 on a machine that is too busy; None if unknown."""
        told = self.statistics.get("robot") or {}
        return told["simulated_s"] / told["wall_s"] if told.get("wall_s") else None

    def times_s(self) -> dict[str, NDArray[np.float64]]:
        """Durations in s, (k,) each: ``mapping`` and ``picture_to_map`` of each frame, ``tick``, ``network`` and
        ``period`` of each tick under the policy; those that were not measured are left out."""
        samples = (self.statistics.get("mapping") or {}).get("samples_s", {})
        found = {"mapping": np.array(samples.get("map", ())), "picture_to_map": np.array(samples.get("age", ()))}
        for name, key in (("tick", "busy_s"), ("network", "infer_s"), ("period", "period_s")):
            found[name] = np.concatenate([np.zeros(0), *(getattr(episode, key) for episode in self.episodes)])
        return {name: values for name, values in found.items() if len(values)}

    def timing(self) -> dict[str, dict[str, float]]:
        """Count and percentiles in s of :meth:`times_s`."""
        result = {}
        for name, values in self.times_s().items():
            p50, p99 = np.percentile(values, (50, 99)).tolist()
            result[name] = {"count": len(values), "p50_s": p50, "p99_s": p99, "max_s": float(values.max())}
        return result


@dataclass(frozen=True)
class Outcome:
    """Everything that the report is made of."""

    scenario: Scenario
    """Kind of the demo."""
    config: DemoConfig
    """Settings."""
    policy: Policy
    """Training and scores of the policy."""
    bundle: Bundle
    """The policy as it was rolled out."""
    gate: Gate
    """Checks of the bundle."""
    recorded: tuple[Recorded, ...]
    """Rollouts in order."""
    stage_s: Mapping[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each step."""

    @property
    def trained(self) -> bool:
        """Whether this demo trained the policy."""
        return self.config.bundle is None

    @property
    def task(self) -> str:
        """Task that the policy was trained on; empty if unknown."""
        return self.bundle.contract.provenance.task

    @property
    def where(self) -> str:
        """Over what the rollouts were recorded, in words."""
        return " and ".join(dict.fromkeys(item.rollout.where for item in self.recorded))

    def scores(self) -> list[Score]:
        """Everything that was measured, with what was asked of it."""
        judged = (score for item in self.recorded for score in self.scenario.judge(item, self.bundle))
        return [*self.scenario.held_out(self), *judged]

    def score(self, name: str) -> Score | None:
        """The score of that name, if there is one."""
        return next((score for score in self.scores() if score.name == name), None)

    @property
    def missed(self) -> list[str]:
        """Names of what was missed; a threshold of the gate by the name of its score, if it has one."""
        scores = [score.name for score in self.scores() if score.passed is False]
        if any(name.startswith(GATE) for name in scores):
            return scores
        return [f"check: {stage.name}" for stage in self.gate.stages if not stage.passed] + scores

    @property
    def passed(self) -> bool:
        """Whether nothing that was asked for was missed."""
        return not self.missed

    def result(self) -> dict[str, Any]:
        """The outcome in numbers, for ``--json``."""
        return {
            "passed": self.passed,
            "missed": self.missed,
            "report": str((self.config.output / REPORT).resolve()),
            "bundle": str(self.bundle.path.resolve()),
            "task": self.task,
            "trained": self.trained,
            "provenance": asdict(self.bundle.contract.provenance),
            "scores": [asdict(score) | {"passed": score.passed} for score in self.scores()],
            "learned": self.policy.learned,
            "evaluation": self.policy.evaluation,
            "gate": {"passed": self.gate.passed, "stages": [asdict(stage) for stage in self.gate.stages]},
            "rollouts": [self._rollout(item) for item in self.recorded],
            "stage_s": dict(self.stage_s),
        }

    def _rollout(self, item: Recorded) -> dict[str, Any]:
        return {
            "name": item.name,
            "over_ros": item.rollout.over_ros,
            "note": item.note,
            "completed": item.rollout.completed,
            "trouble": item.rollout.trouble,
            "earlier_attempts": list(item.rollout.earlier),
            "recording": str(item.rollout.recording),
            "ticks": sum(len(episode.time_s) for episode in item.episodes),
            "timing": item.timing(),
            "real_time": item.real_time,
            "rerun_difference": item.rerun,
            "videos": [str((item.folder / name).resolve()) for name in item.films] or item.film_note,
            **{name: value for name, value in item.statistics.items() if name != "mapping"},
            **self.scenario.rollout_result(item),
        }


Section = Callable[[Report, Outcome], None]
"""Adds one part to the page."""


class Scenario(ABC):
    """One kind of demo: how its policy is learned, which rollouts are recorded, how they are judged and shown."""

    gate_episodes: int = 0
    """Episodes of the gate; 0 to verify the bundle without any."""
    dynamics: str = ""
    """File of dynamics that the simulated robot has in the gate and in rollouts; empty for those of its model."""

    @abstractmethod
    def require(self, bundle: Bundle) -> None:
        """Refuse a bundle that this scenario cannot show.

        Raises:
            ContractError: With what it is.
        """

    @abstractmethod
    def learn(self, config: DemoConfig, policy: Policy, display: Display) -> Sequence[Step]:
        """Steps that train a policy, or score a finished one, and note what came of it."""

    @abstractmethod
    def rollouts(self, where: str) -> Mapping[str, str]:
        """Names of the steps that record, and their titles.

        Args:
            where: Over what it is recorded, in words.
        """

    @abstractmethod
    def plan(self, name: str, bundle: Bundle, folder: Path, say: Say) -> Plan:
        """The rollout of a step, in the folder of the demo; ``say`` takes lines for people."""

    @abstractmethod
    def measure(self, name: str, plan: Plan, rollout: Rollout, bundle: Bundle) -> Sequence[Measured]:
        """Read a recording back.

        Raises:
            GantryError: If the policy never ran in it.
        """

    def detail(self, recorded: Recorded, bundle: Bundle) -> Any:
        """Further findings for the page."""
        return None

    @abstractmethod
    def films(self, recorded: Recorded, bundle: Bundle, share: Callable[[float], None]) -> Iterator[tuple[str, bytes]]:
        """File names and MP4.

        Raises:
            GantryError: If this machine cannot draw.
        """

    def held_out(self, outcome: Outcome) -> Sequence[Score]:
        """Scores beside those of the rollouts."""
        return ()

    @abstractmethod
    def judge(self, recorded: Recorded, bundle: Bundle) -> Sequence[Score]:
        """Requirements on a rollout, and what came of it."""

    @abstractmethod
    def headline(self, outcome: Outcome) -> tuple[str, Mapping[str, str], str]:
        """Title of the page, the most important numbers in words, and what was done."""

    @abstractmethod
    def sections(self, outcome: Outcome) -> Sequence[Section]:
        """Parts of the page below the headline, from top to bottom."""

    def rollout_result(self, recorded: Recorded) -> dict[str, Any]:
        """Further numbers of a rollout."""
        return {}
