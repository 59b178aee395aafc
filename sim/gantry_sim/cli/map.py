"""``gantry map``: train the network that completes elevation maps, and compare it with classical mapping."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option, jsonable, seed_number
from gantry_deploy.cli.parser import GantryParser
from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import require_one_process
from gantry_sim.cli.common import ProgressBar, add_set_option, assignments, whole
from gantry_sim.training.run_files import write_json
from gantry_sim.training.run_validation import LOCK_FILE

if TYPE_CHECKING:
    from gantry_hardware.training.trainer import Progress
    from gantry_mapping.config import MappingCfg
    from gantry_mapping.elevation.grid import GridSpec
    from gantry_mapping.learn.heightfields import Heights
    from gantry_mapping.learn.train import TrainCfg

GRIDS = ("small", "near", "full")
"""Local grids: half the paper's resolution; the paper's, but only what is near; and the paper's."""
MAPPER_FILE, CARD_FILE, RASTERS_FILE, CALIBRATION_FILE = "mapper.onnx", "card.json", "rasters.npz", "calibration.npz"
"""Files of a run, beside those of the training itself."""
DEFAULT_LEVELS, DEFAULT_COLUMNS = 10, 20
"""Size of the terrain that patches are cut from."""
CALIBRATION_SEED, CALIBRATION_LEVELS = 1000, (3, 7)
"""Added to the seed of the terrain that deviations are calibrated on; and which of its levels are walked over."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    sub = parser.add_subparsers(
        dest="subcommand", metavar="WHAT", title="what", required=True, parser_class=GantryParser
    )
    train = sub.add_parser(
        "train", help="train a mapping network, export it and compare it", epilog=_TRAIN_EPILOG, description=_TRAIN_TEXT
    )
    _train_arguments(train)
    judge = sub.add_parser(
        "eval",
        help="compare a mapping network with classical mapping",
        description="Walk robots over terrains that nothing is trained on, and compare their maps with the truth.",
    )
    judge.add_argument("mapper", metavar="FILE", type=Path, help="mapper.onnx, or a folder that holds one")
    judge.add_argument(
        "--rasters", type=Path, metavar="FILE", help="ground to walk over (.npz); held-out terrains if not given"
    )
    _walk_arguments(judge)
    add_json_option(judge)
    judge.set_defaults(run_map=_eval)


def _train_arguments(train: argparse.ArgumentParser) -> None:
    train.add_argument("--grid", choices=GRIDS, help="local grid (default: small)")
    train.add_argument("--seed", type=seed_number, help="of everything random (default: 1)")
    train.add_argument("--robot", help="whose terrains patches are cut from (default: go2)")
    train.add_argument("--rasters", type=Path, metavar="FILE", help="other terrains to cut patches from (.npz)")
    train.add_argument("--no-terrains", action="store_true", help="random geometry only")
    train.add_argument(
        "--run-dir", type=Path, metavar="FOLDER", help="where to write; a new folder in runs/ if not given"
    )
    train.add_argument("--resume", type=Path, metavar="FOLDER", help="continue the training in FOLDER where it stopped")
    train.add_argument("--minutes", type=float, metavar="N", help="stop after so long; --resume goes on")
    add_set_option(train)
    train.add_argument("--no-eval", action="store_true", help="leave out the comparison")
    _walk_arguments(train)
    add_json_option(train)
    train.set_defaults(run_map=_train)


def _walk_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--walkers", type=whole, default=2, metavar="N", help="robots on each raster")
    parser.add_argument("--walk-seconds", type=float, default=8.0, metavar="S", help="how long they walk")


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    from gantry_sim.process.torch_threads import torch_threads

    # The network is so small that a second thread mostly waits, and sums would come out otherwise on another machine.
    with torch_threads(1):
        return args.run_map(args)


def configure(args: argparse.Namespace) -> tuple[TrainCfg, Path, dict[str, Heights]]:
    """Build the settings from the command line: the training, its folder, and the terrains that patches are cut
    from.
    """
    from gantry_hardware.files.structured import set_fields
    from gantry_mapping.elevation.grid import LOCAL_GRID_FULL, LOCAL_GRID_NEAR, LOCAL_GRID_SMALL
    from gantry_mapping.learn.heightfields import load_rasters, save_rasters
    from gantry_mapping.learn.train import CONFIG, TrainCfg, read_config, same_resolution

    if args.resume is not None:
        others = (args.grid, args.seed, args.robot, args.rasters, args.run_dir)
        if args.changes or args.no_terrains or any(value is not None for value in others):
            raise UsageError(
                "--resume continues a training as it was configured; of its options only --minutes may differ."
            )
        path = args.resume / RASTERS_FILE
        return read_config(args.resume), args.resume, load_rasters(path)[0] if path.is_file() else {}
    cfg = TrainCfg(seed=1 if args.seed is None else args.seed)
    grids = dict(zip(GRIDS, (LOCAL_GRID_SMALL, LOCAL_GRID_NEAR, LOCAL_GRID_FULL), strict=True))
    grid = grids[args.grid or "small"]
    cfg = replace(cfg, samples=replace(cfg.samples, local_grid=grid))
    cfg = set_fields(cfg, assignments(args.changes, "steps=500 or samples.tilt_rad=0.1"))
    folder = (
        args.run_dir or Path("runs") / f"mapper-{args.grid or 'small'}-s{cfg.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    if (folder / CONFIG).exists():
        raise GantryError(f"'{folder}' already holds a training; name another folder, or continue it with --resume.")
    # What a start that failed has left is no loss.
    if folder.is_dir() and any(
        item.name not in (RASTERS_FILE, CALIBRATION_FILE, LOCK_FILE) for item in folder.iterdir()
    ):
        raise GantryError(f"'{folder}' is in use already; name another folder.")
    rasters: dict[str, Heights] = {}
    calibration: dict[str, Heights] = {}
    if args.rasters is not None:
        rasters, resolution_m = load_rasters(args.rasters)
        same_resolution(resolution_m, cfg.samples)
    elif not args.no_terrains:
        rasters = training_rasters(args.robot or "go2", cfg.samples.resolution_m, cfg.seed)
        calibration = calibration_rasters(args.robot or "go2", cfg.samples.resolution_m, cfg.seed)
    folder.mkdir(parents=True, exist_ok=True)
    if calibration:
        save_rasters(folder / CALIBRATION_FILE, calibration, cfg.samples.resolution_m)
    if rasters:
        save_rasters(folder / RASTERS_FILE, rasters, cfg.samples.resolution_m)
    return cfg, folder, rasters


def training_rasters(robot: str, resolution_m: float, seed: int) -> dict[str, Heights]:
    """Every tile of a robot's training terrains, never of a held-out one, by column and level."""
    from gantry_sim.terrains import ame2_terrain, assert_trainable
    from gantry_sim.terrains.rasters import tile_rasters

    cfg = ame2_terrain(robot, levels=DEFAULT_LEVELS, columns=DEFAULT_COLUMNS, seed=seed)
    assert_trainable(cfg)
    return {name: tile.mapped_m for name, tile in tile_rasters(cfg, resolution_m).items()}


