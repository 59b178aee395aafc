"""``gantry bench page``: one page of numbers of this machine."""

from __future__ import annotations

import argparse
import contextlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option, choose
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole
from gantry_sim.benchmarks.text import PEERS_FILE
from gantry_sim.cli.common import whole

NAMES = ("simulation", "learning", "runtime", "mapping", "corrections")
"""Parts, in order."""
PACKAGES = (
    "gantry-rl",
    "torch",
    "mujoco",
    "mjbatch",
    "mujoco-warp",
    "warp-lang",
    "mjlab",
    "rsl-rl-lib",
    "onnxruntime",
)
"""Packages that the page gives the versions of, where they are installed."""
REPEATS = 3
"""Runs of each part of a full page."""
KIND = "kind.txt"
"""File of the output folder that says whether its measurements are short ones."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="results, page and table")
    text = "measure these alone (default: %(default)s)"
    parser.add_argument("--parts", default=",".join(NAMES), metavar="NAME,NAME", help=text)
    parser.add_argument("--quick", action="store_true", help="short measurements that show that everything runs")
    text = f"runs of each part but simulation, which repeats itself ({REPEATS}; 1 with --quick)"
    parser.add_argument("--repeats", type=whole, metavar="N", help=text)
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    names = [choose("part", name, NAMES) for name in args.parts.split(",")]
    if args.repeats == 0:
        raise UsageError("--repeats is 0, expected 1 or more.")
    output, kind = args.output, "quick" if args.quick else "full"
    _keep_kind(output, kind)
    from gantry_sim.benchmarks.page_rows import markdown_of, plain
    from gantry_sim.benchmarks.rates import machine
    from gantry_sim.benchmarks.summary import measure, page_of

    repeats = args.repeats or (1 if args.quick else REPEATS)
    try:
        rows = measure(names, output, args.quick, repeats, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print(f"Stopped; the same command goes on in {output}.")
        raise
    hardware, versions = machine(), _versions()
    text = markdown_of(rows)
    write_whole(output / "table.md", text.encode())
    page = page_of(rows, hardware | versions, names, args.quick).write(output / "report.html")
    print(f"{text}Report: {page.resolve()}\nTable:  {(output / 'table.md').resolve()}")
    return {"hardware": hardware, "versions": versions, "quick": args.quick, "rows": plain(rows)}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _keep_kind(output: Path, kind: str) -> None:
    """Refuse to mix short and full measurements in one folder, or to write into a foreign one."""
    path = output / KIND
    if path.is_file():
        before = path.read_text(encoding="utf-8").strip()
        if before != kind:
            raise GantryError(f"'{output}' holds {before} measurements, not {kind} ones; name another folder.")
        return
    if output.exists() and (not output.is_dir() or _foreign(output)):
        raise GantryError(f"'{output}' is in use already and holds no measurements; name another folder.")
    output.mkdir(parents=True, exist_ok=True)
    write_whole(path, kind.encode())


def _foreign(output: Path) -> bool:
    """Whether a folder holds something else than measurements of peers."""
    return any(item.name != PEERS_FILE for item in output.iterdir())


COMMAND = Command(
    name="page",
    help="all of these on one page, beside peers where they run here",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Measure simulation, learning, the runtime's loops, mapping and hand-overs of this machine, one after the "
        "other, and put them on one page with hardware and versions: report.html, table.md for a README, and JSON. "
        "What is compared is measured in turns in one run, and told as a ratio with its spread; a number without "
        "repeats says 'one run'. Takes up to an hour, or a quarter of an hour with --repeats 1; the same command "
        "continues an interrupted measurement. Other load on the machine shows in the numbers."
    ),
    epilog="examples:\n  gantry bench page --output runs/bench --json bench.json\n"
    "  gantry bench page --output runs/bench-quick --quick --parts runtime,mapping\n\n"
    "UniLab, Isaac Lab, EnvPool and a plain C++ loop are measured from a checkout of the sources alone, by\n"
    "scripts/measure/peers/compare.py --output runs/bench; the next page in that folder has their rows.",
)
