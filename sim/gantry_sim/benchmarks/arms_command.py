"""``gantry bench arms``: cloning, learning with demonstrations, and correcting a clone, on the same task."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option
from gantry_sim.benchmarks.text import whole_numbers
from gantry_sim.cli.common import changed, steps, whole
from gantry_sim.tasks.names import require_task


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="yam-lift", metavar="TASK", help="a manipulation task (default: yam-lift)")
    parser.add_argument("--methods", default="bc,rlpd,resfit", metavar="NAME,NAME", help="what to compare")
    parser.add_argument("--seeds", default="1,2,3", metavar="N,N", help="seeds of every method (default: 1,2,3)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="time to learn of each run")
    parser.add_argument(
        "--steps", type=steps, default=0, metavar="N", help="environment steps of each run instead, for example 60k"
    )
    parser.add_argument(
        "--demos", type=whole, metavar="N", help="demonstrations; as measured for the task if not given"
    )
    parser.add_argument("--suboptimality", type=float, metavar="B", help="of the expert; likewise")
    parser.add_argument("--episodes", type=whole, default=200, help="held-out episodes of each evaluation")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where everything goes")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="env.FIELD=VALUE",
        dest="changes",
        help="change a field of the task",
    )
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    require_task(args.task)
    for change in args.changes:
        if not change.startswith("env."):
            raise UsageError(f"--set {change}: only fields of the task, env.NAME, are alike in all methods.")
    from gantry_sim.benchmarks.arms import RECIPES, BenchCfg, Recipe, bench_lines, bench_page, run_bench
    from gantry_sim.benchmarks.comparison import compare
    from gantry_sim.tasks.registry import find_task

    recipe = RECIPES.get(args.task, Recipe(BenchCfg.demos, BenchCfg.suboptimality))
    cfg = BenchCfg(
        task=args.task,
        seeds=whole_numbers("--seeds", args.seeds),
        methods=tuple(args.methods.split(",")),
        minutes=args.minutes,
        steps=args.steps,
        updates=recipe.updates,
        only_successes=recipe.only_successes,
        demos=recipe.demos if args.demos is None else args.demos,
        suboptimality=recipe.suboptimality if args.suboptimality is None else args.suboptimality,
        changes=tuple(args.changes),
        episodes=args.episodes,
    )
    for method in cfg.methods:
        changed(find_task(args.task).preset(method), cfg.changes)  # A typo is found now and not in the third run.
    output = args.output
    return compare(output, lambda: run_bench(cfg, output), bench_lines, lambda found: bench_page(cfg, output, found))


ARMS = Command(
    name="arms",
    help="compare ways to learn a manipulation task",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Record demonstrations that leave something to be learned, clone them, and let the other methods learn from "
        "them and from the clone, every seed as long as asked for. A table, and curves of success over steps and over "
        "time. The same command goes on after an interruption."
    ),
    epilog="""examples:
  gantry bench arms --task yam-lift --steps 60k --output runs/arms-lift
  gantry bench arms --task yam-insert --seeds 1 --minutes 10 --methods bc,resfit --output runs/arms-insert""",
)
