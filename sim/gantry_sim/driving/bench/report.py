"""Table of drivers on the same held-out maps, as lines of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gantry_sim.benchmarks.text import interval_text, of_seeds, table_lines

Cell = Callable[[dict[str, Any]], str | None]
"""Scores to the text of a cell; None where there is nothing to tell."""


def _interval(name: str, unit: float = 1.0, digits: int = 1) -> Cell:
    return lambda scores: interval_text(scores[name], unit, digits) if scores.get(name) is not None else None


def _plain(name: str, digits: int, unit: float = 1.0) -> Cell:
    return lambda scores: f"{unit * scores[name]:.{digits}f}" if scores.get(name) is not None else None


STANDARD: tuple[tuple[str, str, Cell], ...] = (
    ("driving_score", "driving score", _interval("driving_score")),
    ("completion_percent", "completion, %", _interval("completion_percent")),
    ("finished", "finished, %", _interval("finished", 100.0)),
    ("collided", "collided, %", _interval("collided", 100.0)),
    ("lateral_rmse_m", "lateral RMSE, m", _interval("lateral_rmse_m", 1.0, 3)),
    ("lateral_nrmse", "nRMSE", _plain("lateral_nrmse", 4)),
    ("position_error_m", "median position error, m", _plain("position_error_m", 2)),
    ("heading_error_rad", "median heading error, deg", _plain("heading_error_rad", 1, 180.0 / math.pi)),
    ("discomfort", "discomfort, % of time", _interval("discomfort", 100.0)),
    ("mean_speed_m_s", "m/s", _plain("mean_speed_m_s", 1)),
)
"""Key of a score, title of its column, and its cells."""
UNSHOWN = ("infraction_score",)
"""Scores that a table leaves to the JSON."""


def table_text(name: str, table: dict[str, Any], episodes: int, model: str, seed: int) -> list[str]:
    """A task's table: a row for each driver, two groups of columns, and what was left out."""
    rows = table["rows"]
    versions = sorted({row["scores"]["coefficients"] for row in rows if "coefficients" in row["scores"]})
    lines = [
        f"{name}: {episodes} held-out episodes of each driver, {model} model, seed {seed}; the same maps, starts and "
        "cars for all",
        f"Mean and 95 % interval over episodes, not over seeds: bootstrap, Wilson's for shares. Driving score by the "
        f"coefficients {', '.join(versions) or '-'}, on our own routes: not comparable to CARLA's.",
    ]
    tables = (score_rows(rows), infraction_rows(rows), _training_rows([row for row in rows if "runs" in row]))
    blocks = [table_lines(cells) for cells in tables if len(cells) > 1]
    lines += [line for number, block in enumerate(blocks) for line in ([""] if number else []) + block]
    return lines + [f"Left out: {reason}." for reason in table["left_out"]]


def score_rows(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Table of scores: the header, and a row for each of ``driver`` and ``scores``; ``-`` where there is none."""
    scored = [row["scores"] for row in rows]
    lanes = any("lateral_nrmse" in scores for scores in scored)
    columns = [
        (title, cell)
        for key, title, cell in STANDARD
        if any(key in scores for scores in scored) and (lanes or key != "lateral_rmse_m")
    ]
    # Scores with an interval that only some tasks have.
    known = {key for key, _, _ in STANDARD} | set(UNSHOWN)
    means = (name for scores in scored for name, score in scores.items() if isinstance(score, dict) and "mean" in score)
    columns += [(n.replace("_", " "), _interval(n, 1.0, 3)) for n in dict.fromkeys(means) if n not in known]
    body = [[row["driver"], *(cell(row["scores"]) or "-" for _, cell in columns)] for row in rows]
    return [["", *(title for title, _ in columns)], *body]


def infraction_rows(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Table of infractions and other ends for each kilometre; empty where no infraction is possible."""
    columns = {
        (part, kind): kind.replace("_", " ")
        for part in ("per_km", "ends_per_km")
        for row in rows
        for kind in row["scores"].get(part, {})
    }
    if not any(part == "per_km" for part, _ in columns):
        return []
    body = []
    for row in rows:
        scores = row["scores"]
        rates = (f"{scores[part].get(kind, 0.0):.3f}" for part, kind in columns)
        body.append([row["driver"], *rates, f"{scores['km']:.1f}"])
    return [["infractions and other ends per km", *columns.values(), "km"], *body]


def _training_rows(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    body = [
        [
            row["driver"],
            of_seeds(row["train_wall_s"], 60.0, 2),
            of_seeds(row["env_steps"], 1e6, 2),
            ", ".join(dict.fromkeys(teacher or "none" for teacher in row["teachers"])),
        ]
        for row in rows
    ]
    return [["training", "minutes", "million decisions", "teacher"], *body]
