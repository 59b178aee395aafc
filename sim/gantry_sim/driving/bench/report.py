"""Reports of comparisons of driving, as lines of text and as figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gantry_sim.driving.bench.minibatch import SEEN
from gantry_sim.driving.bench.text import interval_text, table_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = Callable[[dict[str, Any]], str | None]
"""Scores to the text of a cell; None where there is nothing to tell."""
TITLES = {
    "driving_score": "driving score",
    "completion_percent": "completion, %",
    "lateral_rmse_m": "lateral RMSE, m",
}
"""Of the scores that curves show."""


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
    lines += table_lines(_filled([_scores_header(rows), *([row["driver"], *_score_cells(row, rows)] for row in rows)]))
    kinds = _kinds(rows)
    if kinds:
        others = list(dict.fromkeys(name for row in rows for name in row["scores"]["ends_per_km"]))
        head = ["infractions and other ends per km", *(kind.replace("_", " ") for kind in (*kinds, *others)), "km"]
        body = []
        for row in rows:
            scored = row["scores"]
            rates = [scored["per_km"].get(kind, 0.0) for kind in kinds]
            rates += [scored["ends_per_km"].get(name, 0.0) for name in others]
            body.append([row["driver"], *(f"{rate:.3f}" for rate in rates), f"{scored['km']:.1f}"])
        lines += ["", *table_lines([head, *body])]
    trained = [row for row in rows if "runs" in row]
    if trained:
        head = ["training", "minutes", "million decisions", "teacher"]
        body = [
            [
                row["driver"],
                _each(row["train_wall_s"], 60.0),
                _each(row["env_steps"], 1e6),
                ", ".join(dict.fromkeys(teacher or "none" for teacher in row["teachers"])),
            ]
            for row in trained
        ]
        lines += ["", *table_lines([head, *body])]
    return lines + [f"Left out: {reason}." for reason in table["left_out"]]


def _kinds(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(kind for row in rows for kind in row["scores"].get("per_km", {})))


def _more(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Scores with an interval that only some tasks have."""
    known = {key for key, _, _ in STANDARD} | set(UNSHOWN)
    names = (name for row in rows for name, score in row["scores"].items() if isinstance(score, dict))
    return [name for name in dict.fromkeys(names) if name not in known and "mean" in _of(rows, name)]


def _of(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row["scores"][name] for row in rows if name in row["scores"])


def _columns(rows: Sequence[dict[str, Any]]) -> list[tuple[str, Cell]]:
    lanes = any("lateral_nrmse" in row["scores"] for row in rows)
    standard = [
        (title, cell)
        for key, title, cell in STANDARD
        if any(key in row["scores"] for row in rows) and (lanes or key != "lateral_rmse_m")
    ]
    return standard + [(name.replace("_", " "), _interval(name, 1.0, 3)) for name in _more(rows)]


def _scores_header(rows: Sequence[dict[str, Any]]) -> list[str]:
    return ["", *(title for title, _ in _columns(rows))]


def _score_cells(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str | None]:
    return [cell(row["scores"]) for _, cell in _columns(rows)]


def _filled(rows: Sequence[Sequence[str | None]]) -> list[list[str]]:
    return [["-" if cell is None else cell for cell in row] for row in rows]


def _each(values: Sequence[float], unit: float) -> str:
    return " / ".join(f"{value / unit:.2f}" for value in values)


def minibatch_lines(found: dict[str, Any]) -> list[str]:
    """One row a training: how it was made, and how it drives on the held-out maps."""
    settings, runs = found["settings"], found["runs"]
    first = runs[0]
    cells = (("driving score", "driving_score", 1), ("completion, %", "completion_percent", 1))
    columns = [(title, _interval(name, 1.0, digits)) for title, name, digits in cells]
    columns.append(("lateral RMSE, m", _interval("lateral_rmse_m", 1.0, 3)))
    body = [
        [
            run["reward"],
            str(run["size"]),
            str(run["seed"]),
            f"{run['learning_rate']:.2g}",
            f"{run['updates']:,}",
            *(cell(run["scores"]) for _, cell in columns),
            f"{run['train_wall_s'] / 60.0:.1f}",
        ]
        for run in runs
    ]
    head = ["reward", "minibatch", "seed", "rate", "updates", *(title for title, _ in columns), "minutes"]
    return [
        f"{settings['task']}: {first['env_steps']:,} decisions of each, {first['samples_per_update']:,} between "
        f"updates, {first['epochs']} epochs; learning rate at the start, {_scaling(settings['learning_rate'])}",
        f"Scores of {settings['episodes']} held-out episodes by {first['scores']['coefficients']}, with 95 % bootstrap "
        "intervals over episodes.",
        *table_lines(_filled([head, *body])),
    ]


