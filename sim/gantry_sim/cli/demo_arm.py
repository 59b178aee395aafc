"""``gantry demo --arm``: from nothing to a corrected clone that moves a simulated arm over ROS 2."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.bundle.locate import bundle_in, find_bundle, find_source
from gantry_deploy.cli.command import UsageError, choose, counted, emit_result
from gantry_hardware.errors import GantryError
from gantry_sim.cli.common import ProgressBar, steps, whole
from gantry_sim.tasks.names import arm_task_names

if TYPE_CHECKING:
    from gantry_sim.demo.arm.outcome import ArmOutcome
    from gantry_sim.demo.arm.pipeline import ArmDemoConfig

TASK = "yam-lift"
"""Default task."""
OPTIONS = {"demos": "demos", "suboptimality": "suboptimality", "clone_updates": "clone_updates", "steps": "steps"}
"""Options that say how much is learned, and the fields of the recipe that they set."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Offer what belongs to arms."""
    group = parser.add_argument_group("with --arm, the task of an arm, or a bundle of one")
    group.add_argument("--arm", action="store_true", help=f"show an arm; the task is {TASK} if none is named")
    group.add_argument("--demos", type=whole, metavar="N", help="demonstrations (default: 25)")
    group.add_argument(
        "--suboptimality", type=float, metavar="B", help="of their scripted expert, 0 to 1 (default: 0.5)"
    )
    group.add_argument("--clone-updates", type=steps, metavar="N", help="updates of the clone (default: 1000)")
    group.add_argument("--steps", type=steps, metavar="N", help="environment steps of the correction (default: 20k)")
    group.add_argument("--trials", type=whole, metavar="N", help="recorded episodes (default: 10)")


def applies(args: argparse.Namespace, asked_for: tuple[str, ...]) -> bool:
    """Whether this is a demo of an arm.

    Args:
        args: The command line.
        asked_for: Options that only other demos take and that were given.

    Raises:
        UsageError: If options do not belong together.
    """
    is_arm = args.arm or args.task in arm_task_names() or _is_arms(args.bundle)
    given = [name for name in (*OPTIONS, "trials") if getattr(args, name) is not None]
    if not is_arm:
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} belongs to demos of arms; ask for one with --arm.")
        return False
    if asked_for:
        raise UsageError(f"--{asked_for[0]} belongs to policies that walk, and this is the demo of an arm.")
    if args.bundle is not None:
        asked = [name for name in given if name in OPTIONS] + (["task"] if args.task is not None else [])
        if asked:
            raise UsageError(f"--{asked[0].replace('_', '-')} is about learning, and with --bundle nothing is learned.")
    return True


def _is_arms(source: str | None) -> bool:
    """Whether a bundle is an arm's; one that cannot be loaded is refused later, with its reason."""
    if source is None:
        return False
    from gantry_deploy.bundle.bundle import load_bundle

    try:
        return load_bundle(find_bundle(bundle_in(find_source(source)))).contract.embodiment == "arm"
    except GantryError:
        return False


def configure(args: argparse.Namespace, bundle: Path | None) -> ArmDemoConfig:
    """Build the settings from the command line.

    Args:
        args: The command line.
        bundle: The policy to show; None to learn one.

    Raises:
        GantryError: If something in it makes no sense.
    """
    task = args.task or TASK
    choose("manipulation task", task, arm_task_names())
    for name, least in (("demos", 2), ("trials", 1)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} is {value}, expected {least} or more.")
    if args.suboptimality is not None and not 0.0 <= args.suboptimality <= 1.0:
        raise UsageError(f"--suboptimality is {args.suboptimality:g}, expected 0 to 1.")
    from gantry_sim.demo.arm.learning import Recipe, arm_task
    from gantry_sim.demo.arm.pipeline import ArmDemoConfig, require_arm

    given = {field: getattr(args, name) for name, field in OPTIONS.items() if getattr(args, name) is not None}
    recipe = Recipe(task, episodes=args.episodes, seed=args.seed, **given)
    if bundle is None:
        arm_task(recipe)
    else:
        from gantry_deploy.bundle.bundle import load_bundle

        require_arm(load_bundle(bundle))
    return ArmDemoConfig(
        output=args.output or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S"),
        recipe=recipe,
        bundle=bundle,
        ros=not args.no_ros,
        video=not args.no_video,
        **({} if args.trials is None else {"trials": args.trials}),
    )


def run(args: argparse.Namespace, bundle: Path | None) -> int:
    """Learn, record, draw, write; 0 if nothing was missed, 1 if something was, 130 after Ctrl-C."""
    config = configure(args, bundle)
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.cli.arm_train import ArmDisplay
    from gantry_sim.demo.arm.learning import Display, TrainingStopped
    from gantry_sim.demo.arm.outcome import arm_result
    from gantry_sim.demo.arm.pipeline import ArmDemo

    begin = time.monotonic()
    print(f"Gantry demo in {config.output}", flush=True)
    trainings = ArmDisplay(0.0)
    collecting = ProgressBar("collect")
    display = Display(
        say=lambda text: print(text, flush=True),
        collected=lambda done: collecting.share(done.episodes / config.recipe.demos),
        progress=trainings.update,
        share=lambda title: ProgressBar(title).share,
    )
    try:
        with interrupt_on_terminate():
            outcome = ArmDemo(config, display).run()
    except TrainingStopped as stopped:
        trainings.close()
        print(f"Stopped while training; nothing is lost. Go on with: gantry train --resume {stopped.args[0]}")
        return 130
    except KeyboardInterrupt:
        print(f"\nStopped; every process of the demo has ended. What there is lies in {config.output}", file=sys.stderr)
        return 130
    _print_outcome(outcome)
    print(f"{'Passed' if outcome.passed else 'NOT passed'} after {time.monotonic() - begin:.0f} s.")
    result = arm_result(outcome)
    print(f"Report: {result['report']}")
    print(f"Bundle: {outcome.bundle.path}\nNext:   gantry check {outcome.bundle.path}")
    emit_result(args, result)
    return 0 if outcome.passed else 1


def _print_outcome(outcome: ArmOutcome) -> None:
    scores = outcome.all_scores()
    width = max(len(score.name) for score in scores)
    for score in scores:
        verdict = {None: "    ", True: "pass", False: "FAIL"}[score.passed]
        limit = (
            "" if score.limit is None else f"  ({'at least' if score.above else 'at most'} {score.text(score.limit)})"
        )
        print(f"{verdict}  {score.name:<{width}}  {score.text(score.value)}{limit}")
    done = 0 if outcome.measured is None else outcome.measured.done
    print(f"{done} of {counted(outcome.asked, 'recorded episode')} with success.")
