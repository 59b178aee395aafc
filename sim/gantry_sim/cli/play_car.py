"""``gantry play`` for policies of cars: a film from above, stills, and a report."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import UsageError, counted, output_file, seed_number
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole
from gantry_sim.cli.common import ProgressBar, whole
from gantry_sim.tasks.names import task_names

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle
    from gantry_sim.driving.film.film import Shown
    from gantry_sim.driving.film.playing import Driven

CHOICES = ("first", "collision", "worst")
DRIVERS = ("policy", "scripted", "scan", "steady", "random")
EPISODES, REPORTED = 16, 100
"""Episodes to choose from, and those of a report, if no number is given."""
ENCODER = "av"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Offer what belongs to cars."""
    group = parser.add_argument_group("policies of cars")
    group.add_argument("--episode", choices=CHOICES, help="which episode is shown (default: first; a report: worst)")
    group.add_argument(
        "--episodes",
        type=whole,
        metavar="N",
        help=f"how many to choose from, or to score (default: {EPISODES}, a report: {REPORTED})",
    )
    group.add_argument("--seed", type=seed_number, metavar="N", help="of the held-out episodes")
    group.add_argument(
        "--driver",
        choices=DRIVERS,
        default=DRIVERS[0],
        help="another driver in the same episodes; then a task's name will do in place of the policy",
    )
    group.add_argument("--up", choices=("heading", "north"), help="what is up in the film")
    group.add_argument("--stills", type=output_file(".png"), metavar="FILE", help="write a sheet of moments (.png)")
    group.add_argument(
        "--baselines", action="store_true", help="let drivers that learned nothing drive a report's episodes, too"
    )


def check(args: argparse.Namespace) -> None:
    """Refuse what makes no sense, before anything is computed.

    Raises:
        UsageError: With the way out.
    """
    if args.baselines and args.report is None:
        raise UsageError("--baselines are shown in a report; say where to: --report FILE.html.")
    if args.episodes is not None and args.episodes < 1:
        raise UsageError("--episodes is 0, expected at least 1.")


def require_none(args: argparse.Namespace) -> None:
    """Refuse options of cars where something else walks or reaches.

    Raises:
        UsageError: Naming the first of them.
    """
    for name in ("episode", "episodes", "seed", "up", "stills"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} is for policies of cars.")
    if args.driver != DRIVERS[0]:
        raise UsageError("--driver is for tasks of cars.")


def drives_task(args: argparse.Namespace) -> bool:
    """Whether another driver than a policy is to drive, on a task that is named in place of a policy."""
    return args.driver != DRIVERS[0] and str(args.source) in task_names() and not args.source.exists()


def run(args: argparse.Namespace, bundle: Bundle | None) -> dict[str, Any]:
    """Drive, choose, draw, write.

    Args:
        args: Of the command line.
        bundle: The policy; None if a task is named in its place.

    Raises:
        GantryError: If the task drives no car, or there is no episode of the kind that is asked for.
    """
    if args.command is not None or args.option or args.attention:
        raise UsageError(
            "Cars are filmed in the environment of their training: without --command, --option and --attention."
        )
    if args.video is None and args.report is None and args.stills is None:
        raise UsageError("Cars are drawn into files: --video FILE.mp4, --stills FILE.png, --report FILE.html.")
    from gantry_sim.driving.cfg import CarTaskCfg
    from gantry_sim.driving.film.playing import PlayCfg, drive, shown_of
    from gantry_sim.driving.film.view import Look
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.policies import open_source

    if bundle is None:
        task = find_task(str(args.source))
        env_cfg, trained = task.preset("cpu").env, None
    else:
        source = open_source(bundle.path)
        task, env_cfg, trained = source.task, source.env_cfg, source.trained_seed
    if not isinstance(env_cfg, CarTaskCfg):
        raise GantryError(f"Task '{task.name}' drives no car; --driver is for those that do, for example drive-lane.")
    which = args.episode or ("first" if args.report is None else "worst")
    count = args.episodes or (REPORTED if args.report is not None else EPISODES)
    look, seconds = Look(up=args.up), args.seconds
    cfg = PlayCfg(which, count, **({} if args.seed is None else {"seed": args.seed}), seconds=seconds, look=look)
    if cfg.seed == trained:
        raise UsageError(f"Seed {cfg.seed} is the one that '{args.source}' was trained with; episodes need another.")
    # No other episode has to be driven if the first one is shown, whatever comes of it.
    alone = which == "first" and args.report is None and args.episodes is None
    number = 1 if alone else count

    def driven_by(name: str) -> Driven:
        bar = ProgressBar(f"drive ({name})").share
        return drive(task, env_cfg, name, bundle, episodes=number, seed=cfg.seed, on_progress=bar)

    driven = driven_by(args.driver)
    shown = shown_of(driven, task.name, cfg)
    return _write(args, task.name, task.summary, driven, shown, driven_by)


