"""The bundle argument that several sub-commands share."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.bundle.locate import WHERE, find_bundle
from gantry_hardware.errors import GantryError

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle

KEY_BYTES = 32
"""Length of a raw Ed25519 public key."""


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
    key = None if args.public_key is None else read_public_key(args.public_key)
    from gantry_deploy.bundle.bundle import load_bundle

    return load_bundle(path, public_key=key)


def read_public_key(text: str | Path) -> bytes:
    """The 32 raw bytes of an Ed25519 public key, from 64 hex digits or from a file.

    Raises:
        GantryError: If the file cannot be read or holds no such key.
    """
    if re.fullmatch(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", str(text)):
        return bytes.fromhex(str(text))
    path = Path(text)
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        data = path.read_bytes()
    except OSError as error:
        raise GantryError(f"Cannot read the public key '{path}': {error.strerror}.") from error
    if len(data) == KEY_BYTES:
        return data
    try:
        key = serialization.load_pem_public_key(data)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise GantryError(f"'{path}' holds no Ed25519 public key; expected a PEM file, or {KEY_BYTES} raw bytes.")
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
