"""Options of ``gantry train`` for steps of actors elsewhere: those of a session, with ``--listen``, or on Ray."""

from __future__ import annotations

import argparse
import contextlib
import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.cli.command import UsageError
from gantry_hardware.training.launcher import launched, require_one_process
from gantry_sim.process.ray_cluster import LOCAL
from gantry_sim.tasks.names import task_names

if TYPE_CHECKING:
    from gantry_sim.training.link.fleet import FleetCfg
    from gantry_sim.training.link.listen import Listen


def add_actor_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="learn from the steps of actors that connect there, see `gantry session start --learner`",
    )
    parser.add_argument(
        "--certificates", type=Path, metavar="FOLDER", help="the learner's, for --listen; needed off loopback"
    )
    add = parser.add_argument_group("a fleet of simulating actors, with the extra 'ray'").add_argument
    add(
        "--actors",
        type=int,
        metavar="N",
        help="actors that collect while this process learns; only for off-policy algorithms",
    )
    text = "where: local for this machine's cores (default), or the address of a cluster such as auto"
    add("--ray", nargs="?", const=LOCAL, metavar="ADDRESS", help=text)
    add("--cpus", type=float, metavar="N", help="cores of each actor (default: 1)")


@contextlib.contextmanager
def link_lines() -> Iterator[None]:
    """Print what the link to actors notes, such as an actor that joins, on lines of its own beside the progress."""
    handler, logger = logging.StreamHandler(sys.stderr), logging.getLogger("gantry.link")
    handler.setFormatter(logging.Formatter("\r\033[K%(message)s" if sys.stderr.isatty() else "%(message)s"))
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def actor_words(args: argparse.Namespace) -> str:
    """Options with which a learner of actors is continued; empty for any other training."""
    names = ("listen", "certificates", "actors", "ray", "cpus")
    return " ".join(
        f"--{name} {shlex.quote(str(value))}" for name in names if (value := getattr(args, name)) is not None
    )


def check_actors(args: argparse.Namespace) -> None:
    """Refuse options that do not go together, an address that cannot be listened on, and a run of a session's actors
    that is continued without one.
    """
    from gantry_sim.training.run_files import LINK_FOLDER

    if (args.listen is not None or args.actors is not None) and launched().count > 1:
        require_one_process()
    if args.actors is None and (lone := [f"--{name}" for name in ("ray", "cpus") if getattr(args, name) is not None]):
        raise UsageError(f"{' and '.join(lone)}: give --actors N as well, the number of actors.")
    if args.actors is not None and args.listen is not None:
        raise UsageError("--listen learns from a session's actors and --actors from simulating ones; give one of them.")
    if args.task is None and args.resume is None and args.ray in task_names():
        raise UsageError(f"--ray took '{args.ray}' for its ADDRESS; put TASK before --ray.")
    fleet_of(args)
    if args.listen is None:
        if args.resume is not None and (args.resume / LINK_FOLDER).is_dir():
            raise UsageError(
                f"The run in '{args.resume}' learns from actors: give --listen HOST:PORT as well, and --certificates "
                "off loopback."
            )
        return
    from gantry_deploy.link.addresses import require_free

    require_free(args.listen, args.certificates is not None)


def listen_of(args: argparse.Namespace) -> Listen | None:
    """Place at which actors are waited for; None for a training in own environments."""
    if args.listen is None:
        return None
    from gantry_deploy.link.certificates import tls_files
    from gantry_sim.training.link.listen import Listen

    return Listen(args.listen, None if args.certificates is None else tls_files(args.certificates, "learner"))


def fleet_of(args: argparse.Namespace) -> FleetCfg | None:
    """Actors on Ray; None for a training without.

    Raises:
        GantryError: If a number is out of range.
    """
    from gantry_sim.training.link.fleet import FleetCfg

    if args.actors is None:
        return None
    given = {
        name: value for name, value in (("address", args.ray), ("cores_per_actor", args.cpus)) if value is not None
    }
    return FleetCfg(args.actors, **given)


def told_address(address: str) -> None:
    """Print where actors are waited for."""
    print(f"Waiting for actors at {address}: gantry session start --learner {address}", flush=True)
