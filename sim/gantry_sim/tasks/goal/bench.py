"""``gantry bench mapping``: what the mapping pipeline in the training loop costs, against the stand-in for it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option

FACTOR_AIM = 2.0
"""Mapping in the loop may make a training at most so many times slower."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="ame2-go2-student", help="student's task whose CPU preset is timed")
    parser.add_argument("--envs", type=int, metavar="N", help="environments; the preset's if not given")
    parser.add_argument("--iterations", type=int, default=4, metavar="N", help="training iterations to time, of each")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="turns of each")
    parser.add_argument("--seed", type=int, default=1)
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.iterations < 1 or args.repeats < 1 or (args.envs is not None and args.envs < 1):
        raise UsageError("--iterations, --repeats and --envs take numbers from 1.")
    from gantry_sim.benches import measure_training
    from gantry_sim.tasks.goal.mapping import SOURCES
    from gantry_sim.tasks.registry import find_task

    task = find_task(args.task)
    preset = task.preset("cpu")
    env = preset.env if args.envs is None else replace(preset.env, num_envs=args.envs)
    speeds: dict[str, dict[str, float]] = {source: {} for source in SOURCES}
    for _ in range(args.repeats):  # in turns, and the best of each: the machine has other things to do
        for source in SOURCES:
            changed = replace(env, student_map=replace(env.student_map, source=source))
            figures = measure_training(task, replace(preset, env=changed), args.iterations, args.seed)
            for name in ("collect_steps_per_s", "train_steps_per_s"):
                speeds[source][name] = max(speeds[source].get(name, 0.0), figures[name]["max"])
            print(f"{source}: {figures['collect_steps_per_s']['max']:,.0f} steps/s without learning", flush=True)
    factor = {name: speeds["truth"][name] / speeds["pipeline"][name] for name in speeds["truth"]}
    for name, value in factor.items():
        print(f"{name}: {value:.2f} times slower with mapping in the loop, aim at most {FACTOR_AIM:g}")
    return {"task": task.name, "num_envs": env.num_envs, "steps_per_s": speeds, "factor": factor}


MAPPING = Command(
    name="mapping",
    help="training speed of a student with the mapping pipeline in the loop, against a stand-in",
    add_arguments=_add_arguments,
    run=_run,
    description="Train a student by reward alone, for a few iterations, with either source of its map in turns.",
)
