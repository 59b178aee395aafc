"""``gantry tasks``: what can be trained."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from gantry_deploy.cli.command import Command, add_json_option
from gantry_sim.tasks.catalogue import require_preset, task_infos
from gantry_sim.tasks.names import require_task

MOST_PRESETS = 3
"""Presets that a listing names."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="show one task with its presets and their fields")
    parser.add_argument("--preset", metavar="NAME", help="show this preset's fields alone")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.task is None:
        return _list()
    require_task(args.task)
    if args.preset is not None:
        require_preset(args.task, args.preset)
    return _show_task(args.task, args.preset)


def _list() -> dict[str, Any]:
    tasks = task_infos()
    for task in tasks:
        presets = "/".join(task.presets) if len(task.presets) <= MOST_PRESETS else f"{len(task.presets)} presets"
        print(f"{task.name:<22} {presets:<15} {task.summary}")
    return {
        "tasks": [
            {"name": task.name, "robot": task.robot, "presets": list(task.presets), "summary": task.summary}
            for task in tasks
        ],
    }


def _show_task(name: str, preset: str | None) -> dict[str, Any]:
    from gantry_deploy.cli.inspect import flatten
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.algorithms.registry import algorithm_names, find_algorithm

    task = find_task(name)
    print(f"{task.name}: {task.summary}\n")
    presets = {name: make() for name, make in task.presets.items()}
    for label, found in presets.items():
        print(f"  --preset {label:<16} {found.algorithm:<8} {find_algorithm(found.algorithm).summary}")
    others = [name for name in algorithm_names() if name not in {found.algorithm for found in presets.values()}]
    for algorithm in others:
        print(f"  --algo {algorithm:<18} {algorithm:<8} {find_algorithm(algorithm).summary}")
    shown = preset or next(iter(presets))
    print(f"\nfields of preset {shown} (change one with --set NAME=VALUE; --preset NAME shows another's)")
    fields = {part: asdict(getattr(presets[shown], part)) for part in ("env", "learner")}
    for field, value in flatten(fields).items():
        print(f"  {field:<46} {value}")
    return {
        "name": task.name,
        "robot": task.robot,
        "summary": task.summary,
        "presets": {label: {"algorithm": found.algorithm} for label, found in presets.items()},
        "algorithms": algorithm_names(),
        "preset": shown,
        **fields,
    }


COMMAND = Command(name="tasks", help="list the tasks that can be trained", add_arguments=_add_arguments, run=_run)
