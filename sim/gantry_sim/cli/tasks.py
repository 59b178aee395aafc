"""``gantry tasks``: what can be trained."""

from __future__ import annotations

import argparse
from typing import Any

from gantry_deploy.cli.command import Command, add_json_option
from gantry_sim.tasks.names import require_task


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="show one task with the fields of its presets")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.task is not None:
        require_task(args.task)
    from gantry_sim.run_folder import RunCfg
    from gantry_sim.tasks.registry import find_task, task_names

    if args.task is None:
        tasks = [find_task(name) for name in task_names()]
        for task in tasks:
            print(f"{task.name:<22} {'/'.join(task.presets):<9} {task.summary}")
        result: dict[str, Any] = {
            "tasks": [
                {"name": task.name, "robot": task.robot, "presets": list(task.presets), "summary": task.summary}
                for task in tasks
            ]
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


COMMAND = Command(name="tasks", help="list the tasks that can be trained", add_arguments=_add_arguments, run=_run)
