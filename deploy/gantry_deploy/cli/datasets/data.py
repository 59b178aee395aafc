"""``gantry data``: what a dataset of episodes holds, whether it is intact, and its episodes once more."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.cli.command import (
    Command,
    UsageError,
    add_json_option,
    choose,
    counted,
    emit_result,
    output_file,
    parse_key_value,
)
from gantry_deploy.cli.datasets.data_bags import add_arguments as add_bag_arguments
from gantry_deploy.cli.datasets.data_edit import add_arguments as add_edit_arguments
from gantry_deploy.cli.parser import GantryParser
from gantry_deploy.errors import DatasetError
from gantry_hardware.backends.registry import backend_names, make_backend, moves_metal
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import LINE_LIMIT, names_text, path_text, printable
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.robots import robot_spec

if TYPE_CHECKING:
    from rich.table import Table

    from gantry_deploy.dataset import Dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    sub = parser.add_subparsers(
        dest="subcommand", metavar="WHAT", title="what", required=True, parser_class=GantryParser
    )
    info = sub.add_parser("info", help="what a dataset holds", description=_INFO_TEXT)
    check = sub.add_parser("check", help="look for everything that can be wrong with it", description=_CHECK_TEXT)
    replay = sub.add_parser("replay", help="walk through an episode", description=_REPLAY_TEXT, epilog=_REPLAY_EPILOG)
    for own in (info, check, replay):
        own.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the dataset")
        add_json_option(own)
    check.add_argument("--decode", action="store_true", help="also decode every picture; takes long")
    check.add_argument(
        "--repair", action="store_true", help="first remove what a killed writer left behind that is no whole episode"
    )
    check.add_argument(
        "--accept-changes",
        action="store_true",
        help="first write the checksums anew: another program changed the dataset on purpose",
    )
    _replay_arguments(replay)
    info.set_defaults(run_data=_info)
    check.set_defaults(run_data=_check)
    replay.set_defaults(run_data=_replay)
    add_edit_arguments(sub)
    add_bag_arguments(sub)


def _replay_arguments(replay: argparse.ArgumentParser) -> None:
    replay.add_argument("--episode", type=int, default=0, metavar="N", help="its number, from 0 on")
    replay.add_argument("--feature", default="action", metavar="NAME", help="whose numbers are shown and sent")
    replay.add_argument("--video", type=output_file(".mp4"), metavar="FILE", help="write a film of cameras and curves")
    replay.add_argument("--backend", metavar="NAME", help=f"send the actions to a robot: {', '.join(backend_names())}")
    replay.add_argument("--robot", metavar="NAME", help="which robot it is; the dataset's own if not given")
    replay.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the backend; may be given several times",
    )
    replay.add_argument(
        "--real-time", action="store_true", help="let a simulated robot follow the clock instead of running ahead"
    )
    replay.add_argument(
        "--yes", action="store_true", help="confirm that a real robot may move; needed unless the backend is simulated"
    )


def _run(args: argparse.Namespace) -> int | dict[str, Any]:
    for folder in [args.folder] if "folder" in args else getattr(args, "folders", []):
        if not folder.is_dir():
            place = path_text(folder)
            if folder.exists():
                raise DatasetError(f"'{place}' is a file, expected the folder of a dataset.")
            raise DatasetError(f"There is no folder {place}.{near_miss(folder)}")
    return args.run_data(args)


def _info(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_deploy.dataset import Dataset

    dataset = Dataset(args.folder)
    result = describe(dataset)
    _print_info(dataset, result)
    return result


def describe(dataset: Dataset) -> dict[str, Any]:
    """A dataset as plain data.

    Raises:
        DatasetError: If a file is missing or malformed.
    """
    lengths = np.array([row.length for row in dataset.episodes], dtype=np.int64)
    successes = dataset.successes() if len(lengths) else None
    stats = dataset.stats if len(lengths) else {}
    features = {}
    for name, feature in dataset.info.features.items():
        features[name] = {"dtype": feature.dtype, "shape": list(feature.shape), "names": feature.names}
        features[name] |= {"kind": feature.kind, "unit": feature.unit, "units": list(feature.units)}
        features[name] |= {key: stats[name][key] for key in ("min", "max", "mean", "std") if key in stats.get(name, {})}
    return {
        "path": str(dataset.folder),
        "robot_type": dataset.robot_type,
        "fps": dataset.fps,
        "episodes": len(lengths),
        "frames": int(lengths.sum()),
        "duration_s": float(lengths.sum() / dataset.fps),
        "episode_length": {
            "min": int(lengths.min()) if len(lengths) else None,
            "median": float(np.median(lengths)) if len(lengths) else None,
            "max": int(lengths.max()) if len(lengths) else None,
        },
        "success_share": None if successes is None else float(successes.mean()),
        "tasks": dataset.tasks,
        "size_bytes": sum(path.stat().st_size for path in dataset.folder.rglob("*") if path.is_file()),
        "features": features,
    }


def _print_info(dataset: Dataset, result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.width = max(console.width, 110)
    length, share = result["episode_length"], result["success_share"]
    spread = f"{length['min']} to {length['max']}, median {length['median']:g}" if result["episodes"] else "none"
    rows = {
        "dataset": result["path"],
        "robot": result["robot_type"] or "not said",
        "rate": f"{result['fps']} Hz",
        "episodes": f"{result['episodes']} ({result['frames']} frames, {result['duration_s']:.1f} s)",
        "frames per episode": spread,
        "successes": "not recorded" if share is None else f"{100 * share:.1f} %",
        "tasks": "; ".join(result["tasks"]) or "none",
        "size": f"{result['size_bytes'] / 1e6:.2f} MB",
    }
    table = _table("", "")
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(printable(str(value), LINE_LIMIT)))
    console.print(table)
    console.print()
    table = _table("feature", "type", "shape", "unit", "least", "greatest", "names")
    for name in dataset.features:
        feature = result["features"][name]
        ends = [
            f"{pick(feature[key]):.4g}" if key in feature else "" for key, pick in (("min", np.min), ("max", np.max))
        ]
        names = "" if dataset.info.features[name].is_image else names_text(feature["names"] or ())
        shape = "x".join(map(str, feature["shape"]))
        unit = names_text(dict.fromkeys(filter(None, feature["units"]))) or feature["unit"]
        table.add_row(Text(printable(name)), feature["dtype"], shape, Text(unit), *ends, Text(names))
    console.print(table)


def _check(args: argparse.Namespace) -> int:
    from gantry_deploy.dataset.checks.check import check_dataset, has_checksums, repair_dataset
    from gantry_deploy.dataset.storage.checksums import accept_changes

    if args.accept_changes:
        accept_changes(args.folder)
    if args.repair:
        repair_dataset(args.folder)
    findings = check_dataset(args.folder, decode=args.decode)
    for finding in findings:
        print(f"{finding.place}: {finding.problem}\n    -> {finding.advice}")
    checksums = has_checksums(args.folder)
    if findings:
        print(f"{counted(len(findings), 'finding')} in {path_text(args.folder)}")
    elif checksums:
        print(f"{path_text(args.folder)} is intact")
    else:
        seen = "nothing is wrong that can be seen; it has no checksums, so values may have been changed"
        print(f"{path_text(args.folder)}: {seen}")
    result = {"path": str(args.folder), "checksums": checksums, "findings": [asdict(item) for item in findings]}
    emit_result(args, result)
    return 1 if findings else 0


def _replay(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_deploy.dataset import Dataset
    from gantry_deploy.dataset.film import film

    if (args.robot or args.option or args.real_time or args.yes) and not args.backend:
        raise UsageError("--robot, --option, --real-time and --yes need --backend.")
    dataset = Dataset(args.folder)
    choose("feature", args.feature, dataset.info.features)
    result = _show(dataset, args.episode, args.feature)
    if args.video is not None:
        data = film(dataset, args.episode, args.feature)
        try:
            write_whole(args.video, data)
        except OSError as error:
            raise GantryError(f"Cannot write the film to '{args.video}': {error.strerror}.") from error
        print(f"film: {args.video}")
        result["video"] = str(args.video)
    if args.backend is not None:
        result["robot"] = _send(args, dataset)
    return result


def _show(dataset: Dataset, episode: int, key: str) -> dict[str, Any]:
    """Print an episode's numbers as curves of text."""
    from gantry_deploy.dataset.features import REWARD, SUCCESS
    from gantry_deploy.dataset.film import curve_names, text_curve

    feature = dataset.info.features[key]
    if not feature.is_number:
        raise UsageError(f"--feature: '{key}' is {feature.dtype}, expected one of numbers.")
    shown = [key, *(name for name in (REWARD, SUCCESS) if name in dataset.features and name != key)]
    values = dataset.frames(episode, shown)
    row = dataset.episodes[episode]
    print(f"episode {episode}: {row.length} frames, {row.length / dataset.fps:.2f} s, {names_text(row.tasks)}")
    width = max(len(name) for item in shown for name in curve_names(dataset, item))
    for item in shown:
        numbers = values[item].reshape(row.length, -1).astype(np.float64)
        for name, curve in zip(curve_names(dataset, item), numbers.T, strict=True):
            print(f"{name:<{width}} {curve.min():10.4g} {curve.max():10.4g}  {text_curve(curve)}")
    return {"episode": episode, "frames": row.length, "tasks": row.tasks, key: values[key]}


