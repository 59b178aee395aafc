"""``gantry tasks``: what can be trained."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option
from gantry_hardware.errors import UnknownNameError
from gantry_sim.tasks.catalogue import TaskInfo, require_preset, task_infos
from gantry_sim.tasks.names import family_names, require_task

PARTS = ("env", "learner")
"""Parts of a preset that have fields."""
MOST_PRESETS = 3
"""Presets that a listing names."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="show one task with its presets and their fields")
    parser.add_argument("--preset", metavar="NAME", help="show this preset's fields alone")
    parser.add_argument(
        "--fields", metavar="PART", help="show the fields of a part alone, with their meaning; for example env"
    )
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.task is None:
        if args.fields is not None or args.preset is not None:
            raise UsageError("--preset and --fields show fields of a task; name one, see `gantry tasks`.")
        return _list()
    require_task(args.task)
    if args.preset is not None:
        require_preset(args.task, args.preset)
    if args.fields is not None:
        return _show_fields(args.task, args.preset, args.fields)
    return _show_task(args.task, args.preset)


def _list() -> dict[str, Any]:
    tasks = task_infos()
    for family, infos in groupby(sorted(tasks, key=_family), key=_family):
        if family:
            print()
        _print_columns([(task.name, _presets_text(task.presets), task.summary) for task in infos])
    if more := [name for name in family_names() if name not in set(map(_family, tasks))]:
        print(f"\nFurther tasks by name, if their package is installed: {', '.join(f'{name}:NAME' for name in more)}.")
    return {
        "tasks": [
            {"name": task.name, "robot": task.robot, "presets": list(task.presets), "summary": task.summary}
            for task in tasks
        ],
    }


def _family(task: TaskInfo) -> str:
    """Prefix of a task of a family; empty for others, which come first."""
    prefix, colon, _ = task.name.partition(":")
    return prefix if colon else ""


def _presets_text(presets: tuple[str, ...]) -> str:
    return "/".join(presets) if len(presets) <= MOST_PRESETS else f"{len(presets)} presets"


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    """Print texts in columns, each as wide as its longest text and two spaces."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    for *texts, last in rows:
        print("".join(f"{text:<{width}}" for text, width in zip(texts, widths, strict=False)) + last)


def _show_task(name: str, preset: str | None) -> dict[str, Any]:
    from gantry_deploy.cli.inspect import flatten
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.algorithms.registry import algorithm_names, find_algorithm

    task = find_task(name)
    print(f"{task.name}: {task.summary}\n")
    presets = {name: make() for name, make in task.presets.items()}
    others = [name for name in algorithm_names() if name not in {found.algorithm for found in presets.values()}]
    choices = [(f"--preset {label}", found.algorithm) for label, found in presets.items()]
    choices += [(f"--algo {algorithm}", algorithm) for algorithm in others]
    _print_columns([(f"  {text}", by, find_algorithm(by).summary) for text, by in choices])
    shown = preset or next(iter(presets))
    print(f"\nfields of preset {shown} (change one with --set NAME=VALUE; --preset NAME shows another's,")
    print("--fields env or another part of a name explains them)")
    fields = {part: asdict(getattr(presets[shown], part)) for part in PARTS}
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


def _show_fields(name: str, preset: str | None, part: str) -> dict[str, Any]:
    """Fields of a preset below a part of their names, or one field, with their meanings."""
    from gantry_deploy.cli.inspect import flatten
    from gantry_hardware.files.field_docs import meanings_by_path
    from gantry_sim.tasks.registry import find_task

    task = find_task(name)
    label = preset or next(iter(task.presets))
    chosen = task.preset(label)
    values = flatten({key: asdict(getattr(chosen, key)) for key in PARTS})
    shown = {path: value for path, value in values.items() if f"{path}.".startswith(f"{part}.")}
    if not shown:
        raise UnknownNameError(f"part of the fields of {name}", part, _parts_of(values))
    meanings = meanings_by_path(chosen)
    print(f"{name}, preset {label}; change one with --set NAME=VALUE")
    for path, value in shown.items():
        # Of a dictionary, the field that holds it is explained.
        above = next((key for key in meanings if f"{path}.".startswith(f"{key}.")), None)
        print(f"  {path} = {value}" + ("" if above is None else f"  ({meanings[above]})"))
    return {"name": name, "preset": label, "fields": shown, "meanings": {key: meanings.get(key) for key in shown}}


def _parts_of(paths: Iterable[str]) -> list[str]:
    """Every beginning of some paths that are joined by dots, without the paths themselves."""
    pieces = [path.split(".") for path in paths]
    return sorted({".".join(words[:count]) for words in pieces for count in range(1, len(words))})


COMMAND = Command(name="tasks", help="list the tasks that can be trained", add_arguments=_add_arguments, run=_run)
