"""Findings of a sweep, as lines of text and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gantry_deploy.report import Report
from gantry_sim.benchmarks.sweep import SweepCfg, planned_runs, read_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = {
    "success": "Running success in training, on the levels reached",
    "level_": "Level of the terrain reached",
    "lin_vel_error": "Velocity error in training",
    "reward_per_s": "Reward per second",
}
"""Columns of the learning curves that a page draws, by how they begin."""
BINS = 60
"""Points of a drawn curve."""


def sweep_lines(found: dict[str, Any]) -> list[str]:
    """One row per score, one column per variant: mean, interval of a share, and each seed's own."""
    variants = found["variants"]
    labels = list(dict.fromkeys(label for entry in variants.values() for label in entry["scores"]))
    lines = [f"{'':<28}" + "".join(f"{name:>30}" for name in variants)]
    for label in labels:
        lines.append(
            f"{label:<28}" + "".join(f"{_cell(entry['scores'].get(label)):>30}" for entry in variants.values())
        )
    steps = (" ".join(f"{count / 1e6:.2f}" for count in entry["env_steps"]) for entry in variants.values())
    lines.append(f"{'million steps':<28}" + "".join(f"{text:>30}" for text in steps))
    walls = (" ".join(f"{wall:.0f}" for wall in entry["train_wall_s"]) for entry in variants.values())
    lines.append(f"{'training time, s':<28}" + "".join(f"{text:>30}" for text in walls))
    return lines


def _cell(score: dict[str, Any] | None) -> str:
    if score is None:
        return "-"
    if "trials" not in score:
        return f"{score['mean']:.3f} ({'/'.join(f'{value:.3f}' for value in score['by_seed'])})"
    seeds = "/".join(f"{100 * rate:.0f}" for rate in score["by_seed"])
    return f"{100 * score['mean']:.0f} % [{100 * score['low']:.0f}, {100 * score['high']:.0f}] ({seeds})"


def sweep_page(cfg: SweepCfg, output: Path, found: dict[str, Any]) -> Report:
    """Table and learning curves of a sweep."""
    variants = found["variants"]
    varied = ", ".join(field for field, _ in cfg.vary) or "nothing"
    report = Report(f"{cfg.task}: {varied} compared", f"Seeds {', '.join(map(str, cfg.seeds))}")
    report.section("Scores")
    labels = list(dict.fromkeys(label for entry in variants.values() for label in entry["scores"]))
    rows = [[label, *(_cell(entry["scores"].get(label)) for entry in variants.values())] for label in labels]
    report.table(rows, ("", *variants), "Mean over seeds, 95 % interval of shares of episodes (each seed).")
    curves = curves_of(cfg, output)
    for prefix, text in DRAWN.items():
        if columns := _columns(curves, prefix):
            report.section(text)
            report.figure(curve_figure(curves, columns), f"{text} over samples: mean over seeds, each seed faint.")
    changes = " ".join(f"--set {change}" for change in cfg.changes)
    report.text(f"Training: `{cfg.task}` {changes}; suite `{cfg.suite or 'none'}`, {cfg.episodes} episodes a part.")
    return report


Curves = dict[str, list[dict[str, list[float]]]]


def curves_of(cfg: SweepCfg, output: Path) -> Curves:
    """Variant -> learning curves of its seeds."""
    curves: Curves = {}
    for run in planned_runs(cfg, output):
        if (run.folder / "curve.csv").is_file():
            curves.setdefault(run.variant, []).append(read_curve(run.folder))
    return curves


def _columns(curves: Curves, prefix: str) -> list[str]:
    names = (name for seeds in curves.values() for curve in seeds for name in curve if name.startswith(prefix))
    return list(dict.fromkeys(names))


def curve_figure(curves: Curves, columns: Sequence[str]) -> Figure:
    """One panel per column of the learning curves, one colour per variant."""
    from gantry_deploy.report.figures import compared_curves

    series: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
    for column in columns:
        series[column] = {
            variant: [_thinned(curve, column) for curve in seeds if column in curve]
            for variant, seeds in curves.items()
        }
    return compared_curves(series, progress_label="million control steps")


def _thinned(curve: dict[str, list[float]], column: str) -> tuple[np.ndarray, np.ndarray]:
    """Means of a curve over equal stretches of samples: (x in millions, y)."""
    steps, values = np.array(curve["env_steps"]) / 1e6, np.array(curve[column])
    parts = np.array_split(np.arange(len(steps)), min(BINS, len(steps)))
    return np.array([steps[part].mean() for part in parts]), np.array([np.nanmean(values[part]) for part in parts])
