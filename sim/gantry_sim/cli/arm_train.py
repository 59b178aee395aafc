"""``gantry train`` for manipulation tasks: clone, or learn by trying, evaluate, export."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import find_run, near_miss
from gantry_deploy.cli.command import UsageError, counted
from gantry_sim.cli.common import ProgressBar, bar, clock
from gantry_sim.cli.way_back import log_scores, way_back
from gantry_sim.training.run_validation import RunError, require_fresh

if TYPE_CHECKING:
    from gantry_sim.training.arm.demos import DemoSet
    from gantry_sim.training.arm.run_config import ArmRun
    from gantry_sim.training.arm.train import ArmProgress

STEPS_FIELDS = ("bc.steps", "train.total_steps")
"""Fields of a preset that ``--steps`` sets."""
DEFAULT_PRESET = "bc"
"""Default preset: everything else builds upon it or is measured against it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Offer what only manipulation tasks take."""
    group = parser.add_argument_group("manipulation tasks")
    group.add_argument("--demos", type=Path, metavar="FOLDER", help="dataset to learn from, see `gantry collect`")
    group.add_argument(
        "--base", type=Path, metavar="RUN", help="run folder of the cloned policy to build upon, its demos included"
    )
    group.add_argument("--minutes", type=float, metavar="M", help="time to learn at most, without evaluations")


def configure(args: argparse.Namespace) -> tuple[ArmRun, Path, bool]:
    """The run that the command line describes, its folder, and whether it is a resumed one."""
    _check(args)
    from gantry_sim.training.arm.run_config import read_arm_run

    if args.resume is not None:
        return read_arm_run(args.resume), args.resume, True
    return *_begin(args), False


def _check(args: argparse.Namespace) -> None:
    """Refuse what can be refused before the learning libraries are loaded, which takes seconds."""
    if args.resume is not None:
        return
    if args.teacher is not None:
        raise UsageError("--teacher is for students of locomotion tasks; manipulation tasks take --base RUN.")
    if args.steps is not None and any(change.partition("=")[0] in STEPS_FIELDS for change in args.changes):
        raise UsageError(f"--steps and --set {' or '.join(STEPS_FIELDS)} mean the same; give one of them.")
    if args.minutes is not None and not args.minutes > 0:
        raise UsageError(f"--minutes is {args.minutes:g}, expected more than 0.")
    if args.run_dir is not None:
        require_fresh(args.run_dir)
    if args.demos is not None and not args.demos.is_dir():
        raise RunError(f"--demos: there is no dataset in '{args.demos}'.{near_miss(args.demos)}")
    if args.base is not None:
        find_run(args.base, RunError)


def _begin(args: argparse.Namespace) -> tuple[ArmRun, Path]:
    """Make a new run with its own copies of what it learns from."""
    from gantry_sim.training.arm.bases import copy_base
    from gantry_sim.training.arm.run_config import create_arm_run, read_arm_run
    from gantry_sim.training.arm.train import require_room

    run = _described(args)
    demos = _demonstrations(args, run)
    require_room(run)
    folder = create_arm_run(run, args.run_dir)
    if demos is not None:
        demos.save(folder)
    if args.base is not None:
        copy_base(args.base, folder)
    return read_arm_run(folder), folder


def _described(args: argparse.Namespace) -> ArmRun:
    from gantry_sim.gym.task import find_any_task
    from gantry_sim.training.arm.algorithms import BcPreset, find_method, preset_of
    from gantry_sim.training.arm.overrides import changed_preset
    from gantry_sim.training.arm.run_config import ArmRun, check_arm_run, read_arm_run, with_seed

    task = find_any_task(args.task)
    name = args.preset or DEFAULT_PRESET
    find_method(task, name)
    preset = preset_of(task, name)
    field = STEPS_FIELDS[0 if isinstance(preset, BcPreset) else 1]
    changes = [*args.changes, *([] if args.steps is None else [f"{field}={args.steps}"])]
    seed = 1 if args.seed is None else args.seed
    demos = args.demos
    if demos is None and args.base is not None:
        demos = read_arm_run(args.base).demos  # those that the base was cloned from, of which it has a copy
    run = ArmRun(
        task,
        name,
        changed_preset(with_seed(preset, seed), changes),
        seed,
        args.device or "cpu",
        1,  # Threads share out products of this size at a loss.
        args.minutes or 0.0,
        str(demos or ""),
        str(args.base or ""),
    )
    check_arm_run(run)
    return run


def _demonstrations(args: argparse.Namespace, run: ArmRun) -> DemoSet | None:
    """Demonstrations of a new run; they are read, and found to fit, as its base is, before anything is written."""
    from gantry_sim.training.arm.bases import open_base
    from gantry_sim.training.arm.demos import expected_demos, load_demos, read_dataset

    if args.base is not None:
        open_base(args.base, run)
    if args.demos is not None:
        demos = read_dataset(args.demos, expected_demos(run))
    else:
        demos = None if args.base is None else load_demos(args.base)
    if demos is not None:
        demos.require(expected_demos(run), run.demos or run.base)
    return demos


def train(args: argparse.Namespace) -> int | dict[str, Any]:
    """Do what the command line asks for."""
    run, folder, resume = configure(args)
    from gantry_sim.training.arm.train import train_arm

    word = "Resuming" if resume else "Training"
    print(f"{word} {run.task.name} ({run.preset_name}, seed {run.seed}) in {folder}", flush=True)
    display = ArmDisplay(run.minutes)
    with way_back(folder):
        outcome = train_arm(run, folder, resume=resume, on_progress=display.update)
        display.close()
        if not outcome.complete:
            print("Stopped; nothing is lost.", file=sys.stderr)
            raise KeyboardInterrupt
        return _finish(args, folder)


def _finish(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Evaluate and export what has been trained."""
    from gantry_sim.training.arm.evaluate import score_lines, score_source, verdicts
    from gantry_sim.training.arm.policies import open_arm_source, open_trained
    from gantry_sim.training.run_files import EVALUATION_FILE, write_json

    trained = open_trained(folder)
    run = trained.run
    print(f"Trained for {trained.wall_s:.0f} s" + (f", {trained.env_steps} steps." if trained.env_steps else "."))
    result: dict[str, Any] = {
        "run": str(folder),
        "task": run.task.name,
        "preset": run.preset_name,
        "seed": run.seed,
        "env_steps": trained.env_steps,
        "train_wall_s": round(trained.wall_s, 1),
    }
    if args.episodes > 0:
        scores = score_source(open_arm_source(folder), args.episodes, on_progress=ProgressBar("evaluate").share)
        write_json(folder / EVALUATION_FILE, {**result, **scores})
        result["evaluation"] = scores
        log_scores(folder, scores, trained.env_steps or trained.steps)
        print(f"{counted(args.episodes, 'held-out episode')}, seed {scores['seed']}, with 95 % intervals:")
        print("\n".join(score_lines(scores)))
        if run.has_contract:
            result["passed"] = all(verdict.passed for verdict in verdicts(scores, run.contract().acceptance))
    if run.has_contract and not args.no_export:
        from gantry_sim.training.arm.export import export_arm_run

        bundle = export_arm_run(folder, trained)
        result["bundle"] = str(bundle)
        print(f"Bundle: {bundle}\nNext:   gantry check {bundle}")
    return result


