"""``gantry tasks``: what can be trained."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from gantry_deploy.cli.command import Command, add_json_option
from gantry_hardware.errors import UnknownNameError
from gantry_sim.tasks.names import arm_task_names, task_names


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="show one task with the fields of its presets")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.task in arm_task_names():
        return _show_arm_task(args.task)
    if args.task is not None and args.task not in task_names():
        raise UnknownNameError("task", args.task, [*task_names(), *arm_task_names()])
    from gantry_sim.run_folder import RunCfg
    from gantry_sim.tasks.manipulation.registry import find_arm_task
    from gantry_sim.tasks.registry import find_task

    if args.task is None:
        tasks = [find_task(name) for name in task_names()]
        for task in tasks:
            print(f"{task.name:<22} {'/'.join(task.presets):<9} {task.summary}")
        arms = [find_arm_task(name) for name in arm_task_names()]
        for arm in arms:
            print(f"{arm.name:<22} {'':<9} {arm.summary}")
        result: dict[str, Any] = {
            "arm_tasks": [{"name": arm.name, "robot": arm.robot, "summary": arm.summary} for arm in arms],
            "tasks": [
                {"name": task.name, "robot": task.robot, "presets": list(task.presets), "summary": task.summary}
                for task in tasks
            ],
        }
    else:
        task = find_task(args.task)
        presets = {name: RunCfg(task, name, task.preset(name), "cpu", 1).as_dict() for name in task.presets}
        print(f"{task.name}: {task.summary}")
        for name, preset in presets.items():
            print(f"\npreset {name} (change a field with --set env.NAME=VALUE or --set learner.NAME=VALUE)")
            for part in ("env", "learner"):
                for field, value in preset[part].items():
                    print(f"  {part}.{field:<28} {value}")
        result = {"name": task.name, "robot": task.robot, "summary": task.summary, "presets": presets}
    return result


def _show_arm_task(name: str) -> dict[str, Any]:
    from gantry_sim.tasks.manipulation.registry import find_arm_task

    task = find_arm_task(name)
    fields = asdict(task.make_cfg())
    print(f"{task.name}: {task.summary}\n")
    for field, value in fields.items():
        print(f"  env.{field:<28} {value}")
    return {"name": task.name, "robot": task.robot, "summary": task.summary, "env": fields}


COMMAND = Command(name="tasks", help="list the tasks that can be trained", add_arguments=_add_arguments, run=_run)
