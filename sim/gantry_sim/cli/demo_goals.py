"""``gantry demo`` of a policy that walks to goals by a map: over held-out terrain, and by what its camera sees."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.cli.command import UsageError, emit_result, parse_numbers
from gantry_sim.cli.common import ProgressBar

if TYPE_CHECKING:
    from gantry_sim.demo.goal.outcome import GoalDemoConfig

DIFFICULTY = 0.5
"""Default difficulty."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Offer what belongs to a policy that walks to goals."""
    group = parser.add_argument_group("with --bundle, policies that walk to goals by a map")
    group.add_argument(
        "--terrain",
        action="append",
        default=[],
        metavar="T1,T2",
        help="where to walk: t1 to t4, which no policy was trained on, a training terrain, or flat (default: t1 to t4)",
    )
    group.add_argument("--difficulty", type=float, metavar="D", help=f"of the terrain, 0 to 1 (default: {DIFFICULTY})")
    group.add_argument(
        "--goal",
        type=parse_numbers,
        metavar="X,Y,YAW",
        help="from the start, in m and rad (default: the terrain's goal most ahead)",
    )


def applies(args: argparse.Namespace, bundle: Path | None, asked_for: tuple[str, ...]) -> bool:
    """Whether this is a demo of goals.

    Args:
        args: The command line.
        bundle: The policy to show; None to train one.
        asked_for: Options of the demo of velocities that were given.

    Raises:
        GantryError: If the bundle is refused, or if options and policy do not belong together.
    """
    from gantry_deploy.bundle.bundle import load_bundle
    from gantry_deploy.contract.policy_contract import BODY_POSE

    contract = None if bundle is None else load_bundle(bundle).contract
    goals = contract is not None and contract.command.kind == BODY_POSE
    given = [name for name in ("terrain", "difficulty", "goal") if getattr(args, name) not in (None, [])]
    if given and not goals:
        does = (
            f"'{bundle}' follows '{contract.command.kind}'" if contract else "what is trained here follows velocities"
        )
        raise UsageError(
            f"--{given[0]} belongs to a policy that walks to goals by a map ('{BODY_POSE}'), and {does}. Give such a "
            "policy with --bundle."
        )
    if goals and asked_for:
        raise UsageError(
            f"--{asked_for[0]} belongs to policies that follow velocities; this one walks to goals. Its episodes are "
            "counted by `gantry eval --suite ame2` and `gantry check`, and without ROS 2 it is shown by "
            "`gantry play --attention`."
        )
    return goals


def configure(args: argparse.Namespace, bundle: Path) -> GoalDemoConfig:
    """Build the settings from the command line.

    Raises:
        GantryError: If there is no such terrain, a number makes no sense, or the policy looks at no map.
    """
    if args.goal is not None and len(args.goal) != 3:
        raise UsageError(f"--goal has {len(args.goal)} numbers, expected 3: x and y in m, heading in rad.")
    from gantry_sim.demo.goal.outcome import HELD_OUT, GoalDemoConfig
    from gantry_sim.demo.goal.pipeline import check_config, resolve_terrain

    names = [name.strip() for text in args.terrain for name in text.split(",")]
    config = GoalDemoConfig(
        output=args.output or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S"),
        bundle=bundle,
        terrains=tuple(dict.fromkeys(map(resolve_terrain, names))) or HELD_OUT,
        difficulty=DIFFICULTY if args.difficulty is None else args.difficulty,
        goal=args.goal,
        seconds=args.seconds,
        video=not args.no_video,
    )
    check_config(config)
    return config


def run(args: argparse.Namespace, bundle: Path) -> int:
    """Walk, draw, write; 0 if every terrain was crossed, 1 if not, 130 after Ctrl-C."""
    config = configure(args, bundle)
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.demo.goal.outcome import in_words
    from gantry_sim.demo.goal.page import goal_result
    from gantry_sim.demo.goal.pipeline import GoalDemo
    from gantry_sim.demo.pipeline import REPORT, Display

    begin = time.monotonic()
    print(f"Gantry demo in {config.output}", flush=True)
    display = Display(
        say=lambda text: print(text, flush=True),
        progress=lambda progress: None,
        share=lambda title: ProgressBar(title).share,
    )
    try:
        with interrupt_on_terminate():
            outcome = GoalDemo(config, display).run()
    except KeyboardInterrupt:
        print(f"\nStopped; every process of the demo has ended. What there is lies in {config.output}", file=sys.stderr)
        return 130
    width = max(len(crossing.terrain) for crossing in outcome.crossings)
    for crossing in outcome.crossings:
        print(f"{'pass' if crossing.crossed else 'FAIL'}  {crossing.terrain:<{width}}  {in_words(crossing)}")
    crossed = sum(crossing.crossed for crossing in outcome.crossings)
    print(f"{crossed} of {len(outcome.crossings)} crossed, after {time.monotonic() - begin:.0f} s.")
    print(f"Report: {(config.output / REPORT).resolve()}")
    emit_result(args, goal_result(outcome))
    return 0 if outcome.passed else 1
