"""Ways to learn the same manipulation task from the same demonstrations, compared over steps and over time.

One dataset, then for every seed a cloned policy, and the other methods from that dataset and that policy. Runs are made
by the ordinary commands, each in a process of its own; what is there already is not done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.evaluation.metrics import rate_interval
from gantry_deploy.report import Report
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.benchmarks.comparison import (
    Curve,
    Figure,
    PlannedRun,
    call_gantry,
    curves_of,
    hold_plan,
    page,
    scored_runs,
    set_words,
    train_and_score,
)
from gantry_sim.benchmarks.text import of_seeds, table_lines

CLONED = "bc"
"""The method that all others build upon or are measured against."""
METHODS = (CLONED, "rlpd", "wsrl", "resfit")
"""Methods that can be compared."""
DEMOS_FOLDER = "demos"
REACHED = (0.9, 0.95)
"""Shares of success whose first time is noted."""
COLUMNS = ("success", "each seed", "steps to success", "steps, k", "minutes", *(f"{x:.0%} after" for x in REACHED))
"""Header of the table beside the name of the method."""
AXES = (
    ("Success over steps", "thousand environment steps", "env_steps", 1e3),
    ("Success over time", "minutes to learn", "wall_s", 60.0),
)
"""Title, label, column and unit of the curves of a page."""


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


def planned(cfg: BenchCfg, output: Path) -> list[PlannedRun]:
    """All runs, seed by seed; the cloned policies are always among them, since others need them."""
    methods = [CLONED, *(name for name in cfg.methods if name != CLONED)]
    length = ("--steps", str(cfg.steps)) if cfg.steps else ("--minutes", str(cfg.minutes))
    runs = []
    for seed in cfg.seeds:
        for name in methods:
            words = (cfg.task, "--preset", name, "--demos", str(output / DEMOS_FOLDER))
            words += ("--base", str(output / f"{CLONED}-s{seed}")) if name == "resfit" else ()
            words += ("--steps", str(cfg.updates)) if name == CLONED else length
            runs.append(PlannedRun(name, seed, output / f"{name}-s{seed}", (*words, *set_words(cfg.changes))))
    return runs


def run_bench(cfg: BenchCfg, output: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Record, train and score what is missing.

    Args:
        cfg: What is compared.
        output: Folder of everything.
        say: Called with a line before each step.

    Returns:
        See :func:`collect_results`.

    Raises:
        GantryError: If a step fails; what was done is kept.
        KeyboardInterrupt: If one was interrupted.
    """
    hold_plan(cfg, output)
    demos, told = output / DEMOS_FOLDER, output / "demos.json"
    if not told.is_file():
        say("demonstrations")
        expert = ("--episodes", str(cfg.demos), "--suboptimality", str(cfg.suboptimality))
        expert += ("--successes-only",) if cfg.only_successes else ()
        words = ("collect", cfg.task, *expert, "--output", str(demos), *set_words(cfg.changes))
        call_gantry((*words, "--json", str(told)))
    train_and_score(planned(cfg, output), ("--episodes", str(cfg.episodes)), say)
    return collect_results(cfg, output)


def collect_results(cfg: BenchCfg, output: Path) -> dict[str, Any]:
    """Results of the runs that are scored: ``methods``, by name.

    Each has ``success`` pooled over seeds with its 95 % interval, ``by_seed``, and per seed ``steps_to_success``,
    ``env_steps``, ``train_wall_s``, sizes of actions, and when a look first showed 90 % and 95 %, in steps and seconds.
    """
    methods: dict[str, Any] = {}
    for run, trained, scored in scored_runs(planned(cfg, output)):
        if run.variant not in cfg.methods:
            continue
        entry = methods.setdefault(run.variant, {"seeds": [], "hits": 0, "trials": 0})
        scores = scored["training_model"]
        share, episodes = scores["success_once"]["mean"], scores["episodes"]
        entry["seeds"].append(run.seed)
        entry["hits"] += round(share * episodes)
        entry["trials"] += episodes
        values = {name: scores.get(name) for name in ("steps_to_success", "mean_base_action", "mean_residual")}
        values |= {"by_seed": share, "env_steps": trained["env_steps"], "train_wall_s": trained["train_wall_s"]}
        looks = next(iter(curves_of([run], "eval").values()), [[]])[0]
        for level in REACHED:
            first = next((look for look in looks if look["success_once"]["mean"] >= level), {})
            name = f"reached_{round(100 * level)}"
            values |= {f"{name}_steps": first.get("env_steps"), f"{name}_s": first.get("wall_s")}
        for name, value in values.items():
            entry.setdefault(name, []).append(value)
    for entry in methods.values():
        score = rate_interval(entry.pop("hits"), entry["trials"])
        entry["success"] = {"mean": score.mean, "low": score.low, "high": score.high}
    return {**vars(cfg), "methods": methods}


def bench_rows(found: dict[str, Any]) -> list[list[str]]:
    """One row per method, of texts: its name, then :data:`COLUMNS`."""
    return [["", *COLUMNS], *([name, *_cells(entry)] for name, entry in found["methods"].items())]


def bench_lines(found: dict[str, Any]) -> list[str]:
    """Findings of a comparison as lines of text."""
    return table_lines(bench_rows(found))


def _cells(entry: dict[str, Any]) -> list[str]:
    success = entry["success"]
    cells = [
        f"{100 * success['mean']:.1f} % [{100 * success['low']:.1f}, {100 * success['high']:.1f}]",
        of_seeds(entry["by_seed"], 0.01, 1),
        of_seeds(entry["steps_to_success"], 1.0, 1),
        of_seeds(entry["env_steps"], 1e3),
        of_seeds(entry["train_wall_s"], 60.0, 1),
    ]
    for level in REACHED:
        name = f"reached_{round(100 * level)}"
        pairs = zip(entry[f"{name}_steps"], entry[f"{name}_s"], strict=True)
        cells.append("/".join("-" if steps is None else f"{steps / 1e3:.0f}k {s / 60:.0f}min" for steps, s in pairs))
    return cells


def _success(looks: Sequence[dict[str, Any]], axis: str, unit: float) -> Curve:
    """Share of success over a column of the looks of a training, in units of ``unit``."""
    return np.array([look[axis] / unit for look in looks]), np.array([look["success_once"]["mean"] for look in looks])


def bench_page(cfg: BenchCfg, output: Path, found: dict[str, Any]) -> Report:
    """Table and curves of success over steps and over time; a cloned policy has none."""
    curves = curves_of([run for run in planned(cfg, output) if run.variant != CLONED], "eval")
    figures = []
    for title, label, axis, unit in AXES if curves else ():
        series = {name: [_success(looks, axis, unit) for looks in seeds] for name, seeds in curves.items()}
        figures.append(Figure(title, f"{title}: looks at every seed.", label, {"share of success": series}))
    return page(
        f"{cfg.task}: {', '.join(cfg.methods)} compared",
        f"{cfg.demos} demonstrations of suboptimality {cfg.suboptimality:g}; seeds {', '.join(map(str, cfg.seeds))}",
        bench_rows(found),
        f"Success in {cfg.episodes} held-out episodes a seed with 95 % interval, then per seed; looks of a training.",
        figures,
    )