def _send(args: argparse.Namespace, dataset: Dataset) -> dict[str, Any]:
    """Send the episode's actions to a robot."""
    from gantry_deploy.dataset.motion import motion_of
    from gantry_deploy.dataset.notes import read_notes
    from gantry_deploy.dataset.replay import replay_episode
    from gantry_deploy.dataset.storage.checksums import require_checksums
    from gantry_deploy.process.interrupts import interrupt_on_terminate

    backend = choose("robot backend", args.backend, backend_names())
    name = args.robot or dataset.robot_type
    if name is None:
        raise UsageError("The dataset does not say of which robot it is; nothing is sent.")
    spec = robot_spec(name)
    require_checksums(args.folder)
    motion_of(dataset, args.episode, spec, args.feature)  # Before anything is opened.
    if not args.yes and moves_metal(backend):
        raise UsageError(
            f"Backend '{backend}' may move a real robot: it would go to the first pose and repeat the episode by "
            "itself. Give --yes if it has room and an operator is at the emergency stop."
        )
    options = dict(args.option) | ({"realtime": True} if args.real_time else {})
    notes = read_notes(args.folder)
    if backend == "workbench" and notes is not None:
        options.setdefault("task", notes["task"])
    robot = make_backend(backend, spec, **options)
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupt_on_terminate())
        stack.callback(robot.close)
        robot.connect()
        replayed = replay_episode(dataset, args.episode, robot, key=args.feature)
    error = np.abs(replayed.measured_rad[1:] - replayed.sent_rad[:-1])
    print(
        f"sent {len(replayed.times_s)} actions to '{backend}' in {replayed.times_s[-1]:.2f} s, "
        f"{replayed.limited_frames} of them limited"
    )
    return {
        "backend": backend,
        "robot": name,
        "actions": len(replayed.times_s),
        "duration_s": float(replayed.times_s[-1]),
        "limited": replayed.limited_frames,
        "mean_tracking_error_rad": float(error.mean()) if error.size else 0.0,
    }


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), show_header=any(columns), expand=False
    )
    for number, name in enumerate(columns):
        table.add_column(name, overflow="fold", no_wrap=number == 0)
    return table


