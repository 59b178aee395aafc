"""``gantry play``: watch a policy, in a window or as a film."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import WHERE_SOURCE, find_source
from gantry_deploy.cli.command import (
    Command,
    UsageError,
    add_json_option,
    counted,
    emit_result,
    output_file,
    parse_key_value,
    parse_numbers,
)
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole
from gantry_sim.cli import attention, play_car
from gantry_sim.cli.common import ProgressBar
from gantry_sim.training.run_files import contract_of

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="RUN|BUNDLE", type=Path, help=WHERE_SOURCE)
    parser.add_argument(
        "--video", type=output_file(".mp4"), metavar="FILE", help="write a film (.mp4) instead of opening a window"
    )
    parser.add_argument(
        "--command", type=parse_numbers, metavar="X,Y,YAW", help="what to ask of the policy instead of a course"
    )
    parser.add_argument(
        "--report",
        type=output_file(".html"),
        metavar="FILE",
        help="write an HTML report, of a car or with --attention",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="length of the film (default: 20; of cars: the whole episode)"
    )
    parser.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the simulated robot, for example friction=0.4; may be given several times",
    )
    attention.add_arguments(parser)
    play_car.add_arguments(parser)
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any] | int:
    attention.check(args)
    play_car.check(args)
    if args.seconds is not None and not args.seconds > 0:
        raise UsageError(f"--seconds is {args.seconds:g}, expected more than 0.")
    if play_car.drives_task(args):
        return play_car.run(args, None)
    source = find_source(args.source)
    contract = contract_of(source)
    to_file = args.video or args.report or args.stills
    if not to_file and not args.attention and not has_display():
        raise GantryError(
            "There is no display to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set). "
            "Write a film instead: --video FILE.mp4."
        )
    play = _film_task if contract is None else _PLAYERS.get(contract.embodiment, _film_task)
    return play(args, source)


def _drive(args: argparse.Namespace, source: Path) -> dict[str, Any]:
    """Car: a film from above or a report."""
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.viewing.play import bundle_of

    with interrupt_on_terminate(), bundle_of(source) as bundle:
        return play_car.run(args, bundle)


def _walk(args: argparse.Namespace, source: Path) -> dict[str, Any] | int:
    """Legs: a window, a film, or what the policy looks at."""
    from gantry_deploy.cli.run import command_array
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.viewing.play import KEY_HELP, LiveWalk, bundle_of

    with interrupt_on_terminate(), bundle_of(source) as bundle:
        _not_a_car(args)
        if args.attention:
            return attention.run(args, bundle)
        if len(bundle.contract.command.names) != 3:
            raise GantryError(
                f"The policy follows '{bundle.contract.command.kind}'; only velocities can be played. Policies that "
                "look at the ground can be watched with --attention."
            )
        command = None if args.command is None else command_array(bundle.contract, args.command)
        if args.video is not None:
            return _film(args, bundle)
        print(KEY_HELP, flush=True)
        LiveWalk(bundle, dict(args.option), lambda text: print(text, flush=True)).run(command)
    return 0


def _not_a_car(args: argparse.Namespace) -> None:
    play_car.require_none(args)
    if args.report is not None and not args.attention:
        raise UsageError("--report is written of cars, and with --attention.")
    args.seconds = 20.0 if args.seconds is None else args.seconds


def _balance(args: argparse.Namespace, source: Path) -> int:
    """Mechanism: a film of episodes as `gantry check` judges them."""
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.viewing.balance_film import film_balance
    from gantry_sim.viewing.play import bundle_of

    _not_a_car(args)
    if args.video is None or args.attention or args.command is not None:
        raise UsageError("This policy is filmed: give --video FILE.mp4, and neither --command nor --attention.")
    with interrupt_on_terminate(), bundle_of(source) as bundle:
        video, played = film_balance(bundle, args.seconds, dict(args.option), ProgressBar("film").share)
    _write_film(args, video)
    print(f"{bundle.contract.robot}: {counted(played.episodes, 'episode')}, {played.succeeded} balanced at the end")
    if played.trouble:
        print(f"An episode ended early: {played.trouble}")
    print(f"Film: {args.video.resolve()} ({len(video) / 1e6:.1f} MB)")
    emit_result(args, {"video": str(args.video.resolve()), **vars(played)})
    return 1 if played.trouble else 0


def _write_film(args: argparse.Namespace, video: bytes) -> None:
    try:
        write_whole(args.video, video)
    except OSError as error:
        raise GantryError(f"Cannot write the film to '{args.video}': {error.strerror}.") from error


def _film_task(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Any other: a film of the task that it was trained in."""
    _not_a_car(args)
    if args.video is None or args.attention or args.command is not None or args.option:
        raise UsageError(
            "This policy is filmed in the environment that it was trained in: give --video FILE.mp4, and "
            "neither --command nor --option nor --attention."
        )
    from gantry_sim.training.policies import open_source
    from gantry_sim.viewing.arm_film import film_source

    source = open_source(path)
    video, played = film_source(source, args.seconds, on_progress=ProgressBar("film").share)
    _write_film(args, video)
    print(f"{source.task.name}: {counted(played.episodes, 'episode')}, {played.succeeded} with success")
    print(f"Film: {args.video.resolve()} ({len(video) / 1e6:.1f} MB)")
    return {"video": str(args.video.resolve()), "episodes": played.episodes, "succeeded": played.succeeded}


