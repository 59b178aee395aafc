"""``gantry play --attention``: what a policy sees of the ground and where it looks, as a film and as a report."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import UsageError, emit_result, parse_numbers
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.files.whole_files import write_whole
from gantry_sim.cli.common import ProgressBar

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle
    from gantry_deploy.report.attention import AttentionRollout

TEST_TERRAINS = ("t1", "t2", "t3", "t4")
"""Default terrains of a report."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Offer ``--attention`` and what belongs to it."""
    group = parser.add_argument_group("policies that walk to goals over terrain")
    group.add_argument(
        "--attention", action="store_true", help="film from above what the policy sees and where it looks"
    )
    group.add_argument(
        "--terrain",
        action="append",
        default=[],
        metavar="NAME",
        help="where to walk: t1 to t4 or a training terrain; several times for a report (default: t1, a report: all "
        "four)",
    )
    group.add_argument("--difficulty", type=float, default=0.5, metavar="D", help="of the terrain, 0 to 1")
    group.add_argument("--goal", type=parse_numbers, metavar="X,Y,YAW", help="from the start, in m and rad")
    group.add_argument(
        "--map",
        metavar="SOURCE",
        help="where the map comes from: camera or truth (default: camera, if the policy knows of uncertainty)",
    )
    group.add_argument("--fps", type=float, default=10.0, metavar="N", help="pictures per second")
    group.add_argument("--scores", type=Path, metavar="FILE", help="of `gantry eval --json`, to be shown in the report")


def check(args: argparse.Namespace) -> None:
    """Refuse combinations of options that make no sense, before anything is computed.

    Raises:
        UsageError: With the way out.
    """
    if not args.attention:
        for name in ("goal", "map", "scores"):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name} belongs to --attention.")
        if args.terrain:
            raise UsageError("--terrain belongs to --attention.")
        return
    if args.command is not None:
        raise UsageError("--command asks for a velocity; with --attention there is --goal X,Y,YAW.")
    if args.video is None and args.report is None:
        raise UsageError("--attention draws pictures; say where to: --video FILE.mp4, --report FILE.html, or both.")
    if args.video is not None and len(args.terrain) > 1:
        raise UsageError("A film shows one terrain; a report may show several.")
    if args.scores is not None and args.report is None:
        raise UsageError("--scores are shown in a report; say where to: --report FILE.html.")
    if args.goal is not None and len(args.goal) != 3:
        raise UsageError(f"--goal has {len(args.goal)} numbers, expected 3: x and y in m, heading in rad.")


def run(args: argparse.Namespace, bundle: Bundle) -> int:
    """Walk, draw, write."""
    from gantry_deploy.report import Report, encode_mp4
    from gantry_deploy.report.attention import add_attention, film_frames
    from gantry_deploy.report.success import add_success
    from gantry_sim.viewing.attention import AttentionRolloutCfg, attention_rollout

    scores = None if args.scores is None else _read_scores(args.scores)
    provenance = bundle.contract.provenance
    report = Report(
        f"What a {bundle.contract.robot.capitalize()} sees, and where it looks",
        f"{provenance.task or 'a policy of unknown origin'}, {provenance.env_steps / 1e6:.2f} million control steps",
    )
    default = TEST_TERRAINS if args.report is not None and args.video is None else TEST_TERRAINS[:1]
    walks: list[dict[str, Any]] = []
    if scores is not None:
        add_success(report, scores)
    for terrain in args.terrain or default:
        cfg = AttentionRolloutCfg(
            terrain, args.difficulty, args.seconds, args.fps, args.goal, args.map, dict(args.option)
        )
        walk = attention_rollout(bundle, cfg)
        print(_in_words(walk), flush=True)
        share, frames = ProgressBar("film").share, film_frames(walk)
        total = len(walk.moments)
        film = encode_mp4((_told(frame, share, i / total) for i, frame in enumerate(frames, start=1)), walk.fps)
        if args.video is not None:
            _write(args.video, film)
            print(f"Film: {args.video.resolve()} ({len(film) / 1e6:.1f} MB)")
        if args.report is not None:
            add_attention(report, walk, film)
        walks.append(_in_numbers(walk, terrain))
    if args.report is not None:
        print(f"Report: {report.write(args.report).resolve()}")
    emit_result(
        args,
        {
            "walks": walks,
            "video": None if args.video is None else str(args.video.resolve()),
            "report": None if args.report is None else str(args.report.resolve()),
        },
    )
    return 0


def _told(frame: Any, share: Any, done: float) -> Any:
    share(done)
    return frame


def _in_words(walk: AttentionRollout) -> str:
    last = walk.moments[-1]
    distance, end = math.hypot(*last.command[:2]), walk.trouble.rstrip(".") or "time is over, or it has arrived"
    outcome = "at the goal" if walk.reached else f"{distance:.1f} m from the goal"
    return f"{walk.title}, map from {walk.map_source}: {outcome} after {last.time_s:.1f} s ({end})"


def _in_numbers(walk: AttentionRollout, terrain: str) -> dict[str, Any]:
    last = walk.moments[-1]
    return {
        "terrain": terrain,
        "map": walk.map_source,
        "reached": walk.reached,
        "trouble": walk.trouble,
        "seconds": last.time_s,
        "distance_m": math.hypot(*last.command[:2]),
        "heading_error_rad": abs(math.atan2(last.command[2], last.command[3])),
    }


def _read_scores(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path, what=f"The scores '{path}'", allow_nan=True, error=GantryError)
    except OSError as error:
        raise GantryError(f"Cannot read the scores '{path}': {error.strerror}.") from error


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise GantryError(f"Cannot write the film to '{path}': {error.strerror}.") from error
