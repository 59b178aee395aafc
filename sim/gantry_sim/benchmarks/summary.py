"""One page of numbers: the benchmarks of this machine one after the other, each beside a peer where one runs here.

Every part is an ordinary command with ``--json``, kept in the output folder, so that an interrupted page goes on where
it stopped. Peers are measured in turns by the command itself, in one run on one machine; what is not installed here is
named, and no number of another machine is put beside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.report import Report
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_sim.benchmarks.comparison import call_gantry
from gantry_sim.benchmarks.page_rows import Row, merged, paired_row, rows_from, table_of
from gantry_sim.benchmarks.text import PEERS_FILE
from gantry_sim.tasks.registry import find_task

MAX_BYTES = 2**26
"""Largest result that is read."""
PEERS = "peers"
"""Part of the rows of other packages."""
LEARNED_M_S = 0.2
"""Planar velocity error in training, exploration included, that counts as learned."""
LEARNING_TASK = "velocity-flat-go2"
"""Task of which the time to that error is taken."""
MJBATCH_AIM = 1.2
"""Times that the CPU backend shall be faster than mjlab with a CPU backend of its own."""
NOT_HERE = {
    "simulation": "mjlab with its own mjbatch backend (mjlab #1180, #1187), which no release has",
    "learning": "the learners of mjlab and Isaac Lab to the same error, which take hours on a CPU",
    "runtime": "rl_sar; the bare timer is what no loop can be more even than",
    "mapping": "elevation_mapping_cupy, which needs CUDA; the classical mapper beside the rows is this project's own",
    "corrections": "no other correction session over ROS 2 is known",
}
"""Peers that a user might pick instead and that are not measured, by part."""
COMPARED = {
    "simulation": "UniLab, Isaac Lab on the CPU and EnvPool",
    "learning": "UniLab's recipe to its end",
    "runtime": "a plain C++ loop",
}
"""Peers that scripts/measure/peers/compare.py measures, by part."""


@dataclass(frozen=True)
class Part:
    """A benchmark, and how its result is read."""

    words: Callable[[bool], tuple[str, ...]]
    """From whether it shall be quick to the command line, without ``--json``."""
    rows: Callable[[Mapping[str, Any]], list[Row]]
    """From its result to numbers."""
    run_folder: bool = False
    """Whether the command takes a seed and the folder of a run that it writes."""
    repeated: bool = True
    """Whether the command is run again for a spread; one that repeats its measurements itself is not."""


def simulation_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench sim``: mjlab's own task on both backends, then our preset."""
    version = result["machine"]["mjlab"]
    part, task, unit, better = "simulation", "mjlab's unmodified Velocity-Flat-Go1", "steps/s", "higher"
    rows = []
    for entry in result["results"]:
        count, rates = entry["num_envs"], entry["env_steps_per_s"]
        row = Row(part, task, unit, better, **_median_of(rates["gantry"], result["repeats"]), environments=count)
        if (ratio := entry.get("ratio")) is not None:
            aim = result["aims"].get(f"ratio at {count} environments", {}).get("aim")
            row = replace(row, peer=f"mjlab {version} as it ships", peer_environments=count, aim_ratio=aim)
            row = replace(row, peer_value=rates["mjlab"]["median"], ratio=ratio["median"])
            row = replace(row, **({} if row.runs == 1 else {"ratio_low": ratio["min"], "ratio_high": ratio["max"]}))
        rows.append(row)
    peer, note = "mjlab with its own mjbatch backend", f"mjlab {version} has none (mjlab #1180, #1187)"
    rows.append(Row(part, task, unit, better, None, peer=peer, aim_ratio=MJBATCH_AIM, note=note))
    preset = result.get("preset", {})
    training, count = preset.get("training"), preset.get("num_envs")
    for key, words in (("collect_steps_per_s", "without learning"), ("train_steps_per_s", "with learning")):
        if training is not None:
            what = f"preset cpu of {preset['task']}, {words}"
            aim = result["aims"].get(f"steps/s {words}", {}).get("aim")
            rows.append(Row(part, what, unit, better, **_median_of(training[key], 1), environments=count, aim=aim))
    return rows