def _scaling(name: str) -> str:
    return {
        "fixed": "the same for all sizes",
        "sqrt": "with the square root of the size",
        "linear": "in proportion to the size",
    }[name]


def curves_figure(found: dict[str, Any]) -> Figure:
    """Looks at all trainings over samples: a column for each reward, a row for each score, a colour for each size."""
    from gantry_deploy.report.figures import styled

    return styled(_draw_curves)(found)


def sizes_figure(found: dict[str, Any]) -> Figure:
    """Held-out scores over the size of minibatches, a panel for each score, a colour for each reward."""
    from gantry_deploy.report.figures import styled

    return styled(_draw_sizes)(found)


def save_png(figure: Figure, path: Path) -> Path:
    """Write a figure, and tell where it is."""
    figure.savefig(path, dpi=150)
    return path


def _draw_curves(found: dict[str, Any]) -> Figure:
    from gantry_deploy.report.figures import legend, panels

    runs, settings = found["runs"], found["settings"]
    rewards, sizes = settings["rewards"], settings["sizes"]
    last = max(run["env_steps"] for run in runs)
    unit, word = (1e6, "million") if last >= 1e6 else (1e3, "thousand")
    fig, axes = panels(len(SEEN) * len(rewards), 1.9, len(rewards), share_x=False)
    for axis, (score, reward) in zip(axes, ((s, r) for s in SEEN for r in rewards), strict=True):
        for size, color in zip(sizes, _shades(len(sizes)), strict=True):
            curves = [run["looks"] for run in runs if (run["reward"], run["size"]) == (reward, size)]
            label: str | None = f"minibatches of {size:,}" if size == sizes[0] else f"{size:,}"
            for looks in curves:
                x = [look["env_steps"] / unit for look in looks]
                axis.plot(x, [look[score] for look in looks], color=color, label=label)
                label = None
        axis.set_title(f"{TITLES[score]}, {reward}")
        axis.locator_params(axis="x", nbins=5)
    for row in range(len(SEEN)):
        _level(axes[row * len(rewards) : (row + 1) * len(rewards)], bounded=SEEN[row] != "lateral_rmse_m")
    for axis in axes[-len(rewards) :]:
        axis.set_xlabel(f"{word} decisions")
    legend(fig, axes[0])
    return fig


def _draw_sizes(found: dict[str, Any]) -> Figure:
    from gantry_deploy.report.figures import legend, panels
    from gantry_deploy.report.svg import BLUE, ORANGE

    runs, sizes = found["runs"], found["settings"]["sizes"]
    fig, axes = panels(len(SEEN), 1.9)
    for axis, score in zip(axes, SEEN, strict=True):
        for reward, color, shift in zip(found["settings"]["rewards"], (BLUE, ORANGE), (0.97, 1.03), strict=False):
            own = [run for run in runs if run["reward"] == reward]
            for run in own:
                value = run["scores"][score]
                bar = [[value["mean"] - value["low"]], [value["high"] - value["mean"]]]
                axis.errorbar(run["size"] * shift, value["mean"], bar, fmt="o", color=color, markersize=3.5, capsize=2)
            means = [np.mean([run["scores"][score]["mean"] for run in own if run["size"] == size]) for size in sizes]
            axis.plot(np.array(sizes) * shift, means, color=color, label=reward)
        axis.set_title(f"{TITLES[score]}, held-out maps")
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.margins(x=0.08)
        _level([axis], bounded=score != "lateral_rmse_m")
    axes[-1].set_xlabel("samples of a minibatch")
    legend(fig, axes[0])
    return fig


def _level(axes: Sequence[Any], *, bounded: bool) -> None:
    """The same heights in all panels of a row; scores from 0 to 100 are shown whole."""
    top = 100.0 if bounded else max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0.0, 1.04 * top)


def _shades(count: int) -> list[Any]:
    """Colours that follow the order of sizes, light to dark."""
    from matplotlib import colormaps

    return [colormaps["viridis_r"](0.12 + 0.88 * i / max(1, count - 1)) for i in range(count)]
