"""``gantry train``: learn a task, evaluate, export."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import find_run
from gantry_deploy.cli.command import Command, UsageError, add_json_option, counted
from gantry_hardware.errors import GantryError
from gantry_hardware.training.one_process import require_one_process
from gantry_sim.cli import arm_train
from gantry_sim.cli.common import (
    INTERVAL,
    ProgressBar,
    add_set_option,
    changed,
    preset_for,
    print_scores,
    print_verdicts,
    steps,
    whole,
)
from gantry_sim.cli.way_back import log_scores, way_back
from gantry_sim.tasks.catalogue import require_preset
from gantry_sim.tasks.names import arm_task_names, is_arm_task, require_task
from gantry_sim.training.run_validation import (
    LENGTH_FIELDS,
    SCRIPTS,
    RunError,
    require_fresh,
    require_teacher,
    trained_task,
)

if TYPE_CHECKING:
    from gantry_policies.on_policy.trainer import PpoTrainer
    from gantry_sim.training.run_config import RunCfg


STEPS_FIELD = LENGTH_FIELDS[0]
"""Field of a preset that ``--steps`` sets."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="task name; see `gantry tasks`")
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="cpu or gpu, chosen by the device if not given; of manipulation tasks a method, see `gantry tasks TASK`",
    )
    parser.add_argument("--device", help="cpu, or a CUDA device such as cuda:0 (default: cpu)")
    parser.add_argument("--seed", type=int, help="of everything random (default: 1)")
    parser.add_argument(
        "--run-dir", type=Path, metavar="FOLDER", help="where to write, new or empty; a folder in runs/ if not given"
    )
    parser.add_argument(
        "--teacher",
        type=Path,
        metavar="RUN",
        help="run folder of a trained policy to learn from; or rules: the task's scripted policy, on roads and lots, "
        "or for walks to goals (ame2-go2)",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FOLDER",
        help="continue the run in FOLDER where it stopped; further than was planned with --steps",
    )
    parser.add_argument(
        "--steps", type=steps, metavar="N", help="how long: control steps of all environments, for example 200k or 1.5M"
    )
    add_set_option(parser)
    parser.add_argument("--episodes", type=whole, default=200, help="episodes of the evaluation; 0 for none")
    parser.add_argument("--no-export", action="store_true", help="leave out the bundle")
    arm_train.add_arguments(parser)
    add_json_option(parser)


def configure(args: argparse.Namespace) -> tuple[RunCfg, Path, bool]:
    """The run that the command line describes, its folder, and whether it is a resumed one."""
    _check(args)
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.run_config import RunCfg, check_run, create_run, lengthen_run, read_run
    from gantry_sim.training.teachers import copy_teacher, load_teacher

    changes = [*args.changes, *([] if args.steps is None else [f"{STEPS_FIELD}={args.steps}"])]
    if args.resume is not None:
        cfg = read_run(args.resume)
        if changes:
            cfg = lengthen_run(cfg, args.resume, changed(cfg.preset, changes))
        return cfg, args.resume, True
    task = find_task(args.task)
    device = args.device or "cpu"
    preset_name = preset_for(device, args.preset, list(task.presets))
    script, preset = _script(args), task.preset(preset_name)
    teacher = None if script else args.teacher
    if script:
        preset = task.script(script).preset(preset)
    elif teacher is not None:
        preset = replace(preset, env=task.follow(preset.env, read_run(teacher).preset.env))
    preset = changed(preset, changes)
    seed = 1 if args.seed is None else args.seed
    cfg = RunCfg(task, preset_name, preset, device, seed, teacher=teacher, script=script)
    check_run(cfg)
    load_teacher(cfg)  # says what does not fit before anything is written
    folder = create_run(cfg, args.run_dir)
    if teacher is not None:
        copy_teacher(teacher, folder)
    return read_run(folder), folder, False


def _check(args: argparse.Namespace) -> None:
    """Refuse what can be refused before the learning libraries are loaded, which takes seconds."""
    require_one_process()
    twice = args.steps is not None and any(change.partition("=")[0] == STEPS_FIELD for change in args.changes)
    if args.resume is not None:
        _check_resumed(args)
    elif args.task is None:
        raise UsageError("Name a task (see `gantry tasks`), or a run to continue with --resume FOLDER.")
    else:
        require_task(args.task)
        if args.preset is not None:
            require_preset(args.task, args.preset)
        if is_arm_task(args.task):
            return
        for name in ("demos", "base", "minutes"):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name} is for manipulation tasks: {', '.join(arm_task_names())}.")
    if twice:
        raise UsageError(f"--steps and --set {STEPS_FIELD} mean the same; give one of them.")
    if args.run_dir is not None:
        require_fresh(args.run_dir)
    if args.teacher is not None:
        require_teacher(str(args.teacher))


