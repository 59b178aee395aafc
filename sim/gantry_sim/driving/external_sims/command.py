"""``gantry bench metadrive``: a car's bundle in a simulator that it was not trained in."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.cli.bundles import add_bundle_arguments, open_bundle
from gantry_deploy.cli.command import Command, UsageError, add_json_option, parse_numbers, result_so_far, seed_number
from gantry_sim.cli.common import ProgressBar, whole


def _metadrive_arguments(parser: argparse.ArgumentParser) -> None:
    add_bundle_arguments(parser)
    parser.add_argument("--maps", type=whole, default=20, metavar="N", help="maps, an episode on each (default: 20)")
    parser.add_argument(
        "--traffic", type=parse_numbers, default=(0.0, 0.1), metavar="D,D", help="densities (default: 0,0.1)"
    )
    parser.add_argument("--seed", type=seed_number, metavar="N", help="of the first map (default: 1000)")
    parser.add_argument(
        "--limit-kmh", type=float, default=30.0, metavar="V", help="speed limit of the roads, which set none (30)"
    )
    parser.add_argument("--baseline", action="store_true", help="let MetaDrive's own driver drive the same maps, too")
    parser.add_argument(
        "--own-episodes", type=whole, default=100, metavar="N", help="in our own simulator, 0 for none (default: 100)"
    )
    add_json_option(parser)


def _metadrive(args: argparse.Namespace) -> dict[str, Any]:
    if args.maps < 1:
        raise UsageError("--maps is 0, expected at least 1.")
    if not all(0.0 <= density <= 1.0 for density in args.traffic) or not 0.0 < args.limit_kmh <= 80.0:
        raise UsageError("--traffic takes densities from 0 to 1, --limit-kmh a speed above 0 and up to 80.")
    from gantry_sim.driving.external_sims.metadrive import FIRST_SEED, require_metadrive

    require_metadrive()
    bundle = open_bundle(args)
    from gantry_sim.driving.external_sims.comparison import (
        Found,
        HeldOutCfg,
        drive_maps,
        own_scores,
        result_of,
        table_lines,
    )
    from gantry_sim.process.torch_threads import torch_threads

    first = FIRST_SEED if args.seed is None else args.seed
    cfg = HeldOutCfg(args.maps, args.traffic, first, args.limit_kmh / 3.6, args.baseline)

    def show(found: Found) -> None:
        last, number = found.rides[-1], len(found.rides)
        who = "MetaDrive's driver" if found.driver == "metadrive" else "bundle"
        said = f"  {last.text}" if last.text else ""
        print(
            f"traffic {found.traffic:g}  {who}  map {number}/{cfg.maps}  {last.end:<9} "
            f"{100.0 * last.completion:5.1f} % of the route in {last.duration_s:.0f} s{said}",
            flush=True,
        )

    own: dict[str, Any] | None = None
    found: list[Found] = []

    def so_far() -> dict[str, Any] | None:
        if own is None and not any(item.rides for item in found):
            return None
        result = result_of(bundle, cfg, found, own)
        print("\n".join(("So far:", *table_lines(result))))
        return result

    with torch_threads(1), result_so_far(args, so_far):
        if args.own_episodes:
            own = own_scores(Path(bundle.path), args.own_episodes, ProgressBar("own simulator").share)
        drive_maps(bundle, cfg, found, show)
    result = result_of(bundle, cfg, found, own)
    print("\n".join(table_lines(result)))
    return result


METADRIVE = Command(
    name="metadrive",
    help="drive a car's bundle in MetaDrive, which no policy is trained in",
    add_arguments=_metadrive_arguments,
    run=_metadrive,
    description=(
        "Drive a bundle through the ordinary control loop on MetaDrive's maps, without and with its traffic, and print "
        "its scores beside those of our own simulator. MetaDrive's car gets the dimensions of the bundle's; engine, "
        "brakes and tyres stay its own."
    ),
    epilog="""examples:
  gantry bench metadrive runs/traffic/bundle
  gantry bench metadrive runs/lane/bundle --maps 5 --traffic 0 --baseline --json lane.json""",
)
