"""``gantry session start``: a policy, a robot, a person, and perhaps a learner."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import WHERE
from gantry_deploy.cli.command import (
    UsageError,
    add_json_option,
    choose,
    counted,
    emit_result,
    output_file,
    parse_key_value,
    parse_numbers,
)
from gantry_deploy.control.safety_config import safety_config
from gantry_deploy.depth.attached import add_depth_argument, with_depth
from gantry_deploy.embodiments.registry import embodiment_of, simulated_backends
from gantry_deploy.perception.maps import needs_map
from gantry_deploy.session.config import SessionCfg
from gantry_hardware.backends.registry import backend_names, make_backend, moves_metal
from gantry_hardware.files.bounds import finite

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle
    from gantry_deploy.control.safety_config import SafetyConfig
    from gantry_deploy.session.live import LearnerLink
    from gantry_deploy.session.resets import SceneLayout
    from gantry_deploy.session.run import SessionRun
    from gantry_deploy.session.snapshot import SessionSnapshot
    from gantry_deploy.teleop.operator import TeleopDevice
    from gantry_hardware.backends.backend import Robot

MAX_DURATION_S = 30 * 86400.0
"""Longest session."""


@dataclass(frozen=True)
class Surroundings:
    """Parts that a program around the session brings along, for example a ROS 2 node; None or empty for the usual."""

    devices: Mapping[str, Callable[..., TeleopDevice]] = field(default_factory=dict)
    """Operator's devices that it makes itself, by name: callables as in the registry."""
    robot: Callable[[Bundle], Robot] | None = None
    """Makes the robot; not connected yet."""
    safety: SafetyConfig | None = None
    """Limits and timeouts."""
    layout: SceneLayout | None = None
    """Lays out the scene of a robot that cannot do it itself."""
    tell: Sequence[Callable[[SessionSnapshot], None]] = ()
    """Called about ten times a second with the newest snapshot."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    usual = SessionCfg()
    parser.add_argument(
        "bundle", metavar="BUNDLE", nargs="?", help=f"{WHERE}; the learner's own if it is left out with --learner"
    )
    parser.add_argument("--backend", help=f"robot: {', '.join(backend_names())}; if not given {simulated_backends()}")
    parser.add_argument("--option", type=parse_key_value, action="append", default=[], metavar="KEY=VALUE",
                        help="option of the backend; may be given several times")  # fmt: skip
    add_depth_argument(parser)
    parser.add_argument("--device", action="append", default=[], metavar="NAME",
                        help="the operator's device, keyboard if not given; several are combined")  # fmt: skip
    parser.add_argument("--device-option", type=parse_key_value, action="append", default=[], metavar="KEY=VALUE",
                        help="option of the device; of one of several as NAME.KEY=VALUE")  # fmt: skip
    parser.add_argument(
        "--learner", metavar="HOST:PORT", help="send every step to this learner, and act with its weights"
    )
    parser.add_argument("--identity", default="robot", metavar="NAME", help="name of this actor at the learner")
    parser.add_argument("--certificates", type=Path, metavar="FOLDER",
                        help="authority.crt, NAME's certificate and key: 'gantry session certificates'")  # fmt: skip
    parser.add_argument("--spool", type=Path, metavar="FOLDER",
                        help="folder of unsent steps; ./gantry-spool/NAME if not given")  # fmt: skip
    parser.add_argument(
        "--dataset",
        type=Path,
        metavar="FOLDER",
        help="write every attempt into a LeRobot v3 dataset; one that is there is continued",
    )
    parser.add_argument(
        "--record", type=output_file(".mcap"), metavar="FILE", help="write every tick to a new MCAP file"
    )
    parser.add_argument("--page", nargs="?", type=int, const=0, metavar="PORT",
                        help="serve a page for the person on this machine; a free port if none is named")  # fmt: skip
    parser.add_argument("--attempts", type=int, default=usual.max_attempts, metavar="N",
                        help="end after so many attempts; 0 for no end")  # fmt: skip
    parser.add_argument("--duration", type=float, default=MAX_DURATION_S, metavar="S", help="end after so many seconds")
    parser.add_argument(
        "--episode-s", type=float, metavar="S", help="length of an attempt; the task's own if not given"
    )
    parser.add_argument("--classifier", type=Path, metavar="FILE",
                        help="ONNX file of a reward classifier, which judges success")  # fmt: skip
    parser.add_argument("--wait", action="store_true", help="wait for 'start' before every attempt, also in simulation")
    parser.add_argument("--no-explore", action="store_true", help="act without the exploration noise of the learner")
    parser.add_argument("--safety", type=parse_key_value, action="append", default=[], metavar="KEY=VALUE",
                        help="setting of the safety machine; may be given several times")  # fmt: skip
    parser.add_argument("--command", type=parse_numbers, metavar="X,Y,YAW", help="what to ask of a policy that walks")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X",
                        help="factor on the clock that a simulated robot does not outrun; 0 for none")  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="confirm that a real robot may move")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int | dict[str, Any]:
    """Do what the command line asks for."""
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_deploy.process.stopping import stop_on_interrupt

    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupt_on_terminate())
        session, link = open_session(args, stack)
        with stop_on_interrupt(session.close):
            session.run(args.duration)
    result = session_result(session, link)
    _print_files(args)
    emit_result(args, result)
    return 1 if result["loop"]["fault"] is not None else 0


def session_result(session: SessionRun, link: LearnerLink | None) -> dict[str, Any]:
    """Counts of a session that is over, as plain data; they are printed as well."""
    result = session.summary()
    result["learner"] = None if link is None else link.statistics()
    _print_summary(result)
    return result


def _print_files(args: argparse.Namespace) -> None:
    """Print the files that were written, with the command that shows them."""
    for path in (args.dataset, None if args.record is None else Path(args.record)):
        if path is not None and path.exists():
            print(f"Look at it: gantry session replay {path}")


def _settings(args: argparse.Namespace) -> SessionCfg:
    """Refuse what can be refused before anything is loaded."""
    if args.bundle is None and args.learner is None:
        raise UsageError("Give a BUNDLE, or --learner HOST:PORT for the learner's own bundle.")
    if args.backend is not None:
        choose("robot backend", args.backend, backend_names())
    if args.attempts < 0:
        raise UsageError(f"--attempts is {args.attempts}, expected 0 or more.")
    if args.episode_s is not None:
        finite("--episode-s", args.episode_s, 0.01, MAX_DURATION_S, UsageError)
    if args.record is not None and Path(args.record).exists():
        raise UsageError(
            f"--record: '{args.record}' exists already, and a recording is not continued; name another file."
        )
    finite("--speed", args.speed, 0.0, 1000.0, UsageError)
    finite("--duration", args.duration, 0.001, MAX_DURATION_S, UsageError)
    return SessionCfg(episode_s=args.episode_s, auto_start=not args.wait, max_attempts=args.attempts)


def open_session(
    args: argparse.Namespace, stack: contextlib.ExitStack, around: Surroundings | None = None
) -> tuple[SessionRun, LearnerLink | None]:
    """A session with everything connected, ready to run.

    Args:
        args: Options of :func:`add_arguments`.
        stack: Closes everything.
        around: Parts of the program around it.

    Raises:
        GantryError: If something is refused; nothing has moved.
    """
    import numpy as np

    from gantry_deploy.cli.session import parts
    from gantry_deploy.session.classifier import SuccessClassifier
    from gantry_deploy.session.run import SessionRun, Views

    cfg, around = _settings(args), around or Surroundings()
    link, bundle = parts.connect_learner(args, stack)
    robot, device = _robot_and_device(args, bundle, around, stack)
    views = Views(around.tell, parts.open_recording(args, bundle, robot.spec, stack))
    session = SessionRun(
        bundle,
        robot,
        device,
        cfg,
        sinks=parts.open_sinks(args, bundle, link, stack),
        live=link.live if link else None,
        classifier=None if args.classifier is None else SuccessClassifier.from_file(args.classifier),
        safety=around.safety or safety_config(dict(args.safety)),
        views=views,
        command=None if args.command is None else np.array(args.command),
        speed=0.0 if args.speed == 1.0 else args.speed,
        layout=around.layout,
    )
    parts.open_page(args, session, device, views, stack)
    print(f"Device '{device.name}':", flush=True)
    for line in device.describe():
        print(f"  {line}", flush=True)
    if session.session.parts.judge is None:
        length_s = session.session.max_steps * bundle.contract.dt_s
        print(
            f"Success is the person's to say; an attempt without a verdict ends after {length_s:g} s. --classifier "
            "and --episode-s change that.",
            flush=True,
        )
    return session, link


def _robot_and_device(
    args: argparse.Namespace, bundle: Bundle, around: Surroundings, stack: contextlib.ExitStack
) -> tuple[Robot, TeleopDevice]:
    """The robot, and the device, connected."""
    from gantry_deploy.cli.session.parts import make_device
    from gantry_hardware.robots import robot_spec

    contract = bundle.contract
    kind = embodiment_of(contract)
    kind.require("session")
    backend = choose("robot backend", args.backend or kind.simulated_backend, backend_names())
    kind.check_backend(contract, backend)
    if not args.yes and moves_metal(backend):
        raise UsageError(
            f"Backend '{backend}' may move a real robot, by policy and by hand. Give --yes if it has room and a person "
            "is at the emergency stop."
        )
    if args.depth and not needs_map(contract):
        raise UsageError("--depth: this policy looks at no map; leave the option out.")
    device = make_device(args, contract, around.devices)
    if around.robot is not None:
        robot = around.robot(bundle)
    else:
        robot = make_backend(backend, robot_spec(contract.robot), **_options(args, bundle, backend))
        robot = with_depth(robot, args.depth)
    stack.callback(robot.close)
    device.connect()
    stack.callback(device.close)
    return robot, device


def _options(args: argparse.Namespace, bundle: Bundle, backend: str) -> dict[str, Any]:
    """Options of the backend: what the policy needs, what was given; a simulated robot follows the clock."""
    contract = bundle.contract
    own = embodiment_of(contract).backend_options(contract, backend)
    simulated = backend == embodiment_of(contract).simulated_backend
    follows = {"realtime": True} if simulated and args.speed == 1.0 else {}
    return {**own, **follows, **dict(args.option)}


def _print_summary(result: dict[str, Any]) -> None:
    attempts, steps = result["attempts"], result["steps"]
    share = result["steps_by_person"] / steps if steps else 0.0
    alone = result["successes_alone"]
    print(f"{counted(attempts, 'attempt')}, {result['successes']} succeeded, {alone} of them without help")
    print(f"{steps} steps, {share:.0%} by the person, {result['person_s']:.1f} person-seconds")
    if result["loop"]["fault"] is not None:
        print(f"stopped: {result['loop']['fault']['text']}")