class ArmDisplay:
    """One line with steps, speed, success and time left; plain lines without a terminal.

    Args:
        minutes: When it ends at the latest; 0 for no such limit.
    """

    def __init__(self, minutes: float) -> None:
        self._limit_s = 60.0 * minutes
        self._live = sys.stderr.isatty()
        self._shown = 0.0
        self._first: ArmProgress | None = None

    def update(self, progress: ArmProgress) -> None:
        """Show a row of metrics; evaluations get lines of their own."""
        if progress.evaluation is not None:
            self._evaluated(progress)
            return
        first = self._first = self._first or progress
        now = time.monotonic()
        last = progress.done >= progress.total
        if not last and now - self._shown < (0.2 if self._live else 10.0):
            return
        self._shown = now
        speed = (progress.done - first.done) / max(1e-9, progress.wall_s - first.wall_s)
        left_s = (progress.total - progress.done) / speed if speed else 0.0
        share = progress.done / progress.total
        if self._limit_s:
            left_s, share = self._limit_s - progress.wall_s, max(share, min(1.0, progress.wall_s / self._limit_s))
        parts = [f"{progress.phase}  {progress.done} of {progress.total}", f"{speed:.0f}/s"]
        metrics = progress.metrics
        if "success_in_training" in metrics:
            parts.append(f"success {100 * metrics['success_in_training']:.0f} %")
        if "value" in metrics:
            parts.append(f"value {metrics['value']:.2f}")
        if "validation_l1" in metrics:
            parts.append(f"error {metrics['validation_l1']:.3f}")
        parts.append(f"{clock(progress.wall_s)} + {clock(max(0.0, left_s))} left")
        self._line(f"train {bar(share)} {100 * share:3.0f} %  " + "  ".join(parts), ends=last)

    def close(self) -> None:
        """End the line."""
        if self._live:
            sys.stderr.write("\n")

    def _evaluated(self, progress: ArmProgress) -> None:
        found = progress.evaluation
        assert found is not None
        score = found.success_once
        steps = "" if found.steps_to_success is None else f", {found.steps_to_success:.0f} steps"
        text = f"look after {progress.done}, {clock(progress.wall_s)}: success {100 * score.mean:.0f} % "
        self._line(text + f"[{100 * score.low:.0f}, {100 * score.high:.0f}] of {found.episodes}{steps}", ends=True)

    def _line(self, text: str, *, ends: bool) -> None:
        sys.stderr.write(f"\r\x1b[2K{text}" + ("\n" if ends else "") if self._live else text + "\n")
        sys.stderr.flush()
