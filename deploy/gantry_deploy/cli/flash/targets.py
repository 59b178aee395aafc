"""Options that name a robot's computer, shared by several commands."""

from __future__ import annotations

import argparse

from gantry_deploy.cli.command import UsageError
from gantry_deploy.flash.ssh import Target

HOST = "computer of the robot: USER@HOST, or a name of your SSH configuration"
"""Description of the argument."""


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Add how the robot's computer is reached, and where its releases lie."""
    parser.add_argument(
        "--port", type=int, metavar="N", help="port of SSH; that of your SSH configuration if not given"
    )
    parser.add_argument("--ssh-config", default="", metavar="FILE", help="SSH configuration in place of your own")
    parser.add_argument(
        "--gantry",
        default="",
        metavar="PATH",
        help="the robot's 'gantry'; ~/gantry-robot/venv/bin/gantry there, else the one on its path, if not given",
    )
    parser.add_argument(
        "--home",
        default="",
        metavar="FOLDER",
        help="folder of releases on the robot; ~/gantry-robot there if not given",
    )


def target_of(args: argparse.Namespace, host: str) -> Target:
    """The robot's computer that the command line names.

    Raises:
        UsageError: If the port is none.
    """
    if args.port is not None and not 0 < args.port < 65536:
        raise UsageError(f"--port is {args.port}, expected a whole number from 1 to 65535.")
    return Target(host, args.port, args.ssh_config, args.gantry, args.home)
