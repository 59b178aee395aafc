"""The bundle argument that several sub-commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gantry_deploy.bundle.locate import WHERE, find_bundle

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle


def add_bundle_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the positional ``BUNDLE`` and ``--public-key``."""
    parser.add_argument("bundle", metavar="BUNDLE", help=WHERE)
    parser.add_argument(
        "--public-key",
        metavar="KEY",
        help="Ed25519 public key (64 hex digits, or a file: PEM or 32 raw bytes); refuse a bundle it did not sign",
    )


def open_bundle(args: argparse.Namespace) -> Bundle:
    """Load and verify what :func:`add_bundle_arguments` asked for.

    Raises:
        GantryError: If the key or the bundle is not what it should be.
    """
    path = find_bundle(args.bundle)  # A mistyped name is answered before anything else is loaded.
    from gantry_deploy.bundle.signature import read_public_key

    key = None if args.public_key is None else read_public_key(args.public_key)
    from gantry_deploy.bundle.bundle import load_bundle

    return load_bundle(path, public_key=key)
