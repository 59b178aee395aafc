"""``gantry sweep``: train a task several ways on the same samples, and compare."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option, choose
from gantry_sim.benchmarks.text import whole_numbers
from gantry_sim.cli.common import add_set_option, changed, whole
from gantry_sim.process.ray_cluster import LOCAL, require_ray_installed
from gantry_sim.tasks.names import task_names


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="task name; see `gantry tasks`")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="FIELD=VALUE,VALUE",
        help="a field and what to set it to, one variant each; several: every combination",
    )
    parser.add_argument("--seeds", default="1,2", metavar="N,N", help="seeds of every variant")
    parser.add_argument("--suite", metavar="NAME", default="", help="suite of the task that scores, for example ame2")
    parser.add_argument(
        "--episodes", type=whole, default=200, help="episodes of the evaluation, of each part of a suite"
    )
    parser.add_argument("--teacher", metavar="RUN", default="", help="run folder of the teacher, or scripted")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where all runs go")
    add = parser.add_argument_group("side by side, with the extra 'ray'").add_argument
    text = "run them on Ray: local for this machine's cores, or the address of a cluster such as auto"
    add("--ray", nargs="?", const=LOCAL, metavar="ADDRESS", help=text)
    add("--cpus", type=float, default=1.0, metavar="N", help="cores of a run on Ray")
    add("--gpus", type=float, default=0.0, metavar="N", help="GPUs of a run on Ray; none if not given")
    add_set_option(parser)
    add_json_option(parser)


def _varied(text: str) -> tuple[str, tuple[str, ...]]:
    field, equals, values = text.partition("=")
    if not equals or not all(values.split(",")):
        raise UsageError(f"--vary {text}: expected FIELD=VALUE,VALUE, for example learner.network=ame2,scan_mlp.")
    return field, tuple(values.split(","))


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.ray is not None:
        require_ray_installed()
    choose("task", args.task, task_names())  # A mistyped name is answered before the learning libraries are loaded.
    from gantry_hardware.errors import UnknownNameError
    from gantry_sim.benchmarks.comparison import compare
    from gantry_sim.benchmarks.ray_runs import RayCfg
    from gantry_sim.benchmarks.sweep import SweepCfg, run_sweep, sweep_lines, sweep_page, variants
    from gantry_sim.tasks.registry import find_task

    task = find_task(args.task)
    if args.suite and args.suite not in task.suites:
        raise UnknownNameError(f"suite of {task.name}", args.suite, task.suites)
    cfg = SweepCfg(
        task=task.name,
        vary=tuple(_varied(text) for text in args.vary),
        seeds=whole_numbers("--seeds", args.seeds),
        changes=tuple(args.changes),
        suite=args.suite,
        episodes=args.episodes,
        teacher=args.teacher,
    )
    for changes in variants(cfg).values():
        changed(task.preset("cpu"), changes)  # a typo is found now and not in the third run
    output, ray = args.output, None if args.ray is None else RayCfg(args.ray, args.cpus, args.gpus)
    run = partial(run_sweep, cfg, output, ray=ray)
    return compare(output, run, sweep_lines, lambda found: sweep_page(cfg, output, found))


COMMAND = Command(
    name="sweep",
    help="train a task several ways on the same samples, and compare",
    add_arguments=_add_arguments,
    run=_run,
    epilog="""examples:
  gantry sweep ame2-go2 --teacher scripted --vary learner.network=ame2,ame1,scan_mlp --suite ame2 --output runs/encoders
  gantry sweep velocity-flat-go2 --seeds 1,2,3,4 --ray --output runs/seeds
  gantry sweep velocity-flat-go2 --vary learner.gamma=0.97,0.99 --set learner.total_steps=1000000 --output runs/g""",
)
