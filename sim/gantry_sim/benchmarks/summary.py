"""One page of numbers: the benchmarks of this machine one after the other, each beside a peer where one runs here.

Every part is an ordinary command with ``--json``, kept in the output folder, so that an interrupted page goes on where
it stopped. Peers are measured in turns by the command itself, in one run on one machine; what is not installed here is
named, and no number of another machine is put beside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.report import Report
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_sim.benchmarks.comparison import call_gantry
from gantry_sim.benchmarks.text import PEERS_FILE

MAX_BYTES = 2**26
"""Largest result that is read."""
PEERS = "peers"
"""Part of the rows of other packages."""
LEARNED_M_S = 0.2
"""Planar velocity error in training, exploration included, that counts as learned."""
LEARNING_TASK = "velocity-flat-go2"
"""Task of which the time to that error is taken."""
NOT_HERE = {
    "simulation": "mjlab + mjbatch and EnvPool, which are no dependencies; UniLab and Isaac Lab are among the peers",
    "learning": "",
    "runtime": "rl_sar; a plain C++ loop is among the peers, and the bare timer is what no loop can be more even than",
    "mapping": "",
    "corrections": "no other correction session over ROS 2 is known",
}
"""Peers that a user might pick instead and that are not measured, by part."""


@dataclass(frozen=True)
class Row:
    """A number of the page."""

    part: str
    """Part that it belongs to."""
    what: str
    """Quantity in words."""
    unit: str
    """Its unit."""
    value: float
    """Median, or the percentile that the words name."""
    low: float | None = None
    """Smallest of the repeats; None without repeats."""
    high: float | None = None
    """Largest of the repeats; None without repeats."""
    peer: str = ""
    """Name of what it is compared with; empty for nothing."""
    peer_value: float | None = None
    """The peer's, in the same unit."""
    ratio: tuple[float, float, float] | None = None
    """Least, median and largest of ours divided by the peer's, pair by pair."""
    aim: float | None = None
    """Value on two cores that do nothing else; None without one."""


@dataclass(frozen=True)
class Part:
    """A benchmark, and how its result is read."""

    words: Callable[[bool], tuple[str, ...]]
    """From whether it shall be quick to the command line, without ``--json``."""
    rows: Callable[[Mapping[str, Any]], list[Row]]
    """From its result to numbers."""
    run_folder: bool = False
    """Whether the command writes a run, whose folder is given to it."""


def simulation_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench sim``: mjlab's own task on both backends, then our preset."""
    part, rows = "simulation", []
    for entry in result["results"]:
        own, rates = entry["env_steps_per_s"]["gantry"], entry["env_steps_per_s"]
        aim, ratio = result["aims"].get(f"ratio at {entry['num_envs']} environments"), entry.get("ratio")
        what = f"mjlab's Velocity-Flat-Go1, {entry['num_envs']} environments"
        if ratio is None:
            rows.append(Row(part, what, "steps/s", own["median"], own["min"], own["max"]))
            continue
        found = (ratio["min"], ratio["median"], ratio["max"])
        peer = f"mjlab {result['machine']['mjlab']} as it ships"
        theirs, wanted = rates["mjlab"]["median"], None if aim is None else aim["aim"] * rates["mjlab"]["median"]
        rows.append(Row(part, what, "steps/s", own["median"], own["min"], own["max"], peer, theirs, found, wanted))
    training = result.get("preset", {}).get("training")
    for key, words in (("collect_steps_per_s", "without learning"), ("train_steps_per_s", "with learning")):
        if training is not None:
            aim = result["aims"].get(f"steps/s {words}", {}).get("aim")
            figures = training[key]
            what = f"preset cpu of {result['preset']['task']}, {words}"
            rows.append(Row(part, what, "steps/s", figures["median"], figures["min"], figures["max"], aim=aim))
    return rows


def learning_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry train``: time until the error in training first falls below :data:`LEARNED_M_S`, and in all."""
    told = read_metrics(Path(result["run"]) / METRICS_FILE, "train")
    reached = next((row for row in told if row.get("lin_vel_error_m_s", 1.0) <= LEARNED_M_S), None)
    whole = Row("learning", f"{LEARNING_TASK}, {result['env_steps']:,} steps", "s", result["train_wall_s"])
    if reached is None:
        return [whole]
    what = f"{LEARNING_TASK} to {LEARNED_M_S:g} m/s of error while it explores, {reached['env_steps']:,} steps"
    return [Row("learning", what, "s", reached["wall_s"]), whole]


def runtime_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench runtime``: a step of the policy, and how even the loops are beside a bare timer."""
    step, part = result["compute"]["step"], "runtime"
    aims = {name: entry["aim"] for name, entry in result["aims"].items()}
    rows = [
        Row(part, "policy step, median", "ms", 1e3 * step["p50_s"]),
        Row(part, "policy step, 99th percentile", "ms", 1e3 * step["p99_s"], aim=aims.get("policy step p99")),
    ]
    bare = {item["rate_hz"]: 1e3 * item["timing"]["jitter"]["p99_s"] for item in result["timers"]}
    for name, loops in (("loop", result["loops"]), ("loop over ROS 2", result["ros"])):
        for loop in loops:
            if "timing" not in loop:
                continue
            rate, jitter = loop["rate_hz"], 1e3 * loop["timing"]["jitter"]["p99_s"]
            where = f" on '{loop['backend']}'" if "backend" in loop and name == "loop" else ""
            what = f"{name}{where}, {rate:g} Hz: distance from the period, 99th percentile"
            ratio = (jitter / bare[rate],) * 3 if bare.get(rate) else None
            aim = aims.get(f"ROS 2 jitter p99 at {rate:g} Hz") if "ROS" in name else None
            rows.append(Row(part, what, "ms", jitter, None, None, "a bare timer", bare.get(rate), ratio, aim))
    return rows


