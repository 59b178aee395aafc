"""The report of a demo of goals: scores by terrain, then each walk with its films, its map and its times."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from gantry_deploy.evaluation.metrics import GOAL_HEADING_RAD, GOAL_POS_M
from gantry_deploy.report import Report, Score, figures
from gantry_deploy.report.attention import add_attention, seen_share
from gantry_sim.demo.goal.outcome import ATTENTION_VIDEO, Crossing, GoalOutcome, in_words
from gantry_sim.demo.machine import machine_rows, processor
from gantry_sim.demo.pipeline import REPORT, VIDEO
from gantry_sim.demo.walk import UNPACED
from gantry_sim.training.run_config import git_commit

UNKNOWN = "-"
"""Entry where nothing was measured."""
_FILES = {
    "walk.mcap": "recording of the walk, every tick and every map; Foxglove and `ros2 bag` read it",
    "walk.mp4, attention.mp4": "the films alone",
    "nodes.log": "what the nodes said",
    "loop.json, mapping.json, robot.json": "times and counts of the control loop, the mapping and the simulated robot",
    "nodes.yaml": "parameters that the nodes were given beside their defaults",
}


def build_goal_page(outcome: GoalOutcome) -> Report:
    """Everything that a stranger wants to know about the walks, from top to bottom."""
    provenance = outcome.bundle.contract.provenance
    robot = outcome.bundle.contract.robot.capitalize()
    count, total = sum(crossing.crossed for crossing in outcome.crossings), len(outcome.crossings)
    report = Report(
        f"A {robot} walks over terrain by what its camera sees, over ROS 2",
        f"{provenance.task or 'a policy of unknown origin'}, {time.strftime('%Y-%m-%d %H:%M')}, {processor()}",
    )
    report.tiles({"verdict": "passed" if outcome.passed else "NOT passed", "crossed": f"{count} of {total}"})
    report.text(_summary(outcome))
    report.section("Scores").table(
        [_row(crossing) for crossing in outcome.crossings], header=_HEADER, caption=_caption(outcome)
    )
    report.table([_time_row(crossing) for crossing in outcome.crossings], header=_TIME_HEADER, caption=_TIME_CAPTION)
    for crossing in outcome.crossings:
        _crossing(report, crossing)
    report.section("The bundle").table(
        [(stage.name, "passed" if stage.passed else "FAILED", stage.text) for stage in outcome.stages],
        header=("Stage", "Verdict", "Found"),
    )
    _origin(report, outcome)
    return report


def goal_result(outcome: GoalOutcome) -> dict[str, Any]:
    """The outcome in numbers, for ``--json``."""
    return {
        "passed": outcome.passed,
        "crossed": sum(crossing.crossed for crossing in outcome.crossings),
        "report": str((outcome.config.output / REPORT).resolve()),
        "bundle": str(outcome.bundle.path.resolve()),
        "provenance": asdict(outcome.bundle.contract.provenance),
        "definition": {"position_error_below_m": GOAL_POS_M, "heading_error_below_rad": GOAL_HEADING_RAD},
        "seconds": outcome.config.seconds,
        "difficulty": outcome.config.difficulty,
        "terrains": [crossing_result(crossing) for crossing in outcome.crossings],
        "stage_s": dict(outcome.stage_s),
    }


def crossing_result(crossing: Crossing) -> dict[str, Any]:
    """One walk in numbers; what was not measured is None."""
    found, walk = crossing.found, crossing.walk
    result: dict[str, Any] = {
        "terrain": crossing.terrain,
        "crossed": crossing.crossed,
        "reason": crossing.reason,
        "goal": asdict(crossing.goal),
        "recording": str(walk.recording),
        "completed": walk.completed,
        "earlier_attempts": list(walk.earlier),
        "over_ros": walk.over_ros,
        "note": crossing.note,
    }
    names = ("distance_m", "heading_error_rad", "arrived_s", "fell", "fault", "map_rate_hz")
    result |= {name: None if found is None else getattr(found, name) for name in names}
    result["seconds"] = None if found is None else float(found.time_s[-1])
    result["maps"] = None if found is None else len(found.map_time_s)
    result["blind_ticks"] = crossing.blind_ticks
    result["real_time"] = crossing.real_time
    result["rerun_difference"] = crossing.rerun
    told = None if found is None else found.explained
    result["explained_windows"] = None if told is None else len(told.time_s)
    result["explained_difference"] = None if told is None else told.worst
    result["timing"] = {name: _percentiles(values) for name, values in times_of(crossing).items()}
    result["mapping_frames"] = None if crossing.mapping is None else crossing.mapping.get("frames")
    return result


def times_of(crossing: Crossing) -> dict[str, np.ndarray]:
    """Durations in s by name: ``mapping`` and ``picture_to_map`` of each frame, ``tick``, ``network`` and ``period``
    of each tick under the policy; empty where nothing was measured."""
    samples: Mapping[str, Any] = {} if crossing.mapping is None else crossing.mapping.get("samples_s", {})
    found, nothing = crossing.found, np.zeros(0)
    return {
        "mapping": np.array(samples.get("map", ())),
        "picture_to_map": np.array(samples.get("age", ())),
        "tick": nothing if found is None else found.busy_s,
        "network": nothing if found is None else found.infer_s,
        "period": nothing if found is None else found.period_s,
    }


def scores_of(crossing: Crossing) -> list[Score]:
    """Requirements on a walk, and results."""
    found = crossing.found
    nan = float("nan")
    damped = float(found is None or found.fell or bool(found.fault))
    return [
        Score("from the goal", nan if found is None else found.distance_m, GOAL_POS_M, "m", note="at the end"),
        Score("off its heading", nan if found is None else found.heading_error_rad, GOAL_HEADING_RAD, "rad"),
        Score("falls and faults", damped, 0.0, note=crossing.reason if damped else ""),
        Score("walked to the end of the time", float(crossing.walk.completed), 1.0, above=True),
    ]


def _percentiles(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    p50, p99 = np.percentile(values, (50, 99)).tolist()
    return {"count": len(values), "p50_s": p50, "p99_s": p99, "max_s": float(values.max())}


_HEADER = ("Terrain", "Crossed", "From the goal", "Off its heading", "There after", "Walked", "Falls, faults", "Maps/s")


def _row(crossing: Crossing) -> tuple[str, ...]:
    found, verdict = crossing.found, "yes" if crossing.crossed else "NO"
    if found is None:
        return (crossing.terrain, verdict, *[UNKNOWN] * 4, crossing.reason or crossing.note, UNKNOWN)
    there = UNKNOWN if found.arrived_s is None else f"{found.arrived_s:.1f} s"
    return (
        crossing.terrain,
        verdict,
        f"{found.distance_m:.2f} m",
        f"{found.heading_error_rad:.2f} rad",
        there,
        f"{found.time_s[-1]:.1f} s",
        found.fault or ("a fall" if found.fell else "none"),
        f"{found.map_rate_hz:.1f}",
    )


def _caption(outcome: GoalOutcome) -> str:
    missed = [crossing.terrain for crossing in outcome.crossings if not crossing.crossed]
    return (
        f"Crossed, as in every evaluation: nearer than {GOAL_POS_M:g} m to the goal and less than {GOAL_HEADING_RAD:g} "
        "rad off its heading at the end of the time, without a fall or a fault. "
        + (f"Not crossed: {', '.join(missed)}." if missed else "All were crossed.")
    )


_TIME_HEADER = (
    "Terrain",
    "Mapping p50",
    "p99",
    "Picture to map p50",
    "p99",
    "Policy's tick p50",
    "p99",
    "Network p50",
    "p99",
)
_TIME_CAPTION = (
    "Milliseconds. Mapping: what the mapping node needs for a frame. Picture to map: from the moment a picture was "
    "taken to the map that holds it. Policy's tick: reading, looking at the map, observing, inferring, judging and "
    "writing, of which the network is a part."
)


def _time_row(crossing: Crossing) -> tuple[str, ...]:
    times = times_of(crossing)
    cells = []
    for name in ("mapping", "picture_to_map", "tick", "network"):
        found = _percentiles(times[name])
        cells += [UNKNOWN] * 2 if found is None else [f"{1e3 * found[key]:.2f}" for key in ("p50_s", "p99_s")]
    return (crossing.terrain, *cells)


def _summary(outcome: GoalOutcome) -> str:
    window = outcome.bundle.contract.map_window
    assert window is not None
    network = "the bundle's network" if outcome.bundle.mapper_bytes else "a Kalman filter per cell"
    if window.mapping is None:
        network += ", in the runtime's own setup, as the contract names none"
    text = (
        "On each terrain four ROS 2 nodes ran, each a process of its own: a simulated robot with a depth camera, the "
        f"mapping node ({network}), the policy, and an operator that sent one goal. The policy looks at "
        f"{window.rows} x {window.cols} cells of {100 * window.resolution_m:g} cm ({' and '.join(window.channels)}) "
        f"and was given {outcome.config.seconds:g} s. Everything below comes from the recordings of these walks: the "
        "films, the maps, what the policy was given of them, and where it looked, for which the bundle's network was "
        "run once more on the recorded observations. Nothing was simulated a second time."
    )
    again = [crossing for crossing in outcome.crossings if crossing.walk.earlier]
    if again:
        told = "; ".join(f"{item.terrain}: {', '.join(item.walk.earlier).rstrip('.')}" for item in again)
        text += (
            "\n\nThis machine was too busy to keep the robot's clock at first, so walks were begun again. Earlier "
            f"attempts ended with: {told}."
        )
    alone = [crossing.terrain for crossing in outcome.crossings if not crossing.walk.over_ros]
    if alone:
        text += (
            f" What is shown of {', '.join(alone)} was walked without ROS 2: robot, camera, mapping and policy in one "
            f"process.{UNPACED}"
        )
    return text


def _crossing(report: Report, crossing: Crossing) -> None:
    found, attention = crossing.found, crossing.attention
    if found is None or attention is None:
        report.section(crossing.terrain).text(f"{in_words(crossing)}.")
        return
    add_attention(report, attention, crossing.films.get(ATTENTION_VIDEO))
    report.scores(scores_of(crossing))
    if VIDEO in crossing.films:
        report.video(crossing.films[VIDEO], "The recorded walk in real time, drawn into the terrain it was walked on.")
    if crossing.note:
        report.text(f"Not drawn: {crossing.note}")
    times = times_of(crossing)
    report.figure(
        figures.duration_histograms(
            {
                "mapping, of a frame": (times["mapping"], "frames"),
                "policy's tick": (times["tick"], "ticks"),
                "network": (times["network"], "ticks"),
                "time between two ticks": (times["period"], "ticks"),
            }
        ),
        "Times of the mapping node and of the policy's node; orange: 99 % are below, logarithmic upwards.",
    )
    seen = [seen_share(attention, moment) for moment in attention.moments]
    rows = [
        ("maps received under the policy", f"{found.map_rate_hz:.1f} per second"),
        ("share of the window that was seen, mean", f"{100.0 * float(np.mean(seen)):.0f} %"),
        ("recorded actions and those of the network run again", f"differ by {crossing.rerun:.2g} at most"),
    ]
    if found.explained is not None and len(found.explained.time_s):
        text = f"{len(found.explained.time_s)}, differ by {found.explained.worst:.2g} at most"
        rows.append(("windows of the policy, and those of the recorded maps at their recorded ages", text))
    if crossing.blind_ticks is not None:
        rows.append(("ticks that were shown unseen ground, as the map was too old", str(crossing.blind_ticks)))
    if crossing.real_time is not None:
        rows.append(("simulated seconds per second", f"{crossing.real_time:.2f}"))
    frames = {} if crossing.mapping is None else crossing.mapping.get("frames", {})
    rows += [(f"depth frames: {outcome}", str(count)) for outcome, count in frames.items() if count]
    report.table(rows)


def _origin(report: Report, outcome: GoalOutcome) -> None:
    contract = outcome.bundle.contract
    provenance = contract.provenance
    rows = [
        ("task, preset, seed", f"{provenance.task or 'unknown'}, {provenance.preset or 'unknown'}, {provenance.seed}"),
        ("trained", f"{provenance.env_steps / 1e6:.2f} million control steps"),
        ("trained by commit", f"`{provenance.git_commit or 'unknown'}`"),
        ("this page by commit", f"`{git_commit() or 'unknown'}`"),
        (
            "network",
            f"{contract.observation_size} observations to {contract.action_size} joints at {contract.rate_hz:g} Hz, "
            f"{len(outcome.bundle.model_bytes) / 1024:.0f} KiB",
        ),
        *machine_rows(),
        ("time taken", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome.stage_s.items())),
    ]
    report.section("Where it comes from").table(rows)
    report.section("What lies beside this page").text("`demo.json`, the numbers of this page; and by terrain:")
    report.table([(f"`{name}`", text) for name, text in _FILES.items()], header=("In the folder", "Holds"))
