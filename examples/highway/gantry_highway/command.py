"""``gantry bench highway``: a car's bundle on highway-env's race track."""

from __future__ import annotations

import argparse
from typing import Any

from gantry_deploy.cli.bundles import add_bundle_arguments, open_bundle
from gantry_deploy.cli.command import Command, UsageError, add_json_option, result_so_far
from gantry_sim.cli.common import whole


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bundle_arguments(parser)
    parser.add_argument("--episodes", type=whole, default=3, metavar="N", help="from different places (default: 3)")
    parser.add_argument("--metres", type=whole, default=200, metavar="N", help="to drive in each (default: 200)")
    parser.add_argument("--others", type=whole, default=1, metavar="N", help="other cars on the track (default: 1)")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.episodes < 1 or args.metres < 1:
        raise UsageError("--episodes and --metres take whole numbers above 0.")
    from gantry_highway.bridge import TRACK, VERSION, race_track, require_highway

    require_highway()
    bundle = open_bundle(args)
    from dataclasses import asdict

    from gantry_sim.driving.external_sims.riding import refuse_other_senses, ride
    from gantry_sim.process.torch_threads import torch_threads

    contract = bundle.contract
    refuse_other_senses(contract, "highway-env")
    rides: list[dict[str, Any]] = []

    def result() -> dict[str, Any]:
        return {"bundle": str(bundle.path), "simulator": f"highway-env, written against {VERSION}", "rides": rides}

    with torch_threads(1), result_so_far(args, lambda: result() if rides else None):
        for seed in range(args.episodes):
            scene = race_track(contract.robot, contract.dt_s, length_m=args.metres, others=args.others, seed=seed)
            done = ride(bundle, scene)
            rides.append(asdict(done))
            print(
                f"{TRACK}  episode {seed + 1}/{args.episodes}  {done.end:<9} {done.driven_m:.0f} m in "
                f"{done.duration_s:.0f} s, {done.lateral_rmse_m:.2f} m from the lane's middle",
                flush=True,
            )
    return result()


HIGHWAY = Command(
    name="highway",
    help="drive a car's bundle on highway-env's race track; a smoke run",
    add_arguments=_add_arguments,
    run=_run,
    description="Drive a bundle through the ordinary control loop on a race track of highway-env; a smoke run.",
    epilog="example:\n  gantry bench highway runs/lane/bundle",
)
