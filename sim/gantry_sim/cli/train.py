"""``gantry train``: learn a task, evaluate, export."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import find_run, near_miss
from gantry_deploy.cli.command import Command, UsageError, add_json_option, counted
from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import load_dynamics
from gantry_hardware.plugins import entry_points
from gantry_hardware.training.launcher import launched
from gantry_sim.cli.actor_options import (
    actor_words,
    add_actor_options,
    check_actors,
    fleet_of,
    link_lines,
    listen_of,
    told_address,
)
from gantry_sim.cli.common import (
    INTERVAL,
    ProgressBar,
    add_set_option,
    amount_text,
    changed,
    cpu_notice,
    preset_for,
    print_scores,
    print_verdicts,
    steps,
    whole,
)
from gantry_sim.cli.way_back import log_scores, over_text, stopped_text, way_back
from gantry_sim.tasks.catalogue import require_preset
from gantry_sim.tasks.names import require_task
from gantry_sim.training.run_validation import SCRIPTED, RunError, is_planner, require_fresh, require_teacher

if TYPE_CHECKING:
    from gantry_hardware.training.trainer import Trainer
    from gantry_sim.tasks.registry import Preset, Task
    from gantry_sim.training.run_cfg import RunCfg


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "task name, see `gantry tasks`; also mjlab:NAME, isaaclab:NAME, gym:NAME and those of other packages"
    parser.add_argument("task", metavar="TASK", nargs="?", help=text)
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="cpu or gpu, chosen by the device if not given; others: see `gantry tasks TASK`",
    )
    parser.add_argument(
        "--algo",
        metavar="NAME",
        help=f"algorithm: {', '.join(sorted(entry.name for entry in entry_points(group='gantry.algorithms')))}; the "
        "preset's if not given",
    )
    parser.add_argument(
        "--device",
        help="cpu, or a CUDA device such as cuda:0 (default: cpu); Gantry's arms are simulated on the CPU anyway",
    )
    parser.add_argument("--seed", type=int, help="of everything random (default: 1)")
    parser.add_argument(
        "--run-dir", type=Path, metavar="FOLDER", help="where to write, new or empty; a folder in runs/ if not given"
    )
    parser.add_argument(
        "--teacher",
        type=Path,
        metavar="RUN",
        help="run folder of a trained policy to learn from; or scripted: the task's scripted policy, where it "
        "has one that teaches; or openpi:HOST:PORT, bundle:PATH, lerobot:FOLDER",
    )
    parser.add_argument("--demos", type=Path, metavar="FOLDER", help="dataset to learn from, see `gantry collect`")
    parser.add_argument(
        "--base", type=Path, metavar="RUN", help="run folder of the cloned policy to build upon, its demos included"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FOLDER",
        help="continue the run in FOLDER where it stopped; further than was planned with --steps",
    )
    parser.add_argument(
        "--steps",
        type=steps,
        metavar="N",
        help="how long: control steps of all environments, updates of a clone; for example 200k or 1.5M",
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="time to learn at most, without evaluations")
    parser.add_argument(
        "--dynamics",
        type=Path,
        metavar="FILE",
        help="machine of `gantry identify` around which training draws its robots; --set still wins",
    )
    add_set_option(parser)
    parser.add_argument("--episodes", type=whole, default=200, help="episodes of the evaluation; 0 for none")
    parser.add_argument("--no-export", action="store_true", help="leave out the bundle")
    add_json_option(parser)
    add_actor_options(parser)


def configure(args: argparse.Namespace) -> tuple[RunCfg, Path, bool]:
    """The run that the command line describes, its folder, and whether it is a resumed one."""
    _check(args)
    if args.resume is not None:
        return _resumed(args), args.resume, True
    from gantry_sim.training.begin import begin_run

    return *begin_run(_described(args), args.run_dir, ProgressBar("read").share), False


def _check(args: argparse.Namespace) -> None:
    """Refuse what can be refused before the learning libraries are loaded, which takes seconds."""
    check_actors(args)
    if args.resume is not None:
        given = (args.task, args.preset, args.algo, args.device, args.seed, args.run_dir, args.teacher, args.demos)
        if any(value is not None for value in (*given, args.base, args.minutes, args.dynamics)):
            raise UsageError(
                "--resume continues a run as it was configured; leave out everything but --steps, and --set of fields "
                "that make it longer."
            )
        find_run(args.resume, RunError)
        return
    if args.task is None:
        raise UsageError("Name a task (see `gantry tasks`), or a run to continue with --resume FOLDER.")
    require_task(args.task)
    if args.preset is not None:
        require_preset(args.task, args.preset)
    if args.minutes is not None and not args.minutes > 0:
        raise UsageError(f"--minutes is {args.minutes:g}, expected more than 0.")
    if args.run_dir is not None:
        require_fresh(args.run_dir)
    if args.teacher is not None:
        require_teacher(str(args.teacher))
    if args.demos is not None and not args.demos.is_dir():
        raise RunError(f"--demos: there is no dataset in '{args.demos}'.{near_miss(args.demos)}")
    if args.base is not None:
        find_run(args.base, RunError)
    if args.dynamics is not None:
        load_dynamics(args.dynamics)


def _resumed(args: argparse.Namespace) -> RunCfg:
    """The run to be continued, longer where that is asked for."""
    from gantry_sim.training.run_folder import algorithm_of, check_run, lengthen_run, read_run

    run = read_run(args.resume)
    algorithm = algorithm_of(run)
    changes = _with_steps(args, f"learner.{algorithm.length}")
    fields = [f"learner.{name}" for name in algorithm.may_grow]
    if others := sorted({change.partition("=")[0] for change in changes} - set(fields)):
        longer = f"only {' and '.join(fields)} may be raised" if fields else "such a run is as long as it was"
        raise UsageError(f"--resume continues a run as it was configured: {longer}, not {', '.join(others)}.")
    if changes:
        run = lengthen_run(run, args.resume, changed(run.preset, changes))
    check_run(run)
    return run


def _described(args: argparse.Namespace) -> RunCfg:
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.algorithms.registry import find_algorithm
    from gantry_sim.training.run_cfg import RunCfg
    from gantry_sim.training.run_folder import read_run

    task = find_task(args.task)
    device = args.device or "cpu"
    name, preset = _preset(args, task, device)
    algorithm = find_algorithm(preset.algorithm)
    scripted = str(args.teacher) == SCRIPTED
    planner = "" if args.teacher is None or not is_planner(str(args.teacher)) else str(args.teacher)
    teacher = None if scripted or planner else args.teacher
    if scripted:
        preset = task.require_scripted().preset(preset)
    elif teacher is not None:
        preset = replace(preset, env=task.follow(preset.env, read_run(teacher).preset.env))
    if args.dynamics is not None:
        try:
            env = task.around_machine(preset.env, load_dynamics(args.dynamics))
        except GantryError as error:
            raise GantryError(f"--dynamics {args.dynamics}: {error}") from error
        preset = replace(preset, env=env)
    demos = args.demos
    if demos is None and args.base is not None:
        demos = read_run(args.base).demos  # those that the base was cloned from, of which it has a copy
    threads = {} if algorithm.threads is None else {"learn_threads": algorithm.threads}
    return RunCfg(
        task,
        name,
        changed(preset, _with_steps(args, f"learner.{algorithm.length}")),
        device,
        1 if args.seed is None else args.seed,
        teacher=teacher,
        scripted_teacher=scripted,
        planner=planner,
        minutes=args.minutes or 0.0,
        demos=str(demos or ""),
        base=str(args.base or ""),
        **threads,
    )


def _preset(args: argparse.Namespace, task: Task, device: str) -> tuple[str, Preset]:
    """Name and preset that the command line asks for."""
    from gantry_sim.training.algorithms.registry import preset_by

    name = preset_for(device, args.preset, list(task.presets))
    preset = task.preset(name)
    if args.algo is None or args.algo == preset.algorithm:
        return name, preset
    if args.preset is not None:
        raise UsageError(f"Preset '{name}' is one of {preset.algorithm}; leave out --preset, or --algo {args.algo}.")
    return preset_by(task, args.algo, name)


def _with_steps(args: argparse.Namespace, field: str) -> list[str]:
    """Changes of the preset, ``--steps`` among them."""
    if args.steps is None:
        return args.changes
    if any(change.partition("=")[0] == field for change in args.changes):
        raise UsageError(f"--steps and --set {field} mean the same; give one of them.")
    return [*args.changes, f"{field}={args.steps}"]


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    place = launched()
    if place.count == 1:
        return _learn(args, lambda: configure(args))
    from gantry_sim.process.together import begun_by_first, together

    with together(place, args.device or "cpu"):
        return _learn(args, lambda: begun_by_first(lambda: configure(args)))


def _learn(args: argparse.Namespace, begin: Callable[[], tuple[RunCfg, Path, bool]]) -> int | dict[str, Any]:
    created = args.run_dir is None or not args.run_dir.exists()
    run, folder, resume = begin()
    from gantry_policies.common import processes
    from gantry_sim.training.train import train

    word = "Resuming" if resume else "Training"
    print(f"{word} {run.task.name} ({run.preset_name}, seed {run.seed}) in {folder}", flush=True)
    if notice := cpu_notice(run.preset_name, run.device, list(run.task.presets)):
        print(notice, flush=True)
    if slow := run.task.slow_start(run.preset.env):
        print(slow, flush=True)
    count = run.preset.env.num_envs * (args.actors or 1)
    print(f"Making {counted(count, 'environment')}.", flush=True)
    display = ProgressBar("train", run.minutes)
    with (
        way_back(folder, actor_words(args)),
        link_lines() if args.listen or args.actors else contextlib.nullcontext(),
        contextlib.nullcontext() if resume or not processes.is_first() else _all_or_nothing(folder, created),
    ):
        own: dict[str, Any] = {"listen": listen_of(args), "on_address": told_address, "fleet": fleet_of(args)}
        if processes.is_first():
            own |= {"on_progress": display.update, "on_step": display.step}
        trainer, complete = train(run, folder, resume=resume, **own)
        display.close()
        if not complete:
            print(stopped_text(trainer), file=sys.stderr)
            raise KeyboardInterrupt
        if not processes.is_first():
            return {"run": str(folder), "complete": True}
        if trainer.had_ended:
            print(over_text(run, folder, trainer, actor_words(args)))
            if _is_finished(args, run, folder):
                return {"run": str(folder), "task": run.task.name, "complete": True, "env_steps": trainer.env_steps}
            print("What is missing of its evaluation and its bundle is made now.")
        return _finish(args, folder, trainer)


def _is_finished(args: argparse.Namespace, run: RunCfg, folder: Path) -> bool:
    """Whether what follows a training is there already, as far as it is asked for, and no older than its end."""
    from gantry_deploy.bundle.files import MANIFEST
    from gantry_hardware.training.trainer import CHECKPOINTS
    from gantry_policies.common.checkpoint import list_checkpoints
    from gantry_sim.training.run_files import BUNDLE_FOLDER, EVALUATION_FILE

    made = [folder / EVALUATION_FILE] if args.episodes > 0 else []
    if run.task.has_contract and not args.no_export:
        made.append(folder / BUNDLE_FOLDER / MANIFEST)
    ended = max(path.stat().st_mtime for path in list_checkpoints(folder / CHECKPOINTS))
    return all(path.is_file() and path.stat().st_mtime >= ended for path in made)


@contextlib.contextmanager
def _all_or_nothing(folder: Path, created: bool) -> Iterator[None]:
    """Leave nothing of a new run that is refused before it has learned anything."""
    from gantry_sim.training.train import remove_untrained

    try:
        yield
    except GantryError:
        remove_untrained(folder, created=created)
        raise


def _finish(args: argparse.Namespace, folder: Path, trainer: Trainer) -> dict[str, Any]:
    """Evaluate and export what has been trained."""
    from gantry_sim.training.train import evaluate_run, export_run, open_trained

    run, trained = open_trained(folder, trainer)
    work = f"{amount_text(trained.env_steps)} steps" if trained.env_steps else f"{trained.done} {trainer.unit}s"
    print(f"Trained {work} in {trained.wall_s:.0f} s.")
    result: dict[str, Any] = {
        "run": str(folder),
        "task": run.task.name,
        "algorithm": run.preset.algorithm,
        "preset": run.preset_name,
        "seed": run.seed,
        "env_steps": trained.env_steps,
        "train_wall_s": round(trained.wall_s, 1),
        "steps_per_s": round(trained.env_steps / max(1e-9, trained.wall_s), 1),
    }
    if args.episodes > 0:
        scores = evaluate_run(run, folder, trained, episodes=args.episodes, on_progress=ProgressBar("evaluate").share)
        result["evaluation"] = scores
        log_scores(folder, scores, trained.env_steps or trained.done)
        for model in run.task.models:
            found = scores[f"{model}_model"]
            number = counted(args.episodes, "held-out episode")
            print(f"{number}, {found['model']} model, seed {found['seed']}: {INTERVAL}")
            print_scores(found)
        if run.task.has_contract:
            result["passed"] = print_verdicts(scores["training_model"], run.contract().acceptance)
    if run.task.has_contract and not args.no_export:
        bundle = export_run(run, folder, trained)
        result["bundle"] = str(bundle)
        print(f"Bundle: {bundle}\nNext:   gantry check {bundle}")
    return result


COMMAND = Command(
    name="train",
    help="train a policy, evaluate it and export its bundle",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Train a task, score the policy on held-out episodes and export its bundle, all into one run folder. Any "
        "algorithm trains any task whose observations and actions it supports. Ctrl-C saves; --resume goes on. The run "
        "folder holds curves for TensorBoard (tensorboard --logdir runs). Exit code 0 once it is trained, whatever the "
        "scores are: `gantry eval` and `gantry check` answer whether they are good enough."
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
  gantry train yam-lift --preset resfit --base runs/lift-bc --minutes 60
  gantry train yam-lift --algo ppo --minutes 10
  gantry train drive-lane --algo sac --minutes 10
  gantry train yam-lift --preset rlpd --demos demos/lift --actors 8 --ray auto
  torchrun --nproc-per-node 4 --no-python gantry train velocity-flat-go2 --device cuda     # a process for each GPU""",
)
