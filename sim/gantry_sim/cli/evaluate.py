"""``gantry eval``: score a trained run or a bundle on held-out episodes of its task."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import WHERE_SOURCE, find_source
from gantry_deploy.cli.command import Command, UsageError, add_json_option, counted, emit_result, seed_number
from gantry_hardware.errors import UnknownNameError
from gantry_sim.cli import arm_evaluate
from gantry_sim.cli.common import INTERVAL, ProgressBar, is_about_arms, print_scores, print_verdicts, whole
from gantry_sim.tasks.names import is_arm_task, require_task
from gantry_sim.training.run_validation import SCRIPTS

if TYPE_CHECKING:
    from gantry_sim.training.policies import Source


JUDGED = "training_model"
"""Model whose scores are held against the acceptance of the task; those of the full model are for comparison."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="RUN|BUNDLE", type=Path, help=WHERE_SOURCE)
    parser.add_argument("--episodes", type=whole, default=200, help="how many, side by side")
    parser.add_argument("--seed", type=seed_number, help="of the held-out episodes; not the one of the training")
    parser.add_argument(
        "--model",
        choices=("training", "full", "both"),
        help="simulate the training model, the full one (every collision shape, finer physics), or both (default)",
    )
    parser.add_argument("--suite", metavar="NAME", help="a larger evaluation of the task, for example ame2")
    parser.add_argument("--driver", choices=SCRIPTS, help="name a task instead of a run, and score its scripted policy")
    arm_evaluate.add_arguments(parser)
    add_json_option(parser)


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    if args.episodes < 1:
        raise UsageError("--episodes is 0, expected at least 1.")
    if args.expert is not None and args.driver is not None:
        raise UsageError("--expert is for manipulation tasks and --driver for others; give one of them.")
    if args.expert is not None:
        return arm_evaluate.evaluate(args, None)
    path = args.source if args.driver is not None else find_source(args.source)
    if args.driver is None and is_about_arms(path):
        return arm_evaluate.evaluate(args, path)
    if args.hold:
        raise UsageError("--hold is for manipulation tasks.")
    if args.driver is not None:
        require_task(str(path))
        if is_arm_task(str(path)):
            raise UsageError("--driver is not for manipulation tasks; --expert 0 scores their scripted expert.")
    args.model = args.model or "both"
    from gantry_sim.training.evaluate import EVALUATION_SEED
    from gantry_sim.training.policies import open_script, open_source

    source = open_source(path) if args.driver is None else open_script(str(path), args.driver)
    seed = EVALUATION_SEED if args.seed is None else args.seed
    if seed == source.trained_seed:
        raise UsageError(
            f"Seed {seed} is the one that '{args.source}' was trained with; held-out episodes need another."
        )
    acceptance = source.task.contract(source.env_cfg).acceptance
    result: dict[str, Any] = {
        "source": str(args.source),
        "task": source.task.name,
        "seed": seed,
        "acceptance": asdict(acceptance),
    }
    if args.suite is not None:
        return result | _suite(args.suite, source, args.episodes, seed)
    result |= _scores(args, source, seed)
    judged = JUDGED if JUDGED in result else "full_model"
    result["passed"] = print_verdicts(result[judged], acceptance)
    emit_result(args, result)
    return 0 if result["passed"] else 1


def _scores(args: argparse.Namespace, source: Source, seed: int) -> dict[str, Any]:
    from gantry_sim.training.evaluate import evaluate_policy

    result = {}
    for full in {"training": (False,), "full": (True,), "both": (False, True)}[args.model]:
        scores = evaluate_policy(
            source.task,
            source.env_cfg,
            source.policy,
            episodes=args.episodes,
            seed=seed,
            full_model=full,
            on_progress=ProgressBar("evaluate").share,
        )
        result[f"{scores['model']}_model"] = scores
        number = counted(args.episodes, "held-out episode")
        print(f"{number} of {source.task.name}, {scores['model']} model, seed {seed}: {INTERVAL}")
        print_scores(scores)
    return result


def _suite(name: str, source: Source, episodes: int, seed: int) -> dict[str, Any]:
    from gantry_sim.process.torch_threads import torch_threads

    suites = source.task.suites
    if name not in suites:
        raise UnknownNameError(f"suite of {source.task.name}", name, suites)
    with torch_threads(1):
        scores = suites[name].run(
            source.task,
            source.env_cfg,
            source.policy,
            episodes=episodes,
            device="cpu",
            seed=seed,
            on_progress=ProgressBar("evaluate").share,
        )
    print(f"Suite '{name}' of {source.task.name}: share of successful episodes, 95 % interval, number; seed {seed}")
    print("\n".join(suites[name].lines(scores)))
    return {"suite": name, **scores}


COMMAND = Command(
    name="eval",
    help="score a run or a bundle on held-out episodes of its task",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Run episodes that training never saw, in the training environment, and hold the scores against what the "
        "task's contract asks for. Exit code 0 if all of it is met, 1 if something is missed; a suite asks for nothing."
    ),
    epilog="""examples:
  gantry eval runs/walk
  gantry eval pretrained:go2-walk --episodes 50 --model training
  gantry eval runs/ame2 --suite ame2
  gantry eval runs/lift-resfit --episodes 200
  gantry eval ame2-go2 --driver rules --suite ame2 --episodes 144
  gantry eval yam-lift --expert 0.3""",
)
