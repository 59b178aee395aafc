"""``gantry import-leapp``: a LEAPP folder as a bundle of this runtime."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle, write_bundle, write_zip
from gantry_deploy.bundle.signature import read_private_key
from gantry_deploy.cli.command import add_json_option, emit_result, output_file
from gantry_deploy.errors import BundleError
from gantry_deploy.leapp.importing import import_leapp
from gantry_deploy.leapp.settings import add_leapp_arguments, leapp_settings
from gantry_hardware.files.text import path_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="LEAPP folder: NAME.yaml, NAME.onnx")
    parser.add_argument("--output", type=Path, metavar="FOLDER", required=True, help="where to write the bundle")
    parser.add_argument("--zip", type=output_file(".zip"), metavar="FILE", help="also pack the bundle into one file")
    parser.add_argument("--private-key", type=Path, metavar="FILE", help="sign with this Ed25519 key")
    add_leapp_arguments(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    private_key = None if args.private_key is None else read_private_key(args.private_key)
    found = import_leapp(args.folder, leapp_settings(args))
    made = found.bundle
    try:
        folder = write_bundle(
            args.output,
            contract=made.contract,
            model_bytes=made.model_bytes,
            golden=made.golden,
            card=made.card,
            private_key=private_key,
        )
    except OSError as error:
        raise BundleError(f"Cannot write the bundle {path_text(args.output)}: {error.strerror or error}.") from error
    bundle = load_bundle(folder)
    result: dict[str, Any] = {
        "bundle": str(folder),
        "robot": bundle.contract.robot,
        "steps_compared": len(bundle.golden["observation"]),
        "difference_rad": found.difference_rad,
        "signed": bundle.is_signed,
    }
    print(
        f"Bundle: {path_text(folder)} for {bundle.contract.robot}; {result['steps_compared']} steps of the graph by "
        f"itself and by way of the runtime differ by at most {found.difference_rad:.1e} rad"
    )
    if args.zip is not None:
        result["zip"] = str(write_zip(folder, args.zip))
        print(f"Packed: {args.zip}")
    emit_result(args, result)
    return 0
