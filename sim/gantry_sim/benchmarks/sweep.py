"""The same task trained several ways on the same samples: one run per variant and seed, scored by one suite."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.evaluation.metrics import rate_interval
from gantry_deploy.report import Report
from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import require_one_process
from gantry_sim.benchmarks.comparison import (
    Curve,
    Figure,
    PlannedRun,
    curves_of,
    hold_plan,
    page,
    scored_runs,
    set_words,
    train_and_score,
)
from gantry_sim.benchmarks.ray_runs import RayCfg, train_and_score_on_ray
from gantry_sim.benchmarks.text import of_seeds, table_lines
from gantry_sim.training.run_folder import require_seeds

DRAWN = {
    "success": "Running success in training, on the levels reached",
    "level_": "Level of the terrain reached",
    "lin_vel_error": "Velocity error in training",
    "reward_per_s": "Reward per second",
}
"""Columns of the learning curves that a page draws, by how they begin."""
BINS = 60
"""Points of a drawn curve."""


@dataclass(frozen=True)
class SweepCfg:
    """Settings of a comparison."""

    task: str
    """Task name."""
    vary: tuple[tuple[str, tuple[str, ...]], ...]
    """Fields and the values that each takes, every combination a variant."""
    seeds: tuple[int, ...]
    """Seeds of every variant."""
    changes: tuple[str, ...] = ()
    """``--set`` of all runs."""
    suite: str = ""
    """Suite of the task that scores; empty for its ordinary evaluation."""
    episodes: int = 200
    """Episodes of the evaluation, of each part of a suite."""
    teacher: str = ""
    """Run folder of the teacher, for tasks that need one."""

    def __post_init__(self) -> None:
        require_seeds(self.seeds)
        if not all(values for _, values in self.vary):
            raise GantryError("A field that varies has no values; expected FIELD=VALUE,VALUE.")


def variants(cfg: SweepCfg) -> dict[str, tuple[str, ...]]:
    """Name of each variant -> ``--set`` of its runs."""
    fields = [field for field, _ in cfg.vary]
    found = {}
    for values in itertools.product(*(values for _, values in cfg.vary)):
        changes = (f"{field}={value}" for field, value in zip(fields, values, strict=True))
        found[", ".join(values) or "default"] = (*cfg.changes, *changes)
    return found


def planned_runs(cfg: SweepCfg, output: Path) -> list[PlannedRun]:
    """All runs, seed by seed, so that an unfinished sweep has compared every variant as often as any other."""
    teacher = ("--teacher", cfg.teacher) if cfg.teacher else ()
    runs = []
    for seed, (name, changes) in itertools.product(cfg.seeds, variants(cfg).items()):
        folder = output / f"{name.replace(', ', '-').replace('/', '_')}-s{seed}"
        runs.append(PlannedRun(name, seed, folder, (cfg.task, *teacher, *set_words(changes))))
    return runs


def run_sweep(
    cfg: SweepCfg, output: Path, say: Callable[[str], None] = print, ray: RayCfg | None = None
) -> dict[str, Any]:
    """Train and score what is missing.

    Args:
        cfg: What is compared.
        output: Folder of all runs.
        say: Called with a line before each step.
        ray: Side by side on Ray; None for one after the other.

    Returns:
        See :func:`collect`.

    Raises:
        GantryError: If a run fails; what was done is kept.
        KeyboardInterrupt: If a run was interrupted.
    """
    require_one_process()
    hold_plan(cfg, output)
    suite = ("--suite", cfg.suite) if cfg.suite else ()
    runs, score = planned_runs(cfg, output.resolve()), ("--episodes", str(cfg.episodes), *suite)
    if ray is None:
        train_and_score(runs, score, say)
    else:
        train_and_score_on_ray(runs, score, ray, say)
    return collect(cfg, output)


def collect(cfg: SweepCfg, output: Path) -> dict[str, Any]:
    """Results of the runs that are scored, pooled over seeds: ``variants``, by name.

    Each has ``seeds``, ``env_steps``, ``train_wall_s`` (per seed), and ``scores``: by label the mean over seeds, each
    seed's own, and for shares of episodes the 95 % interval over all of them. A variant that no run has scored is left
    out.
    """
    found: dict[str, Any] = {}
    for run, trained, scored in scored_runs(planned_runs(cfg, output)):
        entry = found.setdefault(run.variant, {"seeds": [], "env_steps": [], "train_wall_s": [], "scores": {}})
        entry["seeds"].append(run.seed)
        for name in ("env_steps", "train_wall_s"):
            entry[name].append(trained[name])
        for label, score in scores_of(scored).items():
            entry["scores"].setdefault(label, []).append(score)
    for entry in found.values():
        entry["scores"] = {label: _pooled(pairs) for label, pairs in entry["scores"].items()}
    return {**cfg.__dict__, "variants": found}


def scores_of(scored: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """An evaluation's numbers by label, each with the number of episodes that it is a share of, 0 for other numbers.

    Of goals the success of every part, and by group of training terrain or by held-out terrain, such as
    ``easier_half sparse``; of velocities every score of both models.
    """
    found: dict[str, tuple[float, int]] = {}
    for part, scores in scored.items():
        if not isinstance(scores, dict):
            continue
        if "success_rate" in scores:
            inner = "kind" if part == "held_out" else "group"
            parts = {part: scores} | {f"{part} {name}": value for name, value in scores.get(inner, {}).items()}
            found.update({name: (item["success_rate"]["mean"], item["episodes"]) for name, item in parts.items()})
        else:
            means = {
                name: score["mean"] for name, score in scores.items() if isinstance(score, dict) and "mean" in score
            }
            found.update({f"{part} {name}": (mean, 0) for name, mean in means.items()})
    return found


def _pooled(pairs: Sequence[tuple[float, int]]) -> dict[str, Any]:
    each = [value for value, _ in pairs]
    trials = sum(episodes for _, episodes in pairs)
    if not trials:
        return {"mean": sum(each) / len(each), "by_seed": each}
    score = rate_interval(round(sum(rate * episodes for rate, episodes in pairs)), trials)
    return {"mean": score.mean, "low": score.low, "high": score.high, "trials": trials, "by_seed": each}


def sweep_rows(found: dict[str, Any]) -> list[list[str]]:
    """One row per score, one column per variant: mean, interval of a share, and each seed's own."""
    each = found["variants"]
    labels = list(dict.fromkeys(label for entry in each.values() for label in entry["scores"]))
    rows = [
        ["", *each],
        *([label, *(_cell(entry["scores"].get(label)) for entry in each.values())] for label in labels),
    ]
    rows.append(["million steps", *(of_seeds(entry["env_steps"], 1e6, 2) for entry in each.values())])
    rows.append(["training time, s", *(of_seeds(entry["train_wall_s"]) for entry in each.values())])
    return rows


