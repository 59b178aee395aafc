"""Success rates of a policy that walks to goals, as a part of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gantry_deploy.evaluation.metrics import GOAL_HEADING_RAD, GOAL_POS_M
from gantry_deploy.report.html import Report
from gantry_hardware.errors import GantryError

PARTINGS = ("group", "kind", "level")
"""By what an evaluation of goals is split."""


def add_success(report: Report, result: Mapping[str, Any]) -> Report:
    """Add a section with success by group, kind and level of terrain.

    Args:
        report: Where to add it.
        result: What ``gantry eval --json`` has written for a task of goals; each of its parts (training and held-out
            terrain, easier half of the levels, ...) becomes tables.

    Raises:
        GantryError: If there are no such scores in it.
    """
    parts = list(_parts(result, ()))
    if not parts:
        found = ", ".join(map(str, result)) or "nothing"
        raise GantryError(f"The scores hold {found}; expected those of a task of goals, with 'success_rate' by 'kind'.")
    report.section("Success").text(
        f"An episode is a success if the robot is within {GOAL_POS_M:g} m of its goal and within "
        f"{GOAL_HEADING_RAD:g} rad of its heading at the end, and nothing ended it early. Intervals are Wilson's, 95 %."
    )
    for names, scores in parts:
        title = ", ".join(name.replace("_", " ") for name in names) or "all episodes"
        rows = [_row("all", scores)]
        for parting in PARTINGS:
            rows += [_row(f"{parting}: {name}", part) for name, part in scores.get(parting, {}).items()]
        report.table(rows, ("Terrain", "Success", "95 %", "Ended early", "Episodes"), caption=title)
    return report


def _parts(result: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the parts with a success rate that are no rows of a part that has one itself."""
    scored = "success_rate" in result
    if scored:
        yield names, result
    for name, part in result.items():
        if isinstance(part, Mapping) and not (scored and name in PARTINGS):
            yield from _parts(part, (*names, str(name)))


def _row(name: str, scores: Mapping[str, Any]) -> list[str]:
    rate, early = scores["success_rate"], scores["early_end_rate"]
    interval = f"{100 * rate['low']:.0f} to {100 * rate['high']:.0f} %"
    return [name, f"{100 * rate['mean']:.0f} %", interval, f"{100 * early['mean']:.0f} %", str(scores["episodes"])]