def mapping_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench mapping``: one depth image of one robot on one core."""
    frame, aim = result["frame"]["frame"], 1e3 * result["frame_aim_s"]
    return [
        Row("mapping", "depth image to map window, median", "ms", 1e3 * frame["p50_s"]),
        Row("mapping", "depth image to map window, 99th percentile", "ms", 1e3 * frame["p99_s"], aim=aim),
    ]


def corrections_rows(result: Mapping[str, Any]) -> list[Row]:
    """Of ``gantry bench corrections``: from a person's hand to the first command that follows it."""
    return [
        Row("corrections", f"taking over {name} at {row['rate_hz']:g} Hz, {word}", "ms", 1e3 * row[f"take_{key}_s"])
        for name, row in result.get("hand_over", {}).items()
        for key, word in (("p50", "median"), ("p99", "99th percentile"))
    ]


def _words(full: tuple[str, ...], short: tuple[str, ...], quick: bool) -> tuple[str, ...]:
    return (*full, *short) if quick else full


PARTS: dict[str, Part] = {
    "simulation": Part(
        partial(_words, ("bench", "sim"), ("--seconds", "1", "--repeats", "1", "--envs", "64", "--iterations", "2")),
        simulation_rows,
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


def measure(names: Sequence[str], output: Path, quick: bool, say: Callable[[str], None] = print) -> list[Row]:
    """Measure what is missing in the folder, and read all of it.

    Args:
        names: Names of :data:`PARTS`.
        output: Folder for the results.
        quick: Short measurements, which show that everything runs.
        say: Takes a line before each part.

    Raises:
        GantryError: If a command fails; what was measured is kept.
        KeyboardInterrupt: If it was interrupted.
    """
    output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for number, name in enumerate(names, start=1):
        part, told = PARTS[name], output / f"{name}.json"
        if not told.is_file():
            say(f"[{number}/{len(names)}] {name}")
            run = ("--run-dir", str(output / name)) if part.run_folder else ()
            call_gantry((*part.words(quick), *run, "--json", str(told)))
        rows += part.rows(read_json_object(told, max_bytes=MAX_BYTES, allow_nan=True))
    return rows + peer_rows(output)


def peer_rows(output: Path) -> list[Row]:
    """Rows of other packages, where they were measured into the folder.

    Raises:
        GantryError: If the file holds something else.
    """
    path = output / PEERS_FILE
    if not path.is_file():
        return []
    try:
        found = read_json_object(path, max_bytes=MAX_BYTES)
        rows = [Row(**{**row, "ratio": tuple(row["ratio"])}) for kept in found.values() for row in kept]
    except (AttributeError, KeyError, TypeError) as error:
        raise GantryError(f"'{path}' holds no rows of scripts/measure/peers/compare.py.") from error
    return rows


def table_of(rows: Sequence[Row]) -> list[list[str]]:
    """Cells of the page's table, the header first."""
    header = ["what", "measured", "beside", "ratio", "aim on two quiet cores"]
    return [header, *([row.what, _measured(row), _peer(row), _ratio(row), _aim(row)] for row in rows)]


def markdown_of(rows: Sequence[Row]) -> str:
    """The table as Markdown, for a README."""
    head, *cells = table_of(rows)
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


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
    note = f"Not measured here: {NOT_HERE[name]}." if NOT_HERE[name] else ""
    return f"gantry {' '.join(PARTS[name].words(quick))}. {note}".strip()


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as plain data."""
    return [asdict(row) for row in rows]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def _measured(row: Row) -> str:
    spread = "" if row.low is None or row.high is None else f" [{_number(row.low)}, {_number(row.high)}]"
    return f"{_number(row.value)}{spread} {row.unit}"


def _peer(row: Row) -> str:
    return f"{row.peer}: {_number(row.peer_value)}" if row.peer_value is not None else ""


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return ""
    low, middle, high = row.ratio
    return f"{middle:.3g}" + ("" if low == high else f" [{low:.3g}, {high:.3g}]")


def _aim(row: Row) -> str:
    return "" if row.aim is None else _number(row.aim)