def _cell(score: dict[str, Any] | None) -> str:
    if score is None:
        return "-"
    if "trials" not in score:
        return f"{score['mean']:.3f} ({of_seeds(score['by_seed'], 1.0, 3)})"
    interval = f"{100 * score['mean']:.0f} % [{100 * score['low']:.0f}, {100 * score['high']:.0f}]"
    return f"{interval} ({of_seeds(score['by_seed'], 0.01)})"


def sweep_lines(found: dict[str, Any]) -> list[str]:
    """Findings of a sweep as lines of text."""
    return table_lines(sweep_rows(found))


def sweep_page(cfg: SweepCfg, output: Path, found: dict[str, Any]) -> Report:
    """Table and learning curves of a sweep."""
    varied = ", ".join(field for field, _ in cfg.vary) or "nothing"
    curves = curves_of(planned_runs(cfg, output), "train")
    names = list(dict.fromkeys(name for seeds in curves.values() for rows in seeds for row in rows for name in row))
    figures = []
    for prefix, text in DRAWN.items():
        if columns := [name for name in names if name.startswith(prefix)]:
            caption = f"{text} over samples: mean over seeds, each seed faint."
            series = {
                column: {
                    variant: [_thinned(rows, column) for rows in seeds if any(column in row for row in rows)]
                    for variant, seeds in curves.items()
                }
                for column in columns
            }
            figures.append(Figure(text, caption, "million control steps", series))
    title, seeds = f"{cfg.task}: {varied} compared", f"Seeds {', '.join(map(str, cfg.seeds))}"
    note = "Mean over seeds, 95 % interval of shares of episodes (each seed)."
    report = page(title, seeds, sweep_rows(found), note, figures)
    changes = " ".join(f"--set {change}" for change in cfg.changes)
    report.text(f"Training: `{cfg.task}` {changes}; suite `{cfg.suite or 'none'}`, {cfg.episodes} episodes a part.")
    return report


def _thinned(rows: Sequence[dict[str, Any]], column: str) -> Curve:
    """Means of a learning curve over equal stretches of samples: (x in millions, y)."""
    told = [row for row in rows if row.get(column) is not None]
    steps, values = (np.array([row[name] for row in told], dtype=float) for name in ("env_steps", column))
    parts = np.array_split(np.arange(len(told)), min(BINS, len(told)))
    return np.array([steps[part].mean() / 1e6 for part in parts]), np.array([values[part].mean() for part in parts])
