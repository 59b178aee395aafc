"""Sections of the report about walks to goals, and their results in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from gantry_deploy.evaluation.metrics import GOAL_HEADING_RAD, GOAL_POS_M
from gantry_deploy.report import Report
from gantry_deploy.report.attention import add_attention, seen_share
from gantry_sim.demo import page
from gantry_sim.demo.measured import MeasuredGoalWalk
from gantry_sim.demo.page import UNKNOWN
from gantry_sim.demo.scenario import VIDEO, Outcome, Recorded

ATTENTION_VIDEO = "attention.mp4"
"""Film of map and attention, in a walk's folder."""
COLUMNS = {
    "Terrain": "name",
    "Crossed": "crossed",
    "Otherwise": "reason",
    "From the goal [m]": "distance_m",
    "Off its heading [rad]": "heading_error_rad",
    "There after [s]": "arrived_s",
    "Walked [s]": "seconds",
    "Fall": "fell",
    "Maps/s": "map_rate_hz",
}
"""Titles of the table of walks, and the numbers in it."""
TIMES = {"mapping": "Mapping", "picture_to_map": "Picture to map", "tick": "Policy's tick", "network": "Network"}
"""Durations in the table, and their titles."""


def crossed(recorded: Recorded) -> bool:
    """Whether the walk went to its end, and found the robot where it was sent."""
    found = recorded.walk
    return recorded.rollout.completed and found is not None and found.crossed


def in_words(recorded: Recorded) -> str:
    """Result of a walk in a line."""
    found, why = recorded.walk, reason(recorded).rstrip(".")
    if found is None:
        return f"NOT crossed: {why}"
    return (
        f"{'crossed' if not why else 'NOT crossed'}: {found.distance_m:.2f} m from the goal, "
        f"{found.heading_error_rad:.2f} rad off its heading after {found.time_s[-1]:.1f} s; "
        f"{found.map_rate_hz:.1f} maps per second{f' ({why})' if why else ''}"
    )


def reason(recorded: Recorded) -> str:
    """Reason for not crossing; empty if it was crossed."""
    found = recorded.walk
    if crossed(recorded):
        return ""
    if found is not None and (found.fault or found.fell):
        return found.fault or "it fell"
    return recorded.rollout.trouble or "it was not there at the end"


def blind_ticks(recorded: Recorded) -> int | None:
    """Ticks at which the newest map was too old to be shown to the policy; None if unknown."""
    return ((recorded.statistics.get("loop") or {}).get("map") or {}).get("blind steps")


def numbers_of(recorded: Recorded) -> dict[str, Any]:
    """One walk in numbers; what was not measured is None."""
    found, told = recorded.walk, recorded.statistics.get("mapping") or {}
    names = ("distance_m", "heading_error_rad", "arrived_s", "fell", "fault", "map_rate_hz")
    windows = None if found is None else found.explained
    return {
        "crossed": crossed(recorded),
        "reason": reason(recorded),
        "goal": None if found is None else asdict(found.goal),
        **{name: None if found is None else getattr(found, name) for name in names},
        "seconds": None if found is None else float(found.time_s[-1]),
        "maps": None if found is None else len(found.map_time_s),
        "blind_ticks": blind_ticks(recorded),
        "explained_windows": None if windows is None else len(windows.time_s),
        "explained_difference": None if windows is None else windows.worst,
        "mapping_frames": told.get("frames"),
    }


def terrains(report: Report, outcome: Outcome) -> None:
    """Results and times of all walks."""
    missed = [item.name for item in outcome.recorded if not crossed(item)]
    report.section("Terrains")
    page.table(
        report,
        COLUMNS,
        [{"name": item.name} | numbers_of(item) for item in outcome.recorded],
        caption=f"Crossed, as in every evaluation: nearer than {GOAL_POS_M:g} m to the goal and less than "
        f"{GOAL_HEADING_RAD:g} rad off its heading at the end of the time, without a fall or a fault. "
        + (f"Not crossed: {', '.join(missed)}." if missed else "All were crossed."),
    )
    report.table(
        [_time_row(item) for item in outcome.recorded],
        header=("Terrain", *(text for title in TIMES.values() for text in (f"{title} p50", "p99"))),
        caption="Milliseconds. Mapping: what the mapping node needs for a frame. Picture to map: from the moment a "
        "picture was taken to the map that holds it. Policy's tick: reading, looking at the map, observing, inferring, "
        "judging and writing, of which the network is a part.",
    )


def _time_row(item: Recorded) -> tuple[str, ...]:
    timing = item.timing()
    keys = ("p50_s", "p99_s")
    cells = [f"{1e3 * timing[name][key]:.2f}" if name in timing else UNKNOWN for name in TIMES for key in keys]
    return (item.name, *cells)


def walks(report: Report, outcome: Outcome) -> None:
    """Each walk: films, attention, times, and how the numbers agree."""
    for item in outcome.recorded:
        found = item.walk
        if found is None or item.detail is None:
            report.section(item.name).text(f"{in_words(item)}.")
        else:
            _walk(report, item, found)


def _walk(report: Report, item: Recorded, found: MeasuredGoalWalk) -> None:
    attention = item.detail
    add_attention(report, attention, item.films.get(ATTENTION_VIDEO))
    if VIDEO in item.films:
        report.video(item.films[VIDEO], "The recorded walk in real time, drawn into the terrain it was walked on.")
    else:
        report.text(f"Not filmed: {item.film_note}")
    page.durations(
        report,
        item,
        {
            "mapping": ("mapping, of a frame", "frames"),
            "tick": ("policy's tick", "ticks"),
            "network": ("network", "ticks"),
            "period": ("time between two ticks", "ticks"),
        },
        "Times of the mapping and of the policy's loop",
    )
    seen = 100.0 * float(np.mean([seen_share(attention, moment) for moment in attention.moments]))
    rows = [
        ("maps received under the policy", f"{found.map_rate_hz:.1f} per second"),
        ("share of the window that was seen, mean", f"{seen:.0f} %"),
        *page.common_rows(item),
    ]
    if found.explained is not None and len(found.explained.time_s):
        text = f"{len(found.explained.time_s)}, differ by {found.explained.worst:.2g} at most"
        rows.append(("windows of the policy, and those of the recorded maps at their recorded ages", text))
    if (blind := blind_ticks(item)) is not None:
        rows.append(("ticks that were shown unseen ground, as the map was too old", str(blind)))
    frames = (item.statistics.get("mapping") or {}).get("frames", {})
    rows += [(f"depth frames: {result}", str(count)) for result, count in frames.items() if count]
    report.table(rows)
