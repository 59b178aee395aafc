"""The bundle argument that several sub-commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.bundle.locate import WHERE, find_bundle
from gantry_deploy.errors import LeappError
from gantry_deploy.leapp.folder import description_of
from gantry_deploy.leapp.settings import add_leapp_arguments, leapp_settings, refuse_leapp_options
from gantry_hardware.files.text import path_text

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle


def add_bundle_arguments(parser: argparse.ArgumentParser, *, leapp: bool = False) -> None:
    """Add the positional ``BUNDLE`` and ``--public-key``; with ``leapp`` it may be a LEAPP folder, with its options."""
    parser.add_argument("bundle", metavar="BUNDLE", help=WHERE + (", or a LEAPP folder" if leapp else ""))
    parser.add_argument(
        "--public-key",
        metavar="KEY",
        help="Ed25519 public key (64 hex digits, or a file: PEM or 32 raw bytes); refuse a bundle it did not sign",
    )
    if leapp:
        add_leapp_arguments(parser)


def open_bundle(args: argparse.Namespace) -> Bundle:
    """Load and verify what :func:`add_bundle_arguments` asked for.

    Raises:
        GantryError: If the key or the bundle is not what it should be.
    """
    path = find_bundle(args.bundle)  # A mistyped name is answered before anything else is loaded.
    if description_of(path) is not None:
        return _open_leapp(path, args)
    refuse_leapp_options(args)
    from gantry_deploy.bundle.signature import read_public_key

    key = None if args.public_key is None else read_public_key(args.public_key)
    from gantry_deploy.bundle.bundle import load_bundle

    return load_bundle(path, public_key=key)


def is_leapp(args: argparse.Namespace) -> bool:
    """Whether the argument is a LEAPP folder and no bundle."""
    return description_of(find_bundle(args.bundle)) is not None


def _open_leapp(path: Path, args: argparse.Namespace) -> Bundle:
    if not hasattr(args, "stiffness"):
        raise LeappError(
            f"{path_text(path)} is a LEAPP folder; make it a bundle first: gantry import-leapp {path_text(path)} "
            "--robot NAME --output FOLDER"
        )
    if args.public_key is not None:
        raise LeappError(
            f"{path_text(path)} is a LEAPP folder, which carries no signature, and a public key was given."
        )
    from gantry_deploy.leapp.importing import import_leapp

    return import_leapp(path, leapp_settings(args)).bundle