def _check_resumed(args: argparse.Namespace) -> None:
    others = (args.task, args.preset, args.device, args.seed, args.run_dir, args.teacher, args.demos, args.base)
    named = [change.partition("=")[0] for change in args.changes]
    if any(value is not None for value in (*others, args.minutes)) or not set(named) <= set(LENGTH_FIELDS):
        raise UsageError(
            "--resume continues a run as it was configured; leave out task, preset, device, seed, folder, teacher and "
            f"--set, but for what makes it longer: --steps, {' and '.join(LENGTH_FIELDS)}."
        )
    find_run(args.resume, RunError)
    if (args.changes or args.steps is not None) and is_arm_task(trained_task(args.resume)):
        raise UsageError("A run of a manipulation task is resumed as long as it was; leave out --steps and --set.")


def _script(args: argparse.Namespace) -> str:
    """Name of a script that shall teach; a folder of that name is meant by its whole path."""
    name = "" if args.teacher is None else str(args.teacher)
    return name if name in SCRIPTS else ""


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    _check(args)
    if is_arm_task(args.task if args.resume is None else trained_task(args.resume)):
        return arm_train.train(args)
    created = args.run_dir is None or not args.run_dir.exists()
    cfg, folder, resume = configure(args)
    from gantry_sim.training.train import train

    print(f"{'Resuming' if resume else 'Training'} {cfg.task.name} ({cfg.preset_name}, seed {cfg.seed}) in {folder}")
    if slow := cfg.task.slow_start(cfg.preset.env):
        print(slow, flush=True)
    print(f"Making {counted(cfg.preset.env.num_envs, 'environment')}.", flush=True)
    bar = ProgressBar("train")
    with way_back(folder), contextlib.nullcontext() if resume else _all_or_nothing(folder, created):
        runner, complete = train(cfg, folder, resume=resume, on_progress=bar.update, on_step=bar.step)
        if not complete:
            bar.close()
            print(f"Stopped at iteration {runner.iteration} of {runner.iterations}; nothing is lost.", file=sys.stderr)
            raise KeyboardInterrupt
        print(f"Trained {runner.env_steps / 1e6:.2f} M steps in {runner.wall_s:.0f} s.")
        return _finish(args, cfg, folder, runner)


@contextlib.contextmanager
def _all_or_nothing(folder: Path, created: bool) -> Iterator[None]:
    """Leave nothing of a new run that is refused before it has learned anything."""
    from gantry_sim.training.train import remove_untrained

    try:
        yield
    except GantryError:
        remove_untrained(folder, created=created)
        raise


def _finish(args: argparse.Namespace, cfg: RunCfg, folder: Path, runner: PpoTrainer) -> dict[str, Any]:
    """Evaluate and export what has been trained."""
    from gantry_sim.training.train import evaluate_run, export_run, policy_of

    result: dict[str, Any] = {
        "run": str(folder),
        "task": cfg.task.name,
        "preset": cfg.preset_name,
        "seed": cfg.seed,
        "env_steps": runner.env_steps,
        "train_wall_s": round(runner.wall_s, 1),
        "steps_per_s": round(runner.env_steps / runner.wall_s, 1),
    }
    if args.episodes > 0:
        result["evaluation"] = evaluate_run(
            cfg, folder, policy_of(runner), episodes=args.episodes, on_progress=ProgressBar("evaluate").share
        )
        log_scores(folder, result["evaluation"], runner.env_steps)
        for model in ("training_model", "full_model"):
            scores = result["evaluation"][model]
            number = counted(args.episodes, "held-out episode")
            print(f"{number}, {scores['model']} model, seed {scores['seed']}: {INTERVAL}")
            print_scores(scores)
        acceptance = cfg.task.contract(cfg.preset.env).acceptance
        result["passed"] = print_verdicts(result["evaluation"]["training_model"], acceptance)
    if not args.no_export:
        bundle = export_run(cfg, folder, runner)
        result["bundle"] = str(bundle)
        print(f"Bundle: {bundle}\nNext:   gantry check {bundle}")
    return result


COMMAND = Command(
    name="train",
    help="train a policy, evaluate it and export its bundle",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Train a task, score the policy on held-out episodes and export its bundle, all into one run folder. Ctrl-C "
        "saves; --resume goes on. The run folder holds curves for TensorBoard (tensorboard --logdir runs). Exit code 0 "
        "once it is trained, whatever the scores are: `gantry eval` and "
        "`gantry check` answer whether they are good enough."
    ),
    epilog="""examples:
  gantry train velocity-flat-go2
  gantry train velocity-flat-go2 --steps 200k --episodes 20     # a short one, to see how it goes
  gantry train velocity-flat-go1 --seed 3 --set env.num_envs=512 --set learner.gamma=0.98
  gantry train --resume runs/velocity-flat-go2-cpu-s1-20260101-120000
  gantry train --resume runs/velocity-flat-go2-cpu-s1-20260101-120000 --steps 4M     # and further than was planned
  gantry train velocity-flat-g1 --device cuda:0
  gantry train ame2-go2-student --teacher runs/ame2-go2-cpu-s1-20260101-120000
  gantry train yam-lift --demos demos/lift --run-dir runs/lift-bc
  gantry train yam-lift --preset resfit --base runs/lift-bc --minutes 60""",
)
