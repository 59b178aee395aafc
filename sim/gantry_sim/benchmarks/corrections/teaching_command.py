"""``gantry bench teaching``: methods that learn from corrections, step by step in one process."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, add_json_option
from gantry_sim.benchmarks.text import whole_numbers
from gantry_sim.cli.common import steps, whole
from gantry_sim.tasks.names import require_task


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", default="yam-lift", metavar="TASK,TASK", help="manipulation tasks, one after the other"
    )
    parser.add_argument(
        "--methods",
        default="hil-serl,hil-weighted,dagger,clone,rlpd-alone",
        metavar="NAME,NAME",
        help="hil-serl, hil-weighted (each also with -gripper), hil-residual, dagger, clone, rlpd-alone",
    )
    parser.add_argument("--seeds", default="1,2,3", metavar="N,N", help="seeds of every method (default: 1,2,3)")
    parser.add_argument("--steps", type=steps, default=12_000, metavar="N", help="steps of all robots")
    parser.add_argument("--every", type=steps, default=2_000, metavar="N", help="steps between evaluations")
    parser.add_argument("--envs", type=whole, default=2, metavar="N", help="robots side by side (default: 2)")
    parser.add_argument("--episodes", type=whole, default=200, help="held-out episodes of each evaluation")
    parser.add_argument("--demos", type=whole, default=10, metavar="N", help="demonstrations at the start")
    parser.add_argument("--suboptimality", type=float, default=0.2, metavar="B", help="of the expert that demonstrates")
    parser.add_argument(
        "--settled", type=float, default=0.98, metavar="X", help="success twice in a row that ends a trial"
    )
    parser.add_argument("--wrong", type=float, default=0.0, metavar="X", help="share of corrections that do not help")
    parser.add_argument("--attention", type=float, default=1.0, metavar="X", help="share of attempts with a person")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="continued if it is begun")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    tasks = [require_task(name) for name in args.tasks.split(",")]
    seeds, methods = whole_numbers("--seeds", args.seeds), tuple(args.methods.split(","))
    from gantry_sim.benchmarks.comparison import compare
    from gantry_sim.benchmarks.corrections.teaching import TeachingBenchCfg, run_teaching_bench
    from gantry_sim.benchmarks.corrections.teaching_page import page, summary
    from gantry_sim.benchmarks.text import table_lines

    usual = TeachingBenchCfg(
        task=tasks[0],
        envs=args.envs,
        steps=args.steps,
        every=args.every,
        episodes=args.episodes,
        demos=args.demos,
        suboptimality=args.suboptimality,
        settled=args.settled,
        wrong=args.wrong,
        attention=args.attention,
    )

    def run() -> dict[str, Any]:
        say = partial(print, flush=True)
        return {
            name: run_teaching_bench(replace(usual, task=name), methods, seeds, args.output / name, say)
            for name in tasks
        }

    def lines(found: dict[str, Any]) -> list[str]:
        return [line for name in tasks for line in (f"{name}:", *table_lines(summary(found[name])))]

    args.output.mkdir(parents=True, exist_ok=True)
    return compare(args.output, run, lines, lambda found: page([found[name] for name in tasks]))


COMMAND = Command(
    name="teaching",
    help="methods that learn from a scripted person's corrections, step by step",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Environments, a scripted person that steps in when progress stalls, and a learner take turns in one process, "
        "so that the numbers do not depend on how busy the machine is. Every method begins with the same "
        "demonstrations and is scored on the same held-out episodes. The same command continues after an interruption."
    ),
    epilog="example:\n  gantry bench teaching --tasks yam-lift,yam-insert --seeds 1 --output bench/lift",
)
