"""``gantry session certificates``: mutual TLS between a learner and its actors."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write; existing keys are kept")
    parser.add_argument(
        "--host", action="append", default=[], metavar="NAME", help="name or address of the learner; may be repeated"
    )
    parser.add_argument(
        "--actor", action="append", default=[], metavar="NAME", help="identity of an actor; may be repeated"
    )
    parser.add_argument("--days", type=int, default=90, metavar="N", help="validity")
    parser.add_argument("--renew", action="store_true", help="replace certificates that exist, not the authority")


def run(args: argparse.Namespace) -> int:
    """Make what is missing, and say what belongs where."""
    from gantry_deploy.link.certificates import make_certificates

    hosts, actors = args.host or ["localhost", "127.0.0.1"], args.actor or ["robot"]
    for path in make_certificates(args.folder, hosts, actors, days=args.days, renew=args.renew):
        print(f"wrote {path}")
    print(f"learner: gantry train TASK --listen HOST:PORT --certificates {args.folder}")
    print(f"robot:   gantry session start --learner {hosts[0]}:PORT --identity {actors[0]} --certificates FOLDER")
    return 0
