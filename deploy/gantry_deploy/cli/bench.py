"""``gantry bench``: measurements by name, from whichever packages are installed."""

from __future__ import annotations

import argparse
from typing import Any

from gantry_deploy.cli.command import Command
from gantry_deploy.cli.discovery import load_commands
from gantry_deploy.cli.parser import GantryParser
from gantry_hardware.plugins import entry_points

GROUP = "gantry.benchmarks"
"""Entry-point group of benchmarks: name = "module:BENCHMARK", a :class:`~gantry_deploy.cli.command.Command`."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    benchmarks, broken = load_commands(sorted(entry_points(group=GROUP), key=lambda entry: entry.name))
    sub = parser.add_subparsers(
        dest="subcommand", metavar="BENCHMARK", title="benchmarks", required=True, parser_class=GantryParser
    )
    for bench in benchmarks:
        description = bench.description or bench.help
        own = sub.add_parser(bench.name, help=bench.help, description=description, epilog=bench.epilog or None)
        bench.add_arguments(own)
        own.set_defaults(bench=bench)
    if broken:
        parser.epilog = "\n".join(["not available:", *(f"  {item.name}  {item.reason}" for item in broken)])


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    bench: Command = args.bench
    return bench.run(args)


COMMAND = Command(
    name="bench",
    help="measure on this machine: speed, timing, and policies against others",
    add_arguments=_add_arguments,
    run=_run,
    description="Measure what this machine can do. Other load on it shows in the numbers.",
)
