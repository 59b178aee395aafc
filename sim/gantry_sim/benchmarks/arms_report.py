"""Findings of a comparison of ways to learn a manipulation task, as lines of text and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.report import Report
from gantry_sim.benchmarks.arms import REACHED, BenchCfg, Curve, curves_of

COLUMNS = ("success", "each seed", "steps to success", "steps, k", "minutes", *(f"{x:.0%} after" for x in REACHED))


def bench_rows(found: dict[str, Any]) -> list[list[str]]:
    """One row per method, of texts: its name, then :data:`COLUMNS`."""
    return [[name, *_cells(entry)] for name, entry in found["methods"].items()]


def bench_lines(found: dict[str, Any]) -> list[str]:
    """The same as a table of text."""
    rows = [["", *COLUMNS], *bench_rows(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(entry: dict[str, Any]) -> list[str]:
    success = entry["success"]
    cells = [
        f"{100 * success['mean']:.1f} % [{100 * success['low']:.1f}, {100 * success['high']:.1f}]",
        "/".join(f"{100 * share:.1f}" for share in entry["by_seed"]),
        _each(entry["steps_to_success"], 1.0, 1),
        _each(entry["env_steps"], 1e3, 0),
        _each(entry["train_wall_s"], 60.0, 1),
    ]
    for level in REACHED:
        name = f"reached_{round(100 * level)}"
        pairs = zip(entry[f"{name}_steps"], entry[f"{name}_s"], strict=True)
        cells.append("/".join("-" if steps is None else f"{steps / 1e3:.0f}k {s / 60:.0f}min" for steps, s in pairs))
    return cells


def _each(values: list[float | None], unit: float, digits: int) -> str:
    return "/".join("-" if value is None else f"{value / unit:.{digits}f}" for value in values)


def bench_page(cfg: BenchCfg, output: Path, found: dict[str, Any]) -> Report:
    """Table and curves."""
    report = Report(
        f"{cfg.task}: {', '.join(cfg.methods)} compared",
        f"{cfg.demos} demonstrations of suboptimality {cfg.suboptimality:g}; seeds {', '.join(map(str, cfg.seeds))}",
    )
    report.section("Scores")
    note = f"Success in {cfg.episodes} held-out episodes a seed with 95 % interval, then per seed; looks of a training."
    report.table(bench_rows(found), ("", *COLUMNS), note)
    curves = curves_of(cfg, output)
    for title, label, axis, unit in (
        ("Success over steps", "thousand environment steps", "env_steps", 1e3),
        ("Success over time", "minutes to learn", "wall_s", 60.0),
    ):
        if curves:
            report.section(title)
            report.figure(_figure(curves, label, axis, unit), f"{title}: looks at every seed.")
    return report


def _figure(curves: dict[str, list[Curve]], label: str, axis: str, unit: float) -> Any:
    from gantry_deploy.report.figures import compared_curves

    series = {
        "share of success": {
            name: [(np.array(getattr(curve, axis)) / unit, np.array(curve.success)) for curve in seeds]
            for name, seeds in curves.items()
        }
    }
    return compared_curves(series, progress_label=label)