def _write(
    args: argparse.Namespace, task: str, summary: str, driven: Driven, shown: Shown, driven_by: Any
) -> dict[str, Any]:
    from gantry_deploy.report.maps import encode_png
    from gantry_sim.driving.evaluation import scores_of
    from gantry_sim.driving.film.film import how_they_ended

    episode = shown.episode
    print(f"{task}, {driven.driver}: {counted(len(driven.episodes), 'episode')}, {how_they_ended(driven.episodes)}")
    print(f"Shown: {shown.panel.words.place}, {episode.steps * driven.env.dt_s:.1f} s")
    result: dict[str, Any] = {
        "task": task,
        "driver": driven.driver,
        "episodes": len(driven.episodes),
        "ends": [one.ended for one in driven.episodes],
        "shown": {"car": episode.car, "ended": episode.ended, "frames": shown.frames},
        "scores": scores_of(driven.found),
    }
    film, stills = None, args.stills
    if args.video is not None or args.report is not None:
        film, instead = put_film(shown, args.video, stills)
        result |= {} if args.video is None or film is None else {"video": str(args.video.resolve())}
        stills = instead
    if stills is not None:
        result["stills"] = _put("Stills", stills, encode_png(shown.sheet()))
    if args.report is not None:
        from gantry_sim.driving.film.page import drive_page

        drivers = [driven, *_others(args, driven, driven_by)]
        page = drive_page(task, summary, drivers, shown, film)
        result["report"] = str(page.write(args.report).resolve())
        print(f"Report: {result['report']}")
    return result


def put_film(shown: Shown, video: Path | None, stills: Path | None) -> tuple[bytes | None, Path | None]:
    """Encode a film, and write it if the file is wanted.

    Args:
        shown: The episode.
        video: Where to write it; None for nowhere.
        stills: Where a sheet of moments goes; None for nowhere.

    Returns:
        The film, None where nothing can encode one; and where the sheet goes, which then takes the film's place.

    Raises:
        GantryError: If the file cannot be written.
    """
    if importlib.util.find_spec(ENCODER) is None:
        if video is None or stills is not None:
            return None, stills
        print(f"No film can be encoded here (package {ENCODER} is missing); a sheet of moments takes its place.")
        return None, video.with_suffix(".png")
    from gantry_deploy.report import encode_mp4

    film = encode_mp4(shown.pictures(ProgressBar("film").share), shown.rate_hz)
    if video is not None:
        _put("Film", video, film)
    return film, stills


def _others(args: argparse.Namespace, driven: Driven, driven_by: Any) -> list[Driven]:
    """Drivers that learned nothing in the same episodes, those of them that can drive there."""
    from gantry_sim.driving.film.playing import able_drivers

    if not args.baselines:
        return []
    return [driven_by(name) for name in able_drivers(driven.env.cfg) if name != args.driver]


def _put(title: str, path: Path, data: bytes) -> str:
    try:
        write_whole(path, data)
    except OSError as error:
        raise GantryError(f"Cannot write '{path}': {error.strerror}.") from error
    print(f"{title}: {path.resolve()} ({len(data) / 1e6:.1f} MB)")
    return str(path.resolve())
