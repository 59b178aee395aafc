"""``gantry robot``: a package for a new robot, made from its model, and the checks of an installed one."""

from __future__ import annotations

import argparse
from pathlib import Path

from gantry_deploy.cli.command import Command, UsageError, add_json_option, choose, counted, emit_result
from gantry_deploy.cli.parser import GantryParser
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import path_text
from gantry_hardware.robots import robot_names


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    sub = parser.add_subparsers(
        dest="subcommand", metavar="ACTION", title="actions", required=True, parser_class=GantryParser
    )
    new = sub.add_parser(
        "new",
        help="write an installable package for a robot from its MJCF or URDF",
        description="Check a model, and write a package with numbers, model, tasks and a test. Exit code 2, and "
        "nothing written, if a finding prevents that the robot is used; what can be filled in later is marked TODO.",
        epilog="example:\n  gantry robot new mydog --model mydog.urdf --package mydog_description=../mydog_description",
    )
    new.add_argument("name", metavar="NAME", help="of the robot: small letters, digits and '_'")
    new.add_argument("--model", type=Path, required=True, metavar="FILE", help="MJCF (.xml) or URDF")
    new.add_argument("--output", type=Path, metavar="FOLDER", help="where to write; ./NAME if not given")
    new.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="folder of a ROS package that a URDF names as package://NAME; may be given several times",
    )
    add_json_option(new)
    check = sub.add_parser(
        "check",
        help="check an installed robot: numbers, model, gait, standing, and the conformance kit",
        description="Compare a robot's numbers with its model and run the conformance kit on its simulated backend. "
        "Exit code 0 if every check passes, 1 if one fails, 2 if there is no such robot.",
    )
    check.add_argument("name", metavar="NAME", help="of the robot, as its entry point in gantry.robots says it")
    add_json_option(check)


def _run(args: argparse.Namespace) -> int:
    return _new(args) if args.subcommand == "new" else _check(args)


def _new(args: argparse.Namespace) -> int:
    from gantry_sim.robot_kit.findings import fails, opens
    from gantry_sim.robot_kit.preparing import prepare
    from gantry_sim.robot_kit.reading import read_source
    from gantry_sim.robot_kit.study import study
    from gantry_sim.robot_kit.writing import require_name, require_new, write_package

    name, folder = require_name(args.name), args.output or Path(args.name)
    require_new(folder)
    source = read_source(args.model, _packages(args.package))
    found = study(source, prepare(source))
    for finding in found.findings:
        print(finding.line)
    failed, later = fails(found.findings), opens(found.findings)
    result = {"name": name, "findings": found.findings, "folder": None if failed else str(folder)}
    if failed:
        emit_result(args, result)
        first = f"the first: {failed[0].check}: {failed[0].text}"
        raise GantryError(
            f"'{args.model}' has {counted(len(failed), 'finding')} marked FAIL; nothing was written. {first}"
        )
    files = write_package(found, source, name, folder)
    print(f"written to {path_text(folder)}: {counted(len(files), 'file')}, {counted(len(later), 'finding')} still open")
    print(f"next: pip install -e {path_text(folder)} && gantry robot check {name}")
    emit_result(args, result)
    return 0


def _packages(words: list[str]) -> dict[str, Path]:
    found = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if not (name and equals and Path(folder).is_dir()):
            raise UsageError(f"--package {word}: expected NAME=FOLDER with a folder that exists.")
        found[name] = Path(folder)
    return found


def _check(args: argparse.Namespace) -> int:
    name = choose("robot", args.name, robot_names())
    from gantry_sim.robot_kit.checking import check_robot
    from gantry_sim.robot_kit.findings import fails

    findings = check_robot(name)
    for finding in findings:
        print(finding.line)
    verdict = "failed" if fails(findings) else "passed"
    print(verdict.upper())
    emit_result(args, {"name": name, "verdict": verdict, "findings": findings})
    return 1 if fails(findings) else 0


COMMAND = Command(
    name="robot",
    help="a package for a robot of your own from its MJCF or URDF, and checks of an installed robot",
    add_arguments=_add_arguments,
    run=_run,
)
