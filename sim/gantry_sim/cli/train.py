"""``gantry train``: learn a task, evaluate, export."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option, emit_result
from gantry_sim.cli.common import ProgressBar, preset_for, print_scores

if TYPE_CHECKING:
    from gantry_sim.run_folder import RunCfg


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="task name; see `gantry tasks`")
    parser.add_argument("--preset", metavar="NAME", help="cpu or gpu; chosen by the device if not given")
    parser.add_argument("--device", default="cpu", help="cpu, or a CUDA device such as cuda:0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--run-dir", type=Path, metavar="FOLDER", help="where to write; a new folder in runs/ if not given"
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="continue the run in FOLDER where it stopped")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="changes",
        help="change a field of the preset, for example env.num_envs=512; may be given several times",
    )
    parser.add_argument("--episodes", type=int, default=200, help="episodes of the evaluation; 0 for none")
    parser.add_argument("--no-export", action="store_true", help="leave out the bundle")
    add_json_option(parser)


def configure(args: argparse.Namespace) -> tuple[RunCfg, Path, bool]:
    """The run that the command line describes, its folder, and whether it is a resumed one."""
    from gantry_deploy.structured import set_field
    from gantry_sim.run_folder import RunCfg, create_run, read_run
    from gantry_sim.tasks.registry import find_task

    if args.resume is not None:
        if args.task or args.changes or args.preset or args.run_dir:
            raise UsageError("--resume continues a run as it was configured; give no task, preset, folder or --set.")
        return read_run(args.resume), args.resume, True
    if args.task is None:
        raise UsageError("Name a task (see `gantry tasks`), or a run to continue with --resume FOLDER.")
    task = find_task(args.task)
    preset_name = preset_for(args.device, args.preset, list(task.presets))
    preset = task.preset(preset_name)
    for change in args.changes:
        path, equals, text = change.partition("=")
        if not equals:
            raise UsageError(f"--set {change}: expected FIELD=VALUE, for example env.num_envs=512.")
        preset = set_field(preset, path, text)
    cfg = RunCfg(task, preset_name, preset, args.device, args.seed)
    return cfg, create_run(cfg, args.run_dir), False


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    from gantry_sim.train import evaluate_run, export_run, policy_of, train

    cfg, folder, resume = configure(args)
    print(f"{'Resuming' if resume else 'Training'} {cfg.task.name} ({cfg.preset_name}, seed {cfg.seed}) in {folder}")
    bar = ProgressBar("train")
    runner, complete = train(cfg, folder, resume=resume, on_progress=bar.update)
    if not complete:
        bar.close()
        print(f"Stopped at iteration {runner.iteration} of {runner.iterations}; nothing is lost.", file=sys.stderr)
        print(f"Continue with: gantry train --resume {folder}", file=sys.stderr)
        return 130
    actor = policy_of(runner)
    result: dict[str, Any] = {
        "run": str(folder),
        "task": cfg.task.name,
        "preset": cfg.preset_name,
        "seed": cfg.seed,
        "env_steps": runner.env_steps,
        "train_wall_s": round(runner.wall_s, 1),
        "steps_per_s": round(runner.env_steps / runner.wall_s, 1),
    }
    print(f"Trained {runner.env_steps / 1e6:.2f} M steps in {runner.wall_s:.0f} s.")
    if args.episodes > 0:
        result["evaluation"] = evaluate_run(
            cfg, folder, actor, episodes=args.episodes, on_progress=ProgressBar("evaluate").share
        )
        for model in ("training_model", "full_model"):
            print(f"{args.episodes} held-out episodes, {model.replace('_', ' ')}:")
            print_scores(result["evaluation"][model])
    if not args.no_export:
        bundle = export_run(cfg, folder, runner)
        result["bundle"] = str(bundle)
        print(f"Bundle: {bundle}\nNext:   gantry check {bundle}")
    emit_result(args, result)
    return result


COMMAND = Command(
    name="train",
    help="train a policy, evaluate it and export its bundle",
    add_arguments=_add_arguments,
    run=_run,
    epilog="""examples:
  gantry train velocity-flat-go2
  gantry train velocity-flat-go1 --seed 3 --set env.num_envs=512 --set learner.gamma=0.98
  gantry train --resume runs/velocity-flat-go2-cpu-s1-20260101-120000
  gantry train velocity-flat-g1 --device cuda:0""",
)
