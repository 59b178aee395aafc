"""``gantry doctor`` and ``gantry audit``: what is wrong with a robot's readings, and with what a policy saw of them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.cli.bundles import add_bundle_arguments, open_bundle
from gantry_deploy.cli.command import UsageError, add_json_option, choose, emit_result, parse_key_value
from gantry_deploy.diagnosis.findings import Diagnosis
from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_hardware.backends.registry import backend_names, make_backend
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.capabilities import other_commanders
from gantry_hardware.robots import robot_names, robot_spec

_WORD = 22
"""Width of the column with a quantity's name."""


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``gantry doctor``."""
    parser.add_argument("subject", metavar="ROBOT|RECORDING", help="a robot's name, or a recording that ends in .mcap")
    parser.add_argument("--backend", help=f"how to read the robot: {', '.join(backend_names())}; ros if not given")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="how long to read the robot")
    parser.add_argument("--rate", type=float, default=50.0, metavar="HZ", help="how often to read it")
    parser.add_argument(
        "--upright", action="store_true", help="say that the base was upright all the time, standing or lying"
    )
    parser.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the backend; may be given several times",
    )
    add_json_option(parser)


def run_doctor(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    finite("--seconds", args.seconds, 0.1, 3600.0, UsageError)
    finite("--rate", args.rate, 1.0, 1000.0, UsageError)
    from gantry_deploy.diagnosis.doctor import examine  # A mistyped option is answered before numpy works.

    if args.subject.endswith(".mcap"):
        log, writers = _recorded(args), None
    else:
        log, writers = _live(args)
    found = examine(log, upright=args.upright)
    if writers is not None:
        writers(found)
    return _tell(args, found, {"robot": log.spec.name, "readings": len(log.time_s)})


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``gantry audit``."""
    parser.add_argument("recording", metavar="RECORDING", help="MCAP file of a run under the policy")
    add_bundle_arguments(parser)
    add_json_option(parser)


def run_audit(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    path = _file(args.recording)
    bundle = open_bundle(args)
    from gantry_deploy.diagnosis.audit import audit
    from gantry_deploy.recording.reader import read_recording

    found = audit(read_recording(path), bundle)
    return _tell(args, found, {"recording": str(path), "bundle": str(bundle.path)})


def _file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"There is no recording {name}.{near_miss(name)}")
    return path


def _recorded(args: argparse.Namespace) -> Any:
    from gantry_deploy.diagnosis.state_log import log_of_recording
    from gantry_deploy.recording.reader import read_recording

    if args.backend is not None or args.option:
        raise UsageError("--backend and --option are for a robot; a recording needs neither.")
    recording = read_recording(_file(args.subject))
    print(f"{recording.robot}, {recording.duration_s:.1f} s of {args.subject}")
    return log_of_recording(recording, robot_spec(recording.robot))


def _live(args: argparse.Namespace) -> tuple[Any, Any]:
    """Readings of a robot that is not commanded, and a check of other programs that command it."""
    from gantry_deploy.diagnosis.findings import FindingKind
    from gantry_deploy.diagnosis.state_log import log_of_robot

    spec = robot_spec(choose("robot", args.subject, robot_names()))
    backend = choose("robot backend", args.backend or "ros", backend_names())
    robot = make_backend(backend, spec, **dict(args.option))
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupt_on_terminate())
        stack.callback(robot.close)
        robot.connect()
        print(f"{spec.name} on '{backend}', reading for {args.seconds:g} s; nothing is commanded.", flush=True)
        log = log_of_robot(robot, args.seconds, args.rate)
        others = other_commanders(robot)

    def tell_writers(found: Diagnosis) -> None:
        if others is None:
            found.unknown("other writers", f"backend '{backend}' cannot tell")
        elif others:
            found.wrong(FindingKind.WRITER, "other writers", others)
        else:
            found.fine("other writers", "no other program commands the robot")

    return log, tell_writers


def _tell(args: argparse.Namespace, found: Diagnosis, facts: Mapping[str, Any]) -> int:
    for finding in found.findings:
        print(f"WRONG  {finding.subject:<{_WORD}}{finding.text}")
    for item in found.checked:
        print(f"{'ok' if item.judged else '?':<7}{item.subject:<{_WORD}}{item.text}")
    unknown = sum(not item.judged for item in found.checked)
    fine = len(found.checked) - unknown
    print(f"{len(found.findings)} wrong, {fine} in order, {unknown} not judged")
    emit_result(args, {**facts, "findings": found.findings, "checked": found.checked})
    return 1 if found.findings else 0
