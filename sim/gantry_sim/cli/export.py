"""``gantry export``: the bundle of a training run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import find_run
from gantry_deploy.bundle.signature import read_private_key
from gantry_deploy.cli.command import Command, add_json_option, output_file
from gantry_hardware.files.text import path_text
from gantry_sim.training.run_validation import RunError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="run folder of `gantry train`")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to write; RUN/bundle if not given")
    parser.add_argument("--zip", type=output_file(".zip"), metavar="FILE", help="also pack the bundle into one file")
    parser.add_argument(
        "--private-key",
        type=Path,
        metavar="FILE",
        help="sign with this Ed25519 key, a file of `gantry keys new` or 32 raw bytes",
    )
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    private_key = None if args.private_key is None else read_private_key(args.private_key)
    find_run(args.run, RunError)
    from gantry_deploy.bundle.bundle import load_bundle, write_zip
    from gantry_sim.training.train import export_run, open_trained

    run, trained = open_trained(args.run)
    folder = export_run(run, args.run, trained, args.output, private_key)
    bundle = load_bundle(folder)
    result: dict[str, Any] = {
        "bundle": str(folder),
        "env_steps": trained.env_steps,
        "observations_compared": len(bundle.golden["observation"]),
        "signed": bundle.is_signed,
    }
    print(f"Bundle: {path_text(folder)} ({result['observations_compared']} observations compared)")
    if args.zip:
        result["zip"] = str(write_zip(folder, args.zip))
        print(f"Packed: {args.zip}")
    return result


COMMAND = Command(name="export", help="export a run's policy as a bundle", add_arguments=_add_arguments, run=_run)
