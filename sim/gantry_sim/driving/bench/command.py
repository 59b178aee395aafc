"""``gantry bench drive``: speed of driving, and policies against simple drivers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, add_json_option, choose, seed_number
from gantry_deploy.cli.parser import GantryParser
from gantry_sim.benchmarks.text import whole_numbers
from gantry_sim.cli.common import add_set_option, steps, whole
from gantry_sim.tasks.names import task_names

PREFIX = "drive-"
"""Prefix of the names of driving tasks."""


def driving_tasks() -> list[str]:
    """Names of the driving tasks that are installed."""
    return [name for name in task_names() if name.startswith(PREFIX)]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    sub = parser.add_subparsers(dest="part", metavar="PART", title="parts", required=True, parser_class=GantryParser)
    for name, (text, add, run, description, epilog) in _PARTS.items():
        own = sub.add_parser(name, help=text, description=description, epilog=epilog)
        add(own)
        add_json_option(own)
        own.set_defaults(run_drive=run)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    return args.run_drive(args)


def _speed_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", metavar="NAME,NAME", help="driving tasks; all there are if not given")
    parser.add_argument("--cars", default="64,1024,8192", metavar="N,N", help="numbers of cars")
    parser.add_argument("--device", default="cpu", help="cpu, or a CUDA device such as cuda:0")
    parser.add_argument("--parts", metavar="NAME,NAME", help="core, environment, policy, learning; all if not given")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="least length of a measurement")
    parser.add_argument("--repeats", type=whole, default=3, metavar="N", help="measurements of each, in turns")
    parser.add_argument("--iterations", type=whole, default=2, metavar="N", help="of each training that count")
    parser.add_argument("--seed", type=seed_number, default=1)
    add_set_option(parser)


def _speed(args: argparse.Namespace) -> dict[str, Any]:
    tasks, cars = _tasks(args.tasks), whole_numbers("--cars", args.cars)
    from gantry_sim.driving.bench.speed import PARTS, SpeedCfg, bench_speed, speed_lines

    parts = PARTS if args.parts is None else tuple(args.parts.split(","))
    cfg = SpeedCfg(
        tasks=tasks,
        cars=cars,
        device=args.device,
        parts=parts,
        seconds=args.seconds,
        repeats=args.repeats,
        iterations=args.iterations,
        seed=args.seed,
        changes=tuple(args.changes),
    )
    result = bench_speed(cfg, lambda line: print(line, flush=True))
    print("\n".join(["", *speed_lines(result)]))
    return result


def _training_arguments(parser: argparse.ArgumentParser, seeds: str) -> None:
    parser.add_argument("--seeds", default=seeds, metavar="N,N", help="seeds of every training")
    parser.add_argument(
        "--steps", type=steps, default=0, metavar="N", help="decisions of each training, for example 300k; the preset's"
    )
    parser.add_argument("--episodes", type=whole, default=200, help="held-out episodes of each")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where all runs go")
    add_set_option(parser)


def _table_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", metavar="NAME,NAME", help="driving tasks; all there are if not given")
    parser.add_argument("--no-training", action="store_true", help="only what is trained in the folder already")
    parser.add_argument("--teacher", metavar="RUN", default="", help="teacher of all trainings, as of gantry train")
    parser.add_argument("--model", choices=("training", "full"), default="training", help="cars to be scored with")
    _training_arguments(parser, "1,2,3")


def _table(args: argparse.Namespace) -> dict[str, Any]:
    tasks, seeds = _tasks(args.tasks), whole_numbers("--seeds", args.seeds)
    from gantry_sim.benchmarks.comparison import compare
    from gantry_sim.driving.bench.report import table_text
    from gantry_sim.driving.bench.scoring import Held
    from gantry_sim.driving.bench.table import TableCfg, run_table

    held = Held(args.episodes, args.model == "full")
    cfg = TableCfg(
        tasks,
        seeds,
        steps=args.steps,
        changes=tuple(args.changes),
        teacher=args.teacher,
        train=not args.no_training,
        held=held,
    )

    def lines(found: dict[str, Any]) -> list[str]:
        tables = found["tasks"].items()
        texts = (["", *table_text(name, table, held.episodes, held.model, held.seed)] for name, table in tables)
        return [line for text in texts for line in text]

    return compare(args.output, lambda: run_table(cfg, args.output, lambda line: print(line, flush=True)), lines)


def _tasks(text: str | None) -> tuple[str, ...]:
    known = driving_tasks()
    return tuple(known if text is None else (choose("driving task", name, known) for name in text.split(",")))


_PARTS: dict[str, tuple[str, Any, Any, str, str]] = {
    "speed": (
        "decisions per second: dynamics, environment, policy, learning",
        _speed_arguments,
        _speed,
        "Measure decisions per second at several numbers of cars, everything in turns. Other load on the machine "
        "shows in the numbers.",
        "example:\n  gantry bench drive speed --tasks drive-lane --cars 64,1024,8192 --json speed.json",
    ),
    "table": (
        "trained policies against drivers that learned nothing",
        _table_arguments,
        _table,
        "Train what the folder does not hold yet, and score all seeds, a scripted driver, one at constant speed and "
        "one at random on the same held-out maps. Finished runs in the folder are taken whatever their names are. "
        "How long a training is counts in steps alone: its schedule is laid out in them. The same command goes on "
        "after an interruption.",
        "example:\n  gantry bench drive table --tasks drive-lane --seeds 1,2,3 --output runs/driving",
    ),
}
"""Name -> help, arguments, what it does, description and examples."""

DRIVE = Command(
    name="drive",
    help="speed of driving, and policies against simple drivers",
    add_arguments=_add_arguments,
    run=_run,
    description="Measure driving, in one of several parts.",
)
