"""``gantry sign``: a bundle, signed as it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import WHERE, find_bundle
from gantry_deploy.cli.command import UsageError, add_json_option
from gantry_hardware.files.text import path_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("bundle", metavar="BUNDLE", help=WHERE)
    parser.add_argument("--key", required=True, metavar="NAME", help="a key of yours (gantry keys list), or its file")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="folder of your keys; ~/.config/gantry/keys")
    add_json_option(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line asks for."""
    from gantry_deploy.bundle.bundle import sign_bundle
    from gantry_deploy.bundle.keys import key_folder, private_key_named
    from gantry_deploy.bundle.locate import is_pretrained
    from gantry_deploy.bundle.signature import public_key_of

    if is_pretrained(args.bundle):
        raise UsageError(f"'{args.bundle}' belongs to an installed package; copy its folder, and sign the copy.")
    path = find_bundle(args.bundle)
    key = private_key_named(args.folder or key_folder(), args.key)
    sign_bundle(path, key)
    print(f"signed {path_text(path)} with key {public_key_of(key).hex()[:12]}")
    return {"bundle": str(path), "public_key": public_key_of(key).hex()}
