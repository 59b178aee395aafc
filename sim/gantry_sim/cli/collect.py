"""``gantry collect``: demonstrations of a scripted expert, or a policy's own rollouts, as a LeRobot dataset."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option, choose, counted, seed_number
from gantry_sim.cli.common import changed, whole
from gantry_sim.tasks.names import task_names

if TYPE_CHECKING:
    from gantry_sim.training.collect import CollectCfg, Collected
    from gantry_sim.training.policies import Source

CAMERA_ENVS = 4
"""Environments side by side while pictures are taken, which nothing makes faster."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="a manipulation task; see `gantry tasks`")
    parser.add_argument(
        "--episodes", type=whole, required=True, metavar="N", help="episodes that the dataset has in the end"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="dataset, new or to be continued")
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="PATH",
        help="run folder or bundle that acts in the expert's place, in the environments that it was trained in; "
        "episodes without success are kept",
    )
    parser.add_argument(
        "--suboptimality", type=float, default=0.0, metavar="B", help="of the expert, 0 to 1 (default: 0)"
    )
    parser.add_argument("--seed", type=seed_number, default=1, help="of everything random")
    parser.add_argument("--envs", type=whole, metavar="N", help="environments side by side")
    parser.add_argument(
        "--images",
        action="store_true",
        help="record pictures of hand and front, or of env.cameras, for presets such as bc-images; numbers that only a "
        "simulator tells are left out",
    )
    parser.add_argument("--successes-only", action="store_true", help="leave out episodes without success")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="changes",
        help="change a field of the task, for example env.action=joint; may be given several times",
    )
    add_json_option(parser)


def configure(args: argparse.Namespace) -> CollectCfg:
    """Build the settings from the command line.

    Raises:
        GantryError: If something in it makes no sense.
    """
    choose("task", args.task, task_names())
    for name in ("episodes", "envs"):
        if getattr(args, name) == 0:
            raise UsageError(f"--{name} is 0, expected at least 1.")
    if not 0.0 <= args.suboptimality <= 1.0:
        raise UsageError(f"--suboptimality is {args.suboptimality:g}, expected 0 to 1.")
    from gantry_sim.tasks.registry import Preset, find_task
    from gantry_sim.training.collect import CollectCfg

    task, source = find_task(args.task), _source(args)
    if source is None and not task.require_scripted().demonstrates:
        raise UsageError(f"The scripted policy of task '{task.name}' is not recorded; it may teach.")
    env = task.usual_env() if source is None else replace(source.env_cfg, num_envs=task.usual_env().num_envs)
    if args.images:
        env = replace(env, observer="camera", num_envs=CAMERA_ENVS)
    env = changed(Preset(env, None), args.changes).env
    if args.envs is not None:
        env = replace(env, num_envs=args.envs)
    make_policy = None if source is None else source.make_policy
    return CollectCfg(task, env, args.episodes, args.suboptimality, args.seed, args.successes_only, make_policy)


def _source(args: argparse.Namespace) -> Source | None:
    """The policy that acts in the expert's place; None for the expert."""
    if args.policy is None:
        return None
    for name, given in (("suboptimality", bool(args.suboptimality)), ("images", args.images)):
        if given:
            raise UsageError(f"--{name} is of the scripted expert; leave it out with --policy.")
    from gantry_deploy.bundle.locate import find_source
    from gantry_sim.training.policies import open_source

    source = open_source(find_source(args.policy))
    if source.task.name != args.task:
        raise UsageError(f"'{args.policy}' is a policy of task '{source.task.name}', expected one of '{args.task}'.")
    return source


def _run(args: argparse.Namespace) -> dict[str, Any]:
    cfg = configure(args)
    from gantry_sim.training.collect import collect

    actor = f"expert of suboptimality {cfg.suboptimality:g}" if args.policy is None else f"policy {args.policy}"
    print(f"{cfg.task.name}: {actor}, seed {cfg.seed}, into {args.output}", flush=True)
    show = _Display(cfg.episodes)
    with _way_back(args):
        done = collect(cfg, args.output, show)
    show.close()
    return _result(args, done)


@contextlib.contextmanager
def _way_back(args: argparse.Namespace) -> Iterator[None]:
    """Tell the user after an interrupt how to go on; whole episodes are kept."""
    from gantry_deploy.process.interrupts import interrupt_on_terminate

    try:
        with interrupt_on_terminate():
            yield
    except KeyboardInterrupt:
        words = [
            args.task,
            f"--episodes {args.episodes}",
            f"--suboptimality {args.suboptimality:g}" if args.policy is None else f"--policy {args.policy}",
            f"--seed {args.seed}",
        ]
        words += ["--images"] if args.images else []
        words += ["--successes-only"] if args.successes_only else []
        words += [f"--envs {args.envs}"] if args.envs else []
        words += [f"--set {change}" for change in args.changes]
        print(f"\nContinue with: gantry collect {' '.join(words)} --output {args.output}", file=sys.stderr)
        raise


def _result(args: argparse.Namespace, done: Collected) -> dict[str, Any]:
    share = done.succeeded / done.tried if done.tried else None
    if done.tried:
        print(
            f"{counted(done.tried, 'episode')} tried, {100 * (share or 0):.1f} % with success, "
            f"{done.steps_per_s:.0f} steps/s, {done.wall_s:.0f} s"
        )
    else:
        print("Nothing to do.")
    print(f"Dataset: {args.output} ({counted(done.episodes, 'episode')}, {done.frames} frames)")
    return {
        "task": args.task,
        "dataset": str(args.output),
        "episodes": done.episodes,
        "frames": done.frames,
        "recorded": done.episodes - done.before,
        "tried": done.tried,
        "success_rate": share,
        "steps_per_s": round(done.steps_per_s, 1),
        "wall_s": round(done.wall_s, 1),
        "suboptimality": args.suboptimality,
        "policy": None if args.policy is None else str(args.policy),
        "seed": args.seed,
    }


class _Display:
    """One line while it goes on, at a terminal."""

    def __init__(self, episodes: int) -> None:
        self._episodes = episodes
        self._live = sys.stderr.isatty()
        self._shown = 0.0

    def __call__(self, done: Collected) -> None:
        now = time.monotonic()
        if now - self._shown < (0.2 if self._live else 10.0):
            return
        first, self._shown = self._shown == 0.0, now
        if first and not self._live:
            return
        share = f"{100 * done.succeeded / done.tried:.0f} %" if done.tried else "-"
        text = f"collect {done.episodes}/{self._episodes}  success {share}  {done.steps_per_s:.0f} steps/s"
        sys.stderr.write(f"\r\x1b[2K{text}" if self._live else text + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self._live:
            sys.stderr.write("\n")


COMMAND = Command(
    name="collect",
    help="record demonstrations of a scripted expert, or a policy's rollouts",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Let a task's scripted expert demonstrate it in several environments at once, and store whole episodes as a "
        "LeRobot dataset; with --policy a policy's own rollouts, failures included. A dataset that exists is continued "
        "until it has as many episodes as asked for, so the same command goes on after an interruption."
    ),
    epilog="""examples:
  gantry collect yam-lift --episodes 50 --suboptimality 0.3 --output demos/lift
  gantry collect yam-lift --episodes 50 --images --output demos/lift-images
  gantry collect yam-lift --episodes 200 --policy runs/lift-bc --output rollouts/lift
  gantry data info demos/lift""",
)
