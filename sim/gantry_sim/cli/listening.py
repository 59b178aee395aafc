"""Options of ``gantry train --listen``: addresses, certificates, and lines about actors."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry_deploy.cli.command import UsageError

if TYPE_CHECKING:
    from gantry_sim.training.link.listen import Listen


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


def listen_words(args: argparse.Namespace) -> str:
    """Options with which a learner of actors is continued; empty for any other training."""
    if args.listen is None:
        return ""
    return f"--listen {args.listen}" + (f" --certificates {args.certificates}" if args.certificates else "")


def check_listen(args: argparse.Namespace) -> None:
    """Refuse an address that cannot be listened on, and a run of actors that is continued without one."""
    from gantry_sim.training.run_files import LINK_FOLDER

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


def told_address(address: str) -> None:
    """Print where actors are waited for."""
    print(f"Waiting for actors at {address}: gantry session start --learner {address}", flush=True)
