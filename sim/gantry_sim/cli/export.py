"""``gantry export``: the bundle of a training run, or a LEAPP folder of either."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import find_run, find_source, is_run
from gantry_deploy.bundle.signature import read_private_key
from gantry_deploy.cli.command import Command, UsageError, add_json_option, output_file
from gantry_hardware.files.text import path_text
from gantry_sim.training.run_validation import RunError

BUNDLE, LEAPP = FORMATS = ("bundle", "leapp")
"""Formats to write."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="run folder of `gantry train`; with --format leapp a bundle as well"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default=BUNDLE, help="a bundle, or a LEAPP folder of it; bundle if not given"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="where to write; RUN/bundle or RUN/leapp if not given"
    )
    parser.add_argument("--zip", type=output_file(".zip"), metavar="FILE", help="also pack the bundle into one file")
    parser.add_argument(
        "--private-key",
        type=Path,
        metavar="FILE",
        help="sign with this Ed25519 key, a file of `gantry keys new` or 32 raw bytes",
    )
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.format == LEAPP:
        return _export_leapp(args)
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


def _export_leapp(args: argparse.Namespace) -> dict[str, Any]:
    """Write a LEAPP folder of a bundle, or of what a run has learned so far."""
    for option in ("zip", "private_key"):
        if getattr(args, option) is not None:
            raise UsageError(f"--{option.replace('_', '-')} is for bundles; a LEAPP folder has none. Leave it out.")
    source = find_source(args.run)
    if args.output is None and not is_run(source):
        raise UsageError("--output is missing: where to write the LEAPP folder of a bundle.")
    folder = args.output or source / LEAPP
    from gantry_deploy.bundle.bundle import load_bundle
    from gantry_policies.leapp.export import STEPS, export_leapp
    from gantry_sim.training.train import export_run, open_trained

    with tempfile.TemporaryDirectory() as scratch:
        if is_run(source):
            run, trained = open_trained(source)
            source = export_run(run, source, trained, Path(scratch) / BUNDLE)
        difference = export_leapp(load_bundle(source), folder)
    print(f"LEAPP: {path_text(folder)} ({STEPS} steps of graph and runtime differ by at most {difference:.1e} rad)")
    return {"leapp": str(folder), "steps_compared": STEPS, "difference_rad": difference}


COMMAND = Command(
    name="export",
    help="export a run's policy as a bundle, or as a LEAPP folder",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Write the policy of a run's newest checkpoint as a bundle. With --format leapp write a folder that the "
        "package leapp and what is built on it run (docs/leapp.md): observation, network and decoder as one ONNX "
        "graph, compared with the runtime before it counts."
    ),
    epilog=(
        "examples:\n"
        "  gantry export runs/walk\n"
        "  gantry export --format leapp runs/walk\n"
        "  gantry export --format leapp pretrained:go2-walk --output go2-leapp"
    ),
)