_INFO_TEXT = "Show what a LeRobot v3 dataset holds: features with their statistics, episodes, successes, size."
_CHECK_TEXT = (
    "Check checksums, files, rows, timestamps, videos, numbers, statistics and tasks of a LeRobot v3 dataset. Prints "
    "every finding with its place and what to do. Exit code 1 if there is any."
)
_REPLAY_TEXT = (
    "Show an episode's numbers as curves, write a film of it, or send its actions to a robot once more. Sent are joint "
    "positions, and an arm's steps that `gantry collect` recorded, of the very robot: it moves slowly to the first "
    "pose, then follows at the dataset's rate. At the end it is damped; an arm holds its last target. Objects lie "
    "where the simulation lays them, not where they lay."
)
_REPLAY_EPILOG = (
    "examples:\n"
    "  gantry data replay demos/lift --episode 3 --video lift.mp4\n"
    "  gantry data replay demos/lift --episode 3 --backend mujoco"
)

COMMAND = Command(
    name="data",
    help="look at, check, replay, merge, split and relabel datasets of episodes (LeRobot v3)",
    add_arguments=_add_arguments,
    run=_run,
    epilog=(
        "examples:\n"
        "  gantry data info demos/lift\n"
        "  gantry data check demos/lift --decode\n"
        "  gantry data replay demos/lift --episode 3 --video lift.mp4\n"
        "  gantry data merge demos/lift sessions/first --common --output demos/all"
    ),
)
