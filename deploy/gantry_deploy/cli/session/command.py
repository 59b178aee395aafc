"""The command ``gantry session`` and its sub-commands; what each needs is imported when it is used."""

from __future__ import annotations

import argparse
from typing import Any

from gantry_deploy.cli.command import Command, later
from gantry_deploy.cli.parser import GantryParser

_START_TEXT = (
    "Let a policy act on a robot while a person watches, takes over where it goes wrong, and says whether an attempt "
    "has succeeded. Every step is recorded with its author: into a dataset, and to a learner that sends better weights "
    "between attempts. Exit code 1 if a fault ended the session."
)
_START_EPILOG = (
    "examples:\n"
    "  gantry session start pretrained:yam-pick-place --dataset sessions/first\n"
    "  gantry session start --learner 127.0.0.1:50051 --device gamepad --page\n"
    "  gantry session start walk.zip --backend ros --device spacemouse --yes"
)
_CERTIFICATES_TEXT = (
    "Make a certificate authority and certificates for a learner and its actors. Off loopback both sides prove "
    "themselves with them (mutual TLS). Copy 'authority.crt' and the actor's two files to the robot; nothing else "
    "leaves."
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    sub = parser.add_subparsers(
        dest="subcommand", metavar="WHAT", title="what", required=True, parser_class=GantryParser
    )
    start = sub.add_parser("start", help="run a session on a robot", description=_START_TEXT, epilog=_START_EPILOG)
    later("gantry_deploy.cli.session.start:add_arguments")(start)
    replay = sub.add_parser("replay", help="show what a session recorded, attempt by attempt")
    later("gantry_deploy.cli.session.replay:add_arguments")(replay)
    certificates = sub.add_parser(
        "certificates", help="make certificates for learner and actors", description=_CERTIFICATES_TEXT
    )
    later("gantry_deploy.cli.session.certificates:add_arguments")(certificates)


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    return later(f"gantry_deploy.cli.session.{args.subcommand}:run")(args)


COMMAND = Command(
    name="session",
    help="correct a policy while it works: sessions of a person, a robot and a learner",
    add_arguments=_add_arguments,
    run=_run,
    description="A person corrects a policy while it works on a robot, and a learner learns from it.",
    epilog="'gantry train TASK --preset hil-serl --listen HOST:PORT' starts a learner; see docs/corrections.md.",
)
