"""``gantry demo``: from nothing to a policy that moves a robot over ROS 2, and one report about all of it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.bundle.locate import WHERE_SOURCE, bundle_in, find_bundle, find_source
from gantry_deploy.cli.command import Command, UsageError, add_json_option, emit_result, seed_number
from gantry_hardware.robots import robot_spec
from gantry_sim.cli import demo_arm, demo_goals
from gantry_sim.cli.common import ProgressBar, add_set_option, changed
from gantry_sim.tasks.names import require_task

if TYPE_CHECKING:
    from gantry_sim.demo.outcome import Outcome
    from gantry_sim.demo.pipeline import DemoConfig

TASK = "velocity-flat-go2"
"""Default task."""
SECONDS = 20.0
"""Length of a recorded walk if none is given."""
PRETRAINED = "pretrained:go2-walk"
"""The policy of ``--pretrained``."""
EPISODES, CHECK_EPISODES, QUICK_CHECK_EPISODES = 200, 20, 6
"""Held-out episodes, and those of the gate, the last where nothing is trained."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    policy = parser.add_mutually_exclusive_group()
    policy.add_argument("--task", metavar="TASK", help=f"what to train, see `gantry tasks` (default: {TASK})")
    policy.add_argument("--pretrained", action="store_true", help="train nothing, show the policy that comes along")
    policy.add_argument("--bundle", metavar="PATH", help=f"train nothing, show this: {WHERE_SOURCE}")
    add_set_option(parser)
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="where to write, new or empty; runs/demo-<time> if not given"
    )
    parser.add_argument("--seed", type=seed_number, default=1, help="of the training and of the gate")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help="length of the recorded walk; its velocity error is judged from 12 s on",
    )
    parser.add_argument("--no-ros", action="store_true", help="walk in this process, without ROS 2")
    parser.add_argument("--no-video", action="store_true", help="leave out the film")
    parser.add_argument("--episodes", type=int, default=EPISODES, metavar="N", help="held-out episodes; 0 for none")
    parser.add_argument(
        "--check-episodes",
        type=int,
        metavar="N",
        help=f"episodes of the gate; {CHECK_EPISODES}, or {QUICK_CHECK_EPISODES} if nothing is trained",
    )
    demo_goals.add_arguments(parser)
    demo_arm.add_arguments(parser)
    add_json_option(parser)


def _run(args: argparse.Namespace) -> int:
    is_arm = demo_arm.applies(args, _of_walks(args))
    bundle = _check(args, is_arm)
    if is_arm:
        return demo_arm.run(args, bundle)
    if demo_goals.applies(args, bundle, _asked_for(args)):
        assert bundle is not None
        return demo_goals.run(args, bundle)
    config = configure(args, bundle)
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.demo.pipeline import REPORT, Demo, Display, Interrupted, as_result

    begin = time.monotonic()
    print(f"Gantry demo in {config.output}", flush=True)
    bar = ProgressBar("train")
    display = Display(
        say=lambda text: print(text, flush=True), progress=bar.update, share=lambda title: ProgressBar(title).share
    )
    try:
        with interrupt_on_terminate():
            outcome = Demo(config, display).run()
    except Interrupted:
        bar.close()
        print(f"Stopped while training; nothing is lost. Go on with: gantry train --resume {config.output}")
        print(f"and then: gantry demo --bundle {config.output}")
        return 130
    except KeyboardInterrupt:
        print(f"\nStopped; every process of the demo has ended. What there is lies in {config.output}", file=sys.stderr)
        return 130
    _print_scores(outcome)
    print(f"{'Passed' if outcome.passed else 'NOT passed'} after {_minutes(time.monotonic() - begin)}.")
    print(f"Report: {(config.output / REPORT).resolve()}")
    bundle = outcome.bundle.path
    print(f"Bundle: {bundle}\nNext:   gantry check {bundle}, or watch it: gantry play {bundle}")
    emit_result(args, as_result(outcome))
    return 0 if outcome.passed else 1