def has_display() -> bool:
    """Whether a window can be opened."""
    if not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _film(args: argparse.Namespace, bundle: Bundle) -> int:
    from gantry_sim.demo.profile import DEMO_PROFILE, constant, describe, fitted
    from gantry_sim.viewing.play import make_film

    asked = constant(args.command, args.seconds) if args.command else DEMO_PROFILE
    profile = fitted(asked, args.seconds, bundle.contract.command)
    print(f"{bundle.contract.robot}: {describe(profile)}", flush=True)
    video, trouble = make_film(bundle, profile, dict(args.option), ProgressBar("film").share)
    _write_film(args, video)
    if trouble:
        print(f"The walk ended early: {trouble}")
    print(f"Film: {args.video.resolve()} ({len(video) / 1e6:.1f} MB)")
    emit_result(args, {"video": str(args.video.resolve()), "completed": not trouble, "trouble": trouble})
    return 1 if trouble else 0


_PLAYERS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any] | int]] = {
    "legs": _walk,
    "car": _drive,
    "mechanism": _balance,
}
"""Embodiment -> what plays its policies; all others are filmed in their task."""

COMMAND = Command(
    name="play",
    help="watch a policy in MuJoCo's viewer or a film; a car in a film from above or a report",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Walk a policy in plain MuJoCo through the loop and the safety limits that a robot has. With a display: an "
        "interactive window, driven by the keyboard. With --video: an MP4 of a course in every direction, or of one "
        "command, drawn off screen. A run folder is exported first, from its newest checkpoint. With --attention: a "
        "policy that walks to goals crosses terrain, and is drawn from above with its map, how unsure the map is, and "
        "where the policy looks. Policies of arms and cars are filmed in the environment that they were trained in, "
        "cars from above, with what each step was worth beside them; mechanisms in the episodes of `gantry check`."
    ),
    epilog="""examples:
  gantry play runs/walk
  gantry play walk.zip --video walk.mp4 --command 0.8,0,0.3 --seconds 8
  gantry play walk.zip --video ice.mp4 --option friction=0.3
  gantry play runs/ame2 --attention --terrain t1 --video t1.mp4
  gantry play ame2.zip --attention --report ame2.html --scores eval.json
  gantry play runs/lift-resfit --video lift.mp4 --seconds 15
  gantry play runs/traffic --video crash.mp4 --episode collision --episodes 64
  gantry play runs/traffic --report traffic.html --baselines
  gantry play drive-junction --driver scripted --video scripted.mp4""",
)