def _median_of(figures: Mapping[str, float], runs: int) -> dict[str, Any]:
    """Fields of a row; one run has no spread, whatever its iterations have."""
    spread = {} if runs == 1 else {"low": figures["min"], "high": figures["max"]}
    return {"value": figures["median"], "runs": runs, **spread}


def learning_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry train``: time until the error in training first falls below :data:`LEARNED_M_S`, and in all."""
    told = read_metrics(Path(result["run"]) / METRICS_FILE, "train")
    reached = next((row for row in told if row.get("lin_vel_error_m_s", 1.0) <= LEARNED_M_S), None)
    what, count = f"{LEARNING_TASK} to {LEARNED_M_S:g} m/s of error while it explores", result["env_steps"]
    row = Row("learning", what, "s", "lower", None, environments=find_task(LEARNING_TASK).preset("cpu").env.num_envs)
    whole = replace(row, what=f"{LEARNING_TASK}, {count:,} steps", value=result["train_wall_s"])
    if reached is None:
        return [whole]
    steps = replace(row, what=f"{what}, control steps", unit="steps", value=reached["env_steps"])
    return [replace(row, value=reached["wall_s"]), steps, whole]


def runtime_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench runtime``: a step of the policy, and how even the loops are beside a bare timer."""
    step, part = result["compute"]["step"], "runtime"
    aims = {name: entry["aim"] for name, entry in result["aims"].items()}
    rows = [
        Row(part, "policy step, median", "ms", "lower", 1e3 * step["p50_s"]),
        Row(part, "policy step, 99th percentile", "ms", "lower", 1e3 * step["p99_s"], aim=aims.get("policy step p99")),
    ]
    priority = result.get("realtime_priority", 0)
    note = f"real-time priority {priority}" if priority else "no real-time priority"
    bare = {item["rate_hz"]: 1e3 * item["timing"]["jitter"]["p99_s"] for item in result["timers"]}
    for name, loops in (("loop", result["loops"]), ("loop over ROS 2", result["ros"])):
        for loop in loops:
            if "timing" not in loop:
                continue
            rate, jitter = loop["rate_hz"], 1e3 * loop["timing"]["jitter"]["p99_s"]
            where = f" on '{loop['backend']}'" if "backend" in loop and name == "loop" else ""
            what = f"{name}{where}, {rate:g} Hz: distance from the period, 99th percentile"
            aim = aims.get(f"ROS 2 jitter p99 at {rate:g} Hz") if "ROS" in name else None
            row = Row(part, what, "ms", "lower", jitter, aim=aim, note=note)
            if bare.get(rate):
                row = paired_row(replace(row, peer="a bare timer"), [jitter], [bare[rate]])
            rows.append(row)
    return rows


def mapping_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench mapping``: one depth image of one robot on one core, beside the classical mapper alone."""
    frame, classical, aim = result["frame"]["frame"], result["classical"]["frame"], 1e3 * result["frame_aim_s"]
    rows = []
    for key, word, wanted in (("p50_s", "median", None), ("p99_s", "99th percentile", aim)):
        peer = "the classical mapper here, a filter per cell"
        row = Row("mapping", f"depth image to map window, {word}", "ms", "lower", None, peer=peer, aim=wanted)
        rows.append(paired_row(row, [1e3 * frame[key]], [1e3 * classical[key]]))
    return rows


def corrections_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench corrections``: from a person's hand to the first command that follows it."""
    rows = []
    for name, row in result.get("hand_over", {}).items():
        note = f"{row['missed']} that no command followed" if row.get("missed") else ""
        for key, word in (("p50", "median"), ("p99", "99th percentile")):
            what = f"taking over {name} at {row['rate_hz']:g} Hz, {word}"
            rows.append(Row("corrections", what, "ms", "lower", 1e3 * row[f"take_{key}_s"], note=note))
    return rows


def _words(full: tuple[str, ...], short: tuple[str, ...], quick: bool) -> tuple[str, ...]:
    return (*full, *short) if quick else full


