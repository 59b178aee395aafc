"""Tables and page of ``gantry bench teaching``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from gantry_deploy.report import Report

REACHED = 0.9
"""Share of held-out successes whose first time, and person-seconds until then, are told."""
PANELS = {
    "held-out success": "success",
    "share of steps by the person": "intervention_rate",
    "person-seconds": "person_s",
}
"""Title of each panel and what it shows."""
REFERENCE = "hil-serl"
"""Method whose person-seconds the others' are compared with."""

Found = dict[str, Any]
"""A comparison on one task: ``cfg`` and ``trials``, see :func:`~.teaching.run_teaching_bench`."""


def table(found: Found) -> list[list[str]]:
    """Header and rows: one trial each."""
    header = ["method", "seed", "held-out success", "best", "steps to 90 %", "person-s to 90 %", "person-s", "steps"]
    return [header, *(_cells(item) for item in found["trials"])]


def summary(found: Found) -> list[list[str]]:
    """Header and rows: one method each, means over its seeds; person-seconds also as a share of ``hil-serl``'s."""
    trials: dict[str, list[dict[str, Any]]] = {}
    for item in found["trials"]:
        trials.setdefault(item["method"], []).append(item)
    person_s = {name: _person_s(items) for name, items in trials.items()}
    reference = person_s.get(REFERENCE)
    rows = [["method", "seeds", "last success", "lowest", "reached 90 %", "person-s to 90 %", f"of {REFERENCE}'s"]]
    for name, items in trials.items():
        last, own = [item["curve"][-1]["success"] for item in items], person_s[name]
        reached = sum(_first(item) is not None for item in items)
        cells = [name, str(len(items)), f"{mean(last):.1%}", f"{min(last):.1%}", f"{reached} of {len(items)}"]
        cells += ["-" if own is None else f"{own:.0f}", "-" if not own or not reference else f"{own / reference:.2f}"]
        rows.append(cells)
    return rows


def page(found: Sequence[Found]) -> Report:
    """Tables and curves of each task: success over steps and over the person's time."""
    from gantry_deploy.report.figures import compared_curves

    wrong = found[0]["cfg"]["wrong"]
    tasks = ", ".join(item["cfg"]["task"] for item in found)
    report = Report(f"Corrections: {tasks}", f"scripted person, {wrong:.0%} of the corrections wrong")
    for item in found:
        cfg, rows, means = item["cfg"], table(item), summary(item)
        report.section(cfg["task"])
        report.table(means[1:], means[0], f"Means over seeds; first evaluation of at least {REACHED:.0%}.")
        note = f"{cfg['demos']} demonstrations of suboptimality {cfg['suboptimality']:g}, "
        report.table(rows[1:], rows[0], note + f"{cfg['episodes']} held-out episodes.")
        over_steps = {title: _series(item, "steps", key, 1e3) for title, key in PANELS.items()}
        caption = "One faint line per seed, and their mean; a trial that has settled goes on as a level line."
        report.figure(compared_curves(over_steps, progress_label="thousand environment steps"), caption)
        over_time = {"held-out success": _series(item, "person_s", "success", 1.0)}
        report.figure(compared_curves(over_time, progress_label="person-seconds, demonstrations included"), caption)
    return report


def _first(item: dict[str, Any]) -> dict[str, Any] | None:
    """First point of a trial's curve that reaches :data:`REACHED`."""
    return next((point for point in item["curve"] if point["success"] >= REACHED), None)


def _person_s(items: list[dict[str, Any]]) -> float | None:
    """Mean person-seconds to :data:`REACHED`, s; None unless every seed reaches it."""
    firsts = [_first(item) for item in items]
    return None if None in firsts else mean(point["person_s"] for point in firsts if point is not None)


def _cells(item: dict[str, Any]) -> list[str]:
    curve, first = item["curve"], _first(item)
    last = curve[-1]
    return [
        item["method"],
        str(item["seed"]),
        f"{last['success']:.1%}",
        f"{max(point['success'] for point in curve):.1%}",
        "-" if first is None else str(first["steps"]),
        "-" if first is None else f"{first['person_s']:.0f}",
        f"{last['person_s']:.0f}",
        str(last["steps"]),
    ]


def _series(found: Found, x: str, y: str, unit: float) -> dict[str, list[tuple[list[float], list[float]]]]:
    """Curves by method: ``x`` in units of ``unit``, and ``y``; trials that ended early are continued level."""
    series: dict[str, list[tuple[list[float], list[float]]]] = {}
    every = found["cfg"]["every"]
    for item in found["trials"]:
        curve = list(item["curve"])
        longest = max(len(other["curve"]) for other in found["trials"] if other["method"] == item["method"])
        while len(curve) < longest:
            curve.append({**curve[-1], "steps": curve[-1]["steps"] + every})
        points = ([point[x] / unit for point in curve], [point[y] for point in curve])
        series.setdefault(item["method"], []).append(points)
    return series
