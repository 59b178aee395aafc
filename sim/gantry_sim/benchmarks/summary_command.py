"""``gantry bench page``: one page of numbers of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, add_json_option, choose
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole
from gantry_sim.benchmarks.text import PEERS_FILE

NAMES = ("simulation", "learning", "runtime", "mapping", "corrections")
"""Parts, in order."""
PACKAGES = ("gantry-rl", "torch", "mujoco", "mjlab", "rsl-rl-lib", "onnxruntime")
"""Packages that the page gives the versions of."""
KIND = "kind.txt"
"""File of the output folder that says whether its measurements are short ones."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="results, page and table")
    text = f"of {', '.join(NAMES)}; all if not given"
    parser.add_argument("--parts", default=",".join(NAMES), metavar="NAME,NAME", help=text)
    parser.add_argument("--quick", action="store_true", help="short measurements that show that everything runs")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    names = [choose("part", name, NAMES) for name in args.parts.split(",")]
    output, kind = args.output, "quick" if args.quick else "full"
    _keep_kind(output, kind)
    from importlib.metadata import version

    from gantry_sim.benchmarks.rates import machine
    from gantry_sim.benchmarks.summary import markdown_of, measure, page_of, plain

    try:
        rows = measure(names, output, args.quick, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print(f"Stopped; the same command goes on in {output}.")
        raise
    about = machine() | {name: version(name) for name in PACKAGES}
    text = markdown_of(rows)
    write_whole(output / "table.md", text.encode())
    page = page_of(rows, about, names, args.quick).write(output / "report.html")
    print(f"{text}Report: {page.resolve()}\nTable:  {(output / 'table.md').resolve()}")
    return {"machine": about, "quick": args.quick, "rows": plain(rows)}


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
        "What is compared is measured in turns in one run, and told as a ratio with its spread. Takes a quarter of an "
        "hour; an interrupted one goes on. Other load on the machine shows in the numbers."
    ),
    epilog="examples:\n  gantry bench page --output runs/bench --json bench.json\n"
    "  gantry bench page --output runs/bench-quick --quick --parts runtime,mapping",
)
