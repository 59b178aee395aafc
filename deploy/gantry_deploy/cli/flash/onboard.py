"""``gantry onboard``: what runs on a robot's computer."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from gantry_deploy.cli.command import add_json_option, emit_result, parse_key_value
from gantry_deploy.cli.parser import GantryParser
from gantry_deploy.flash.home import RobotHome, robot_home, this_person
from gantry_deploy.process.stopping import stop_on_interrupt
from gantry_hardware.files.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    sub = parser.add_subparsers(
        dest="subcommand", metavar="WHAT", title="what", required=True, parser_class=GantryParser
    )
    setup = sub.add_parser("setup", help="make the folder of releases, robot.yaml and the systemd unit")
    setup.add_argument("--robot", required=True, metavar="NAME", help="name of this robot")
    setup.add_argument("--backend", default="", metavar="NAME", help="backend that bundles are run on")
    setup.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the backend; may be given several times",
    )
    service = sub.add_parser("service", help="run the current release, watch first runs, return by itself")
    receive = sub.add_parser("receive", help="take a release from standard input; called by gantry flash")
    listed = sub.add_parser("list", help="show the releases here and the log")
    add_json_option(listed)
    rollback = sub.add_parser("rollback", help="return to the good release before the current one")
    rollback.add_argument("--by", default="", metavar="NAME", help="person, for the log; this user if not given")
    clean = sub.add_parser("clean", help="remove old releases; good ones to return to stay")
    for each in (setup, service, receive, listed, rollback, clean):
        each.add_argument(
            "--home", default="", metavar="FOLDER", help="folder of releases; ~/gantry-robot if not given"
        )


def run(args: argparse.Namespace) -> int | dict[str, Any]:
    """Do what the command line asks for."""
    home = robot_home(args.home or None)
    return globals()[f"_{args.subcommand}"](home, args)


def _setup(home: RobotHome, args: argparse.Namespace) -> int:
    from gantry_deploy.flash.setup import set_up

    for line in set_up(home, args.robot, args.backend, dict(args.option)):
        print(line)
    return 0


def _service(home: RobotHome, args: argparse.Namespace) -> int:
    from gantry_deploy.flash.supervisor import Supervisor

    def say(text: str) -> None:
        print(text, flush=True)

    supervisor = Supervisor(home, say)
    say(f"robot '{home.config().robot}', releases in {home.root}")
    with stop_on_interrupt(supervisor.stop):
        supervisor.run()
    return 0


def _receive(home: RobotHome, args: argparse.Namespace) -> int:
    from gantry_deploy.flash.channel import Channel
    from gantry_deploy.flash.receiving import PATIENCE_S, receive

    sink = os.dup(1)
    os.dup2(2, 1)  # What anything prints must not get between the messages.
    sys.stdout = sys.stderr
    return receive(home, Channel(0, sink, PATIENCE_S))


def _list(home: RobotHome, args: argparse.Namespace) -> int:
    from gantry_deploy.cli.flash.flash import print_list
    from gantry_deploy.flash.receiving import release_rows

    result = {
        "robot": home.config().robot,
        "home": str(home.root),
        "service": home.service_runs(),
        "note": home.state().note,
        "releases": release_rows(home),
        "log": home.log(100),
    }
    print_list(result)
    emit_result(args, result)
    return 0


def _rollback(home: RobotHome, args: argparse.Namespace) -> int:
    from gantry_deploy.flash.returning import return_on_request

    release = return_on_request(home, printable(args.by, 120) or this_person(), lambda text: print(text, flush=True))
    print(f"back to {release[:12]}")
    return 0


def _clean(home: RobotHome, args: argparse.Namespace) -> int:
    from gantry_deploy.errors import FlashError
    from gantry_deploy.flash.home import FLASH_LOCK
    from gantry_deploy.flash.switch import clean
    from gantry_deploy.process.folder_lock import FolderLock

    lock = FolderLock(home.root, "The robot", FlashError, name=FLASH_LOCK)
    try:
        removed = clean(home, home.config())
    finally:
        lock.release()
    home.note("cleaned", this_person(), removed=removed)
    print(f"removed {len(removed)} releases" + "".join(f"\n  {name[:12]}" for name in removed))
    return 0
