"""``gantry eval``: score a trained run or a bundle on held-out episodes of its task."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import WHERE_SOURCE, find_source
from gantry_deploy.cli.command import Command, UsageError, add_json_option, counted, emit_result, seed_number
from gantry_hardware.errors import UnknownNameError
from gantry_sim.cli.common import INTERVAL, ProgressBar, print_scores, print_verdicts, whole
from gantry_sim.tasks.names import require_task

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
        help="simulate the training model, the full one (every collision shape, finer physics), or both (default), of "
        "tasks that have both",
    )
    parser.add_argument("--suite", metavar="NAME", help="a larger evaluation of the task, for example ame2")
    parser.add_argument(
        "--scripted",
        type=float,
        nargs="?",
        const=0.0,
        metavar="B",
        help="name a task instead of a run, and score its scripted policy, of suboptimality B from 0 to 1 (default: 0) "
        "where it can err on purpose",
    )
    parser.add_argument(
        "--hold",
        action="store_true",
        help="of tasks whose episodes end with success: let them go on, to see whether it lasts to their end",
    )
    add_json_option(parser)


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    if args.episodes < 1:
        raise UsageError("--episodes is 0, expected at least 1.")
    if args.scripted is not None and not 0.0 <= args.scripted <= 1.0:
        raise UsageError(f"--scripted is {args.scripted:g}, expected a suboptimality from 0 to 1.")
    source, seed = _source(args)
    task = source.task
    if seed == source.trained_seed:
        raise UsageError(
            f"Seed {seed} is the one that '{args.source}' was trained with; held-out episodes need another."
        )
    result: dict[str, Any] = {"source": str(args.source), "task": task.name, "seed": seed}
    if source.weights_sha256:
        result["weights_sha256"] = source.weights_sha256
        print(f"weights {source.weights_sha256}")
    if args.suite is not None:
        return result | _suite(args.suite, source, args.episodes, seed)
    result |= _scores(args, source, seed)
    passed = True
    if task.has_contract:
        acceptance = task.contract(source.env_cfg).acceptance
        result["acceptance"] = asdict(acceptance)
        passed = print_verdicts(result[JUDGED if JUDGED in result else "full_model"], acceptance)
    result["passed"] = passed
    emit_result(args, result)
    return 0 if passed else 1


def _source(args: argparse.Namespace) -> tuple[Source, int]:
    """The policy to be scored, and the seed of its episodes."""
    scripted = args.scripted is not None
    path = args.source if scripted else find_source(args.source)
    if scripted:
        require_task(str(path))
    from gantry_sim.training.policies import open_source, scripted_source
    from gantry_sim.training.run_files import EVALUATION_SEED

    seed = EVALUATION_SEED if args.seed is None else args.seed
    source = scripted_source(str(path), args.scripted, seed) if scripted else open_source(path)
    if not args.hold:
        return source, seed
    if not hasattr(source.env_cfg, "end_on_success"):
        raise UsageError(f"--hold is for tasks whose episodes end with success; those of {source.task.name} do not.")
    return replace(source, env_cfg=replace(source.env_cfg, end_on_success=False)), seed


def _scores(args: argparse.Namespace, source: Source, seed: int) -> dict[str, Any]:
    from gantry_sim.training.evaluate import evaluate_policy

    models = source.task.models if args.model in (None, "both") else (args.model,)
    if not set(models) <= set(source.task.models):
        raise UsageError(f"--model {args.model}: {source.task.name} has {', '.join(source.task.models)} alone.")
    result = {}
    for model in models:
        scores = evaluate_policy(
            source.task,
            source.env_cfg,
            source.make_policy,
            episodes=args.episodes,
            seed=seed,
            full_model=model == "full",
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
            source.make_policy,
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
  gantry eval ame2-go2 --scripted --suite ame2 --episodes 144
  gantry eval yam-lift --scripted 0.3
  gantry eval drive-lane --scripted --episodes 50""",
)