def calibration_rasters(robot: str, resolution_m: float, seed: int) -> dict[str, Heights]:
    """Tiles of the training's kinds that no patch is cut from, as ``sparse/...`` (over pits) and ``dense/...``."""
    from gantry_sim.terrains import GROUPS

    chosen: dict[str, Heights] = {}
    for name, raster in training_rasters(robot, resolution_m, seed + CALIBRATION_SEED).items():
        column, _, level = name.partition("/")
        if int(level) in CALIBRATION_LEVELS:
            group = "sparse" if column.rpartition("_")[0] in GROUPS["sparse"] else "dense"
            chosen[f"{group}/{column}_{level}"] = raster
    return chosen


def held_out_rasters(robot: str = "go2", resolution_m: float = 0.04, instances: int = 4) -> dict[str, Heights]:
    """Tiles of the held-out terrains, by terrain and instance."""
    from gantry_sim.terrains import ame2_terrain
    from gantry_sim.terrains.rasters import tile_rasters

    cfg = ame2_terrain(robot, levels=instances, held_out=())
    return {name: tile.mapped_m for name, tile in tile_rasters(cfg, resolution_m).items()}


def _train(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_mapping.learn.train import MapTrainer
    from gantry_policies.common.memory import explaining_memory
    from gantry_sim.training.run_folder import hold_run

    require_one_process()
    resume = args.resume is not None
    cfg, folder, rasters = configure(args)
    print(
        f"{'Resuming' if resume else 'Training'} a mapper in {folder}: seed {cfg.seed}, {len(rasters)} tiles of terrain"
    )
    with hold_run(folder), _way_back(folder), explaining_memory("a smaller batch or samples.patches helps"):
        training = MapTrainer(cfg, folder, rasters, resume=resume)
        minutes = 0.0 if args.minutes is None else training.wall_s / 60.0 + max(1e-9, args.minutes)
        training.train(_show, minutes=minutes)
        complete = training.is_complete
    result: dict[str, Any] = {
        "run": str(folder),
        "complete": complete,
        "training": training_record(training.cfg, training.step, training.wall_s, training.metrics, len(rasters)),
    }
    if not complete:
        print(f"Stopped at update {training.step} of {cfg.steps}; continue with: gantry map train --resume {folder}")
    return result | _finish(args, training, folder)


def training_record(cfg: TrainCfg, step: int, wall_s: float, metrics: dict[str, float], tiles: int) -> dict[str, Any]:
    """Origin of a mapper: for its file and its card."""
    from gantry_sim.training.run_folder import git_commit

    return {
        "git_commit": git_commit(),
        "seed": cfg.seed,
        "updates": step,
        "frames": step * cfg.batch,
        "wall_s": round(wall_s, 1),
        "terrain_tiles": tiles,
        "held_out_frames": {name: round(value, 4) for name, value in metrics.items()},
        "config": asdict(cfg),
    }


def _finish(args: argparse.Namespace, training: Any, folder: Path) -> dict[str, Any]:
    """Export what was trained, compare it, and write its card."""
    from gantry_mapping.learn.calibrate import calibrate
    from gantry_mapping.learn.export import export_mapper
    from gantry_mapping.learn.heightfields import load_rasters

    record = training_record(training.cfg, training.step, training.wall_s, training.metrics, len(training.source.names))
    grid = training.cfg.samples.local_grid
    if (folder / CALIBRATION_FILE).is_file():
        ground, resolution_m = load_rasters(folder / CALIBRATION_FILE)
        record["calibration"] = calibrate(training.net, mapping_of(grid), ground, resolution_m)
        print(f"Log variances shifted by {record['calibration']['log_variance_shift']:.2f} to be right in the map")
    provenance = {name: value for name, value in record.items() if name != "config"}
    frames = training.source.batch(1 << 41, 64).z_m
    difference = export_mapper(training.net, grid, folder / MAPPER_FILE, provenance=provenance, frames_z_m=frames)
    print(f"Mapper: {folder / MAPPER_FILE} (onnxruntime and torch differ by {difference:.1e})")
    result: dict[str, Any] = {"mapper": str(folder / MAPPER_FILE), "max_difference_onnx_torch": difference}
    digest = hashlib.sha256((folder / MAPPER_FILE).read_bytes()).hexdigest()
    card: dict[str, Any] = {"mapper_sha256": digest, "training": record, "max_difference_onnx_torch": difference}
    if not args.no_eval:
        result["evaluation"] = card["evaluation"] = _compare(
            folder / MAPPER_FILE, held_out_rasters(args.robot or "go2"), 0.04, args
        )
    write_json(folder / CARD_FILE, jsonable(card))
    return result


def _eval(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_mapping.learn.heightfields import load_rasters

    path = args.mapper / MAPPER_FILE if args.mapper.is_dir() else args.mapper
    if not path.is_file():
        raise UsageError(f"There is no mapper '{path}'.")
    rasters, resolution_m = (held_out_rasters(), 0.04) if args.rasters is None else load_rasters(args.rasters)
    return {"mapper": str(path)} | _compare(path, rasters, resolution_m, args)


def _compare(path: Path, rasters: dict[str, Heights], resolution_m: float, args: argparse.Namespace) -> dict[str, Any]:
    """Learned against classical mapping, printed and returned."""
    from gantry_mapping.learn.evaluate import COLUMNS, Entrant, EvalCfg, classical, compare, evaluate
    from gantry_mapping.mapper import OnnxMapper

    mapper = OnnxMapper(path)
    mapping = mapping_for(mapper)
    entrants = {"learned": Entrant(mapping, mapper), "classical": classical(mapping)}
    walk = EvalCfg(robots_per_raster=max(args.walkers, 1), seconds=args.walk_seconds)
    result = evaluate(entrants, rasters, resolution_m, walk, on_progress=ProgressBar("compare").share)
    result["better"] = compare(result, "learned", "classical")
    print(f"{'':<24}" + "".join(f"{name:>18}" for name in COLUMNS))
    for condition, scores in result["conditions"].items():
        for name, groups in scores.items():
            row = "".join(f"{groups['all'][column]:>18.3f}" for column in COLUMNS)
            print(f"{condition:<14}{name:<10}{row}")
    worse = [f"{column} ({name})" for name, row in result["better"].items() for column, won in row.items() if not won]
    print(
        "The learned map is better in every column."
        if not worse
        else f"The learned map is not better in: {', '.join(worse)}"
    )
    return result


def mapping_for(mapper: Any) -> MappingCfg:
    """The Go2's mapping with the local grid that a mapper was made for, and cells as large as that grid's."""
    return mapping_of(mapper.info.local_grid)


def mapping_of(grid: GridSpec) -> MappingCfg:
    """The Go2's mapping with a local grid, and cells as large as that grid's."""
    from gantry_mapping.config import GO2_FULL

    return replace(GO2_FULL, local_grid=grid, map_resolution_m=grid.resolution_m)


def _show(progress: Progress) -> None:
    """A line per judgement."""
    place = f"{progress.done}/{progress.total} ({progress.wall_s:.0f} s, {progress.remaining_s:.0f} s left)"
    hidden = ("loss", "frames")
    text = "  ".join(f"{name} {value:.3f}" for name, value in progress.metrics.items() if name not in hidden)
    print(f"{place}  {text}", file=sys.stderr)


@contextlib.contextmanager
def _way_back(folder: Path) -> Iterator[None]:
    """Tell how the training is continued before an error or an interruption goes on."""
    from gantry_mapping.errors import MappingError
    from gantry_mapping.learn.train import CHECKPOINT

    try:
        yield
    except MappingError:  # it says what is wrong with the training itself
        raise
    except BaseException:
        if (folder / CHECKPOINT).exists():
            print(f"Continue with: gantry map train --resume {folder}", file=sys.stderr)
        raise


_TRAIN_TEXT = (
    "Train the gated U-Net that completes elevation maps, on terrains and random geometry as a simulated depth camera "
    "sees them; export it as mapper.onnx, and compare it with classical mapping on held-out terrains."
)
_TRAIN_EPILOG = """examples:
  gantry map train
  gantry map train --minutes 10 --set batch=128
  gantry map train --grid full --set steps=20000
  gantry map train --resume runs/mapper-small-s1-20260101-120000"""

COMMAND = Command(
    name="map",
    help="train and compare the network that completes elevation maps",
    add_arguments=_add_arguments,
    run=_run,
)