def configure(args: argparse.Namespace, bundle: Path | None) -> DemoConfig:
    """Build the settings from the command line.

    Args:
        args: The command line.
        bundle: The policy to show; None to train one.

    Raises:
        GantryError: If there is no such task, or no such field of its preset.
    """
    from gantry_sim.demo.pipeline import DemoConfig
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.run_config import RunCfg

    check_episodes = args.check_episodes or (CHECK_EPISODES if bundle is None else QUICK_CHECK_EPISODES)
    task = find_task(args.task or TASK)
    if robot_spec(task.robot).embodiment == "car":
        raise UsageError(f"--task {task.name}: there is no demo of cars yet; gantry train and gantry eval know them.")
    run = RunCfg(task, "cpu", changed(task.preset("cpu"), args.changes), "cpu", args.seed)
    return DemoConfig(
        run=run if bundle is None else None,
        output=args.output or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S"),
        bundle=bundle,
        seed=args.seed,
        ros=not args.no_ros,
        seconds=args.seconds,
        episodes=args.episodes,
        check_episodes=check_episodes,
        video=not args.no_video,
    )


def _check(args: argparse.Namespace, is_arm: bool) -> Path | None:
    """Refuse what can be refused before the learning libraries are loaded; the bundle to show, or None."""
    for name, value, least in (("seconds", args.seconds, 2.0), ("episodes", args.episodes, 0)):
        if not value >= least:
            raise UsageError(f"--{name} is {value:g}, expected {least:g} or more.")
    if args.check_episodes is not None and args.check_episodes < 1:
        raise UsageError(f"--check-episodes is {args.check_episodes}, expected 1 or more.")
    asked = PRETRAINED if args.pretrained else args.bundle
    if asked is not None and args.changes:
        raise UsageError("--set changes a training, and with --bundle or --pretrained nothing is trained.")
    folder: Path | None = args.output
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"'{folder}' is in use already; name another folder for this demo with --output.")
    if asked is None:
        if not is_arm:
            require_task(args.task or TASK)
        return None
    path = find_bundle(bundle_in(find_source(asked)))
    from gantry_deploy.bundle.bundle import load_bundle

    load_bundle(path)
    return path


def _asked_for(args: argparse.Namespace) -> tuple[str, ...]:
    """Options that were given and that only a policy has which follows velocities."""
    given = {"no-ros": args.no_ros, "episodes": args.episodes not in (0, EPISODES)}
    given["check-episodes"] = args.check_episodes is not None
    return tuple(name for name, was in given.items() if was)


def _of_walks(args: argparse.Namespace) -> tuple[str, ...]:
    """Options that were given and that only policies have which walk."""
    given = {"seconds": args.seconds != SECONDS, "check-episodes": args.check_episodes is not None}
    given |= {"pretrained": args.pretrained, "set": bool(args.changes)}
    given |= {name: getattr(args, name) not in (None, []) for name in ("terrain", "difficulty", "goal")}
    return tuple(name for name, was in given.items() if was)


def _print_scores(outcome: Outcome) -> None:
    scores = outcome.scores()
    width = max(len(score.name) for score in scores)
    for score in scores:
        verdict = {None: "    ", True: "pass", False: "FAIL"}[score.passed]
        sign = "at least" if score.above else "at most"
        limit = "" if score.limit is None else f"  ({sign} {score.text(score.limit)})"
        print(f"{verdict}  {score.name:<{width}}  {score.text(score.value)}{limit}")
    if not outcome.judges_velocity:
        print("The velocity error of so short a walk has no verdict: most of it is changes of command.")


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


COMMAND = Command(
    name="demo",
    help="train a Go2 or an arm, export it, run it over ROS 2, and write a report",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Train a policy on this machine's CPU, score it on held-out episodes, export it as a bundle, put it through "
        "the gate, start a simulated robot and the policy as two ROS 2 nodes, drive them for a while, and write all "
        "of it into one self-contained report.html. With the bundle of a policy that walks to goals by a map, camera, "
        "mapping, policy and operator are ROS 2 nodes that cross held-out terrain. With --arm, demonstrations are "
        "cloned, the clone is corrected by trying, and the result moves a simulated arm over ROS 2. Exit code 0 if "
        "every threshold is met, or every terrain crossed, 1 if one is not; the report is written either way."
    ),
    epilog="""examples:
  gantry demo
  gantry demo --pretrained
  gantry demo --bundle runs/walk --seconds 10 --no-video --json demo.json
  gantry demo --bundle runs/student --terrain t1,t2
  gantry demo --arm
  gantry demo --arm --demos 20 --steps 8k --trials 5""",
)
