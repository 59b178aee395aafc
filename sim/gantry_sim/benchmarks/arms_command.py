"""``gantry bench arms``: cloning, learning with demonstrations, and correcting a clone, on the same task."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option, choose
from gantry_sim.cli.common import steps, whole
from gantry_sim.tasks.names import arm_task_names


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
    choose("manipulation task", args.task, arm_task_names())
    for change in args.changes:
        if not change.startswith("env."):
            raise UsageError(f"--set {change}: only fields of the task, env.NAME, are alike in all methods.")
    from gantry_sim.benchmarks.arms import RECIPES, BenchCfg, Recipe, collect_results, run_bench
    from gantry_sim.benchmarks.arms_report import bench_lines, bench_page
    from gantry_sim.tasks.manipulation.registry import find_arm_task
    from gantry_sim.training.arm.overrides import changed_env
    from gantry_sim.training.run_files import write_json

    recipe = RECIPES.get(args.task, Recipe(BenchCfg.demos, BenchCfg.suboptimality))
    cfg = BenchCfg(
        task=args.task,
        seeds=_seeds(args.seeds),
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
    changed_env(find_arm_task(args.task).make_cfg(), cfg.changes)  # A typo is found now and not in the third run.
    try:
        run_bench(cfg, args.output)
    except KeyboardInterrupt:
        print(f"Stopped; the same command goes on in {args.output}.")
        raise
    found = collect_results(cfg, args.output)
    write_json(args.output / "result.json", found)
    print("\n".join(bench_lines(found)))
    print(f"Report: {bench_page(cfg, args.output, found).write(args.output / 'report.html')}")
    return found


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--seeds {text}: expected whole numbers, for example 1,2,3.") from None


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
