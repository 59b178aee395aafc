"""``gantry tasks``: what can be trained."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option
from gantry_hardware.errors import UnknownNameError
from gantry_sim.tasks.catalogue import arm_task_infos, require_preset, task_infos
from gantry_sim.tasks.names import arm_task_names, task_names


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="show one task with the fields of its presets")
    parser.add_argument("--preset", metavar="NAME", help="of a manipulation task: show this preset's fields")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.task is None:
        return _list()
    if args.task in arm_task_names():
        if args.preset is not None:
            require_preset(args.task, args.preset)
        return _show_arm_task(args.task, args.preset)
    if args.task not in task_names():
        raise UnknownNameError("task", args.task, [*task_names(), *arm_task_names()])
    if args.preset is not None:
        raise UsageError("--preset goes with the name of a manipulation task.")
    return _show_task(args.task)


def _list() -> dict[str, Any]:
    tasks, arms = task_infos(), arm_task_infos()
    for task in (*tasks, *arms):
        print(f"{task.name:<22} {'/'.join(task.presets):<15} {task.summary}")
    return {
        "arm_tasks": [{"name": arm.name, "robot": arm.robot, "summary": arm.summary} for arm in arms],
        "tasks": [
            {"name": task.name, "robot": task.robot, "presets": list(task.presets), "summary": task.summary}
            for task in tasks
        ],
    }


def _show_task(name: str) -> dict[str, Any]:
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.run_config import RunCfg

    task = find_task(name)
    presets = {name: RunCfg(task, name, task.preset(name), "cpu", 1).as_dict() for name in task.presets}
    print(f"{task.name}: {task.summary}")
    for name, preset in presets.items():
        print(f"\npreset {name} (change a field with --set env.NAME=VALUE or --set learner.NAME=VALUE)")
        for part in ("env", "learner"):
            for field, value in preset[part].items():
                print(f"  {part}.{field:<28} {value}")
    return {"name": task.name, "robot": task.robot, "summary": task.summary, "presets": presets}


def _show_arm_task(name: str, preset: str | None) -> dict[str, Any]:
    from gantry_deploy.cli.inspect import flatten
    from gantry_sim.tasks.manipulation.registry import find_arm_task
    from gantry_sim.training.arm.algorithms import METHODS, preset_of

    task = find_arm_task(name)
    print(f"{task.name}: {task.summary}\n")
    result: dict[str, Any] = {"name": task.name, "robot": task.robot, "summary": task.summary}
    if preset is None:
        fields: dict[str, Any] = {"env": asdict(task.make_cfg())}
        for method, found in METHODS.items():
            print(f"  --preset {method:<22} {found.summary}")
        print(
            "\nfields of every preset (change one with --set env.NAME=VALUE; --preset NAME shows those of the learner)"
        )
        result["presets"] = {method: found.summary for method, found in METHODS.items()}
    else:
        fields = {part: asdict(value) for part, value in vars(preset_of(task, preset)).items()}
        print(f"preset {preset} (change a field with --set NAME=VALUE)")
    for field, value in flatten(fields).items():
        print(f"  {field:<46} {value}")
    return result | fields


COMMAND = Command(name="tasks", help="list the tasks that can be trained", add_arguments=_add_arguments, run=_run)
