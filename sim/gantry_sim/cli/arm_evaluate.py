"""``gantry eval`` for manipulation tasks: shares of successes, of a run, a bundle, or a scripted expert."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import UsageError, choose, counted, emit_result
from gantry_sim.cli.common import ProgressBar
from gantry_sim.gym.names import is_gym_task
from gantry_sim.tasks.names import arm_task_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Offer what only manipulation tasks take."""
    group = parser.add_argument_group("manipulation tasks")
    group.add_argument(
        "--expert",
        type=float,
        metavar="B",
        help="name a task instead of a run, and score its scripted expert of badness B, 0 to 1",
    )
    group.add_argument(
        "--hold", action="store_true", help="let episodes go on after a success, to see whether it lasts to their end"
    )


def evaluate(args: argparse.Namespace, path: Path | None) -> int:
    """Score, say so, and hold it against what the task asks for.

    Args:
        args: The command line.
        path: Of the run or bundle; None for an expert.

    Raises:
        GantryError: If there is no such thing, or an option does not belong here.
    """
    if args.model is not None or args.suite is not None:
        raise UsageError("--model and --suite are for locomotion tasks.")
    if path is None:
        choose("manipulation task", str(args.source), arm_task_names())
        if not 0.0 <= args.expert <= 1.0:
            raise UsageError(f"--expert is {args.expert:g}, expected a badness from 0 to 1.")
    from gantry_sim.training.arm.evaluate import score_lines, score_source, verdicts
    from gantry_sim.training.arm.policies import expert_source, open_arm_source
    from gantry_sim.training.run_files import EVALUATION_SEED

    seed = EVALUATION_SEED if args.seed is None else args.seed
    source = expert_source(str(args.source), args.expert, seed) if path is None else open_arm_source(path)
    if seed == source.trained_seed:
        raise UsageError(
            f"Seed {seed} is the one that '{args.source}' was trained with; held-out episodes need another."
        )
    scores = score_source(source, args.episodes, seed=seed, hold=args.hold, on_progress=ProgressBar("evaluate").share)
    print(f"{counted(args.episodes, 'held-out episode')} of {source.task.name}, seed {seed}, with 95 % intervals:")
    print("\n".join(score_lines(scores)))
    about: dict[str, Any] = {"source": str(args.source), "task": source.task.name}
    found = []
    if not is_gym_task(source.task.name):
        acceptance = source.task.contract(source.env_cfg).acceptance
        about["acceptance"], found = asdict(acceptance), verdicts(scores, acceptance)
    for verdict in found:
        print(f"{'pass' if verdict.passed else 'FAIL'}  {verdict.name:<28}{verdict.text}")
    passed = all(verdict.passed for verdict in found)
    emit_result(args, about | {"passed": passed} | scores)
    return 0 if passed else 1