PARTS: dict[str, Part] = {
    "simulation": Part(
        partial(_words, ("bench", "sim"), ("--seconds", "1", "--repeats", "1", "--envs", "64", "--iterations", "2")),
        simulation_rows,
        repeated=False,
    ),
    "learning": Part(
        partial(_words, ("train", LEARNING_TASK, "--episodes", "0", "--no-export"), ("--steps", "100k")),
        learning_rows,
        run_folder=True,
    ),
    "runtime": Part(
        partial(_words, ("bench", "runtime"), ("--seconds", "2", "--iterations", "300", "--no-ros")), runtime_rows
    ),
    "mapping": Part(partial(_words, ("bench", "mapping", "--no-training"), ("--frames", "30")), mapping_rows),
    "corrections": Part(
        partial(_words, ("bench", "corrections", "--parts", "hand-over"), ("--count", "5")), corrections_rows
    ),
}
"""Parts of the page by name, in order."""


def measure(
    names: Sequence[str], output: Path, quick: bool, repeats: int = 1, say: Callable[[str], None] = print
) -> list[Row]:
    """Measure what is missing in the folder, and read all of it.

    Args:
        names: Names of :data:`PARTS`.
        output: Folder for the results.
        quick: Short measurements, which show that everything runs.
        repeats: Runs of each part that does not repeat its measurements itself; trainings take seeds 1, 2, ...
        say: Takes a line before each run.

    Raises:
        GantryError: If a command fails, or another version wrote a result; what was measured is kept.
        KeyboardInterrupt: If it was interrupted.
    """
    output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for number, name in enumerate(names, start=1):
        part, results = PARTS[name], []
        for turn in range(1, (repeats if part.repeated else 1) + 1):
            place = output / (name if turn == 1 else f"{name}-{turn}")
            told = place.with_suffix(".json")
            if not told.is_file():
                say(f"[{number}/{len(names)}] {place.name}")
                run = ("--seed", str(turn), "--run-dir", str(place)) if part.run_folder else ()
                call_gantry((*part.words(quick), *run, "--json", str(told)))
            results.append(_rows_of(part, told))
        rows += merged(results)
    return rows + peer_rows(output)


def _rows_of(part: Part, told: Path) -> list[Row]:
    """Rows of a result; one of another version of the benchmark is refused."""
    result = read_json_object(told, max_bytes=MAX_BYTES, allow_nan=True)
    try:
        return part.rows(result)
    except GantryError:
        raise
    except KeyError as error:
        raise GantryError(
            f"{told}: the result has no {error}: another version of the benchmark wrote it. Begin in a new folder."
        ) from error


def peer_rows(output: Path) -> list[Row]:
    """Rows of other packages, where they were measured into the folder.

    Raises:
        GantryError: If the file holds something else.
    """
    path = output / PEERS_FILE
    if not path.is_file():
        return []
    kept = read_json_object(path, max_bytes=MAX_BYTES)
    return [row for rows in kept.values() for row in rows_from(rows, str(path))]


def page_of(rows: Sequence[Row], machine: Mapping[str, Any], names: Sequence[str], quick: bool) -> Report:
    """The page: hardware and versions, then a table for each part."""
    about = ", ".join(f"{key} {value}" for key, value in machine.items())
    report = Report("What this machine measures", "short measurements, not to be quoted" if quick else about)
    report.text(about)
    for name in (*names, PEERS):
        own = [row for row in rows if row.part == name]
        if name == PEERS and not own:
            continue
        head, *cells = table_of(own)
        report.section(name.capitalize())
        report.table(cells, header=tuple(head), caption=_caption(name, quick))
    return report


def _caption(name: str, quick: bool) -> str:
    """The command of a part, and the peers that are missing."""
    if name == PEERS:
        return "scripts/measure/peers/compare.py, in turns with what stands beside it."
    there = f"scripts/measure/peers/compare.py measures {COMPARED[name]}. " if name in COMPARED else ""
    return f"gantry {' '.join(PARTS[name].words(quick))}. {there}Not measured: {NOT_HERE[name]}."
