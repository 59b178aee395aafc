"""Ways to learn the same manipulation task from the same demonstrations, compared over steps and over time.

One dataset, then for every seed a cloned policy, and the other methods from that dataset and that policy. Runs are made
by the ordinary commands, each in a process of its own; what is there already is not done again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.evaluation.metrics import rate_interval
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_policies.off_policy.trainer import CHECKPOINTS
from gantry_sim.benchmarks.sweep import SCORED, TRAINED, call_gantry, hold_plan
from gantry_sim.training.run_validation import read_run_file

CLONED = "bc"
"""The method that all others build upon or are measured against."""
METHODS = (CLONED, "rlpd", "wsrl", "resfit")
"""Methods that can be compared."""
DEMOS_FOLDER = "demos"
REACHED = (0.9, 0.95)
"""Shares of success whose first time is noted."""


@dataclass(frozen=True)
class Recipe:
    """Demonstrations and cloning that leave something to be learned."""

    demos: int
    """Episodes."""
    suboptimality: float
    """Of the expert."""
    updates: int = 1_500
    """Of the cloned policy."""
    only_successes: bool = False
    """Whether failed demonstrations are left out."""


RECIPES = {
    "yam-lift": Recipe(20, 0.3),
    "yam-push": Recipe(50, 0.2),
    "yam-pick-place": Recipe(40, 0.3),
    "yam-insert": Recipe(400, 0.2, updates=12_000, only_successes=True),
}
"""Measured: the cloned policies succeed in 40 % to 80 % of episodes."""


@dataclass(frozen=True)
class BenchCfg:
    """Settings of a comparison."""

    task: str
    """Task name."""
    seeds: tuple[int, ...]
    """Seeds of every method."""
    methods: tuple[str, ...] = (CLONED, "rlpd", "resfit")
    """Names of :data:`METHODS`."""
    minutes: float = 60.0
    """Time to learn of each run that tries things out, without evaluations; of no effect with ``steps``."""
    demos: int = 20
    """Episodes of demonstrations."""
    suboptimality: float = 0.3
    """Of the expert that demonstrates."""
    updates: int = 1_500
    """Of the cloned policies."""
    only_successes: bool = False
    """Whether failed demonstrations are left out."""
    changes: tuple[str, ...] = ()
    """``--set`` of all runs, for example ``env.object_noise_m=0.005``."""
    episodes: int = 200
    """Episodes of the evaluation of each run."""
    steps: int = 0
    """Environment steps of each run that tries things out, the same on a busy machine; 0 for ``minutes``."""

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise GantryError(f"The seeds are {list(self.seeds)}, expected one or more, each once.")
        for name in self.methods:
            if name not in METHODS:
                raise UnknownNameError("method", name, METHODS)
        if not self.minutes > 0:
            raise GantryError(f"There are {self.minutes} minutes to learn, expected more than 0.")


@dataclass(frozen=True)
class PlannedRun:
    """One run."""

    method: str
    """Its preset."""
    seed: int
    """Its seed."""
    folder: Path
    """Its run folder."""


def planned(cfg: BenchCfg, output: Path) -> list[PlannedRun]:
    """All runs, seed by seed; the cloned policies are always among them, since others need them."""
    methods = [CLONED, *(name for name in cfg.methods if name != CLONED)]
    return [PlannedRun(name, seed, output / f"{name}-s{seed}") for seed in cfg.seeds for name in methods]


def run_bench(cfg: BenchCfg, output: Path, say: Callable[[str], None] = print) -> None:
    """Record, train and score what is missing.

    Args:
        cfg: What is compared.
        output: Folder of everything.
        say: Called with a line before each step.

    Raises:
        GantryError: If a step fails; what was done is kept.
        KeyboardInterrupt: If one was interrupted.
    """
    hold_plan(cfg, output)
    demos, told = output / DEMOS_FOLDER, output / "demos.json"
    sets = tuple(itertools.chain.from_iterable(("--set", change) for change in cfg.changes))
    if not told.is_file():
        say("demonstrations")
        expert = ("--episodes", str(cfg.demos), "--suboptimality", str(cfg.suboptimality))
        expert += ("--successes-only",) if cfg.only_successes else ()
        call_gantry(("collect", cfg.task, *expert, "--output", str(demos), *sets, "--json", str(told)))
    runs = planned(cfg, output)
    for number, run in enumerate(runs, start=1):
        title = f"[{number}/{len(runs)}] {run.method}, seed {run.seed}"
        if not (run.folder / TRAINED).is_file():
            say(f"{title}: training")
            call_gantry(_train_words(cfg, run, output, sets))
        if not (run.folder / SCORED).is_file():
            say(f"{title}: scoring")
            words = ("eval", str(run.folder), "--episodes", str(cfg.episodes))
            call_gantry((*words, "--json", str(run.folder / SCORED)))


def _train_words(cfg: BenchCfg, run: PlannedRun, output: Path, sets: Sequence[str]) -> tuple[str, ...]:
    told = str(run.folder.parent / f".{run.folder.name}.json")
    rest = ("--no-export", "--episodes", "0", "--json", told)
    if (run.folder / CHECKPOINTS).is_dir():
        return ("train", "--resume", str(run.folder), *rest)
    words = ("train", cfg.task, "--preset", run.method, "--seed", str(run.seed), "--run-dir", str(run.folder))
    words += ("--demos", str(output / DEMOS_FOLDER))
    if run.method == "resfit":
        words += ("--base", str(output / f"{CLONED}-s{run.seed}"))
    if run.method == CLONED:
        words += ("--steps", str(cfg.updates))
    else:
        words += ("--steps", str(cfg.steps)) if cfg.steps else ("--minutes", str(cfg.minutes))
    return (*words, *sets, *rest)


@dataclass(frozen=True)
class Curve:
    """Evaluations during a training; k looks."""

    env_steps: list[float]
    """Shape (k,), environment steps."""
    wall_s: list[float]
    """Shape (k,), time to learn so far, without evaluations."""
    success: list[float]
    """Shape (k,), share of the episodes looked at."""


def read_curve(folder: Path) -> Curve:
    """The looks of a training at itself."""
    rows = [row for row in read_metrics(folder / METRICS_FILE) if row["kind"] == "eval" and "env_steps" in row]
    return Curve(
        [row["env_steps"] for row in rows],
        [row["wall_s"] for row in rows],
        [row["success_once"]["mean"] for row in rows],
    )


def collect_results(cfg: BenchCfg, output: Path) -> dict[str, Any]:
    """Results of the runs that are scored: ``methods``, by name.

    Each has ``success`` pooled over seeds with its 95 % interval, ``by_seed``, and per seed ``steps_to_success``,
    ``env_steps``, ``train_wall_s``, sizes of actions, and when a look first showed 90 % and 95 %, in steps and seconds.
    """
    methods: dict[str, Any] = {}
    for run in planned(cfg, output):
        if run.method not in cfg.methods or not (run.folder / SCORED).is_file():
            continue
        scored, trained = (read_run_file(run.folder / name) for name in (SCORED, TRAINED))
        entry = methods.setdefault(run.method, {"seeds": [], "hits": 0, "trials": 0})
        share, episodes = scored["success_once"]["mean"], scored["episodes"]
        entry["seeds"].append(run.seed)
        entry["hits"] += round(share * episodes)
        entry["trials"] += episodes
        values = {name: scored.get(name) for name in ("steps_to_success", "mean_base_action", "mean_residual")}
        values |= {"by_seed": share, "env_steps": trained["env_steps"], "train_wall_s": trained["train_wall_s"]}
        curve = read_curve(run.folder)
        for level in REACHED:
            first = next((i for i, value in enumerate(curve.success) if value >= level), None)
            name = f"reached_{round(100 * level)}"
            values[f"{name}_steps"] = None if first is None else curve.env_steps[first]
            values[f"{name}_s"] = None if first is None else curve.wall_s[first]
        for name, value in values.items():
            entry.setdefault(name, []).append(value)
    for entry in methods.values():
        score = rate_interval(entry.pop("hits"), entry["trials"])
        entry["success"] = {"mean": score.mean, "low": score.low, "high": score.high}
    return {**vars(cfg), "methods": methods}


def curves_of(cfg: BenchCfg, output: Path) -> dict[str, list[Curve]]:
    """Method -> what its runs saw of themselves."""
    found: dict[str, list[Curve]] = {}
    for run in planned(cfg, output):
        if run.method != CLONED and (run.folder / METRICS_FILE).is_file():
            curve = read_curve(run.folder)
            if curve.success:
                found.setdefault(run.method, []).append(curve)
    return found
