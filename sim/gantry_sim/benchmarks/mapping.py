"""``gantry bench mapping``: what a frame costs on a robot, and what mapping costs in the training loop."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option, seed_number

if TYPE_CHECKING:
    from gantry_sim.tasks.goal.cfg import GoalCfg

FRAME_AIM_S = 5e-3
"""A frame of the robot's own mapping should take less than this at p99, on one core."""
FRAMES = 2000
"""Frames that are timed, after a tenth as many that are not."""
FACTOR_AIM = 2.0
"""Mapping in the loop may make a training at most so many times slower."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="ame2-go2-student", help="student's task whose CPU preset is timed")
    parser.add_argument("--envs", type=int, metavar="N", help="environments; the preset's if not given")
    parser.add_argument("--iterations", type=int, default=4, metavar="N", help="training iterations to time, of each")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="turns of each")
    parser.add_argument("--frames", type=int, default=FRAMES, metavar="N", help="frames of one robot to time")
    parser.add_argument("--no-training", action="store_true", help="time the frames alone; the rest takes minutes")
    parser.add_argument("--seed", type=seed_number, default=1)
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if min(args.iterations, args.repeats, args.frames) < 1 or (args.envs is not None and args.envs < 1):
        raise UsageError("--iterations, --repeats, --frames and --envs take numbers from 1.")
    from gantry_deploy.benchmarks.runtime import describe_machine
    from gantry_sim.tasks.goal.cfg import GoalCfg
    from gantry_sim.tasks.registry import find_task

    task = find_task(args.task)
    preset = task.preset("cpu")
    if not isinstance(preset.env, GoalCfg) or not task.needs_teacher:
        raise UsageError(f"'{task.name}' has no map that is made in the loop; expected 'ame2-go2-student'.")
    machine = describe_machine()
    print(f"{machine['processor']}, {machine['cores']} cores, load {machine['load_1min']:.2f}")
    frame = measure_frames(preset.env, args.frames, args.seed)
    _print_frames(frame, "")
    by_filter = replace(preset.env, student_map=replace(preset.env.student_map, mapper=""))
    classical = measure_frames(by_filter, args.frames, args.seed)
    _print_frames(classical, ", by the classical mapper")
    p99_s = frame["frame"]["p99_s"]
    print(f"{'met' if p99_s <= FRAME_AIM_S else 'NOT met'}: p99 {1e3 * p99_s:.2f} ms, aim {1e3 * FRAME_AIM_S:g} ms")
    result = {"task": task.name, "machine": machine, "frame": frame}
    result |= {"classical": classical, "frame_aim_s": FRAME_AIM_S}
    return result if args.no_training else result | _compare_trainings(args, task, preset)


def measure_frames(env: GoalCfg, frames: int, seed: int) -> dict[str, dict[str, float]]:
    """Time what a robot does with each depth image of a walk over random ground.

    Args:
        env: Of a student; whose mapping.
        frames: How many.
        seed: Of the ground.

    Returns:
        Of ``map`` (image to map), ``window`` (map to what the policy sees) and ``frame`` (their sum): count, mean, p50,
        p99 and max, seconds.
    """
    import numpy as np
    import torch

    from gantry_deploy.control.timing import TimingLog
    from gantry_mapping.learn.depth import render_depth
    from gantry_mapping.learn.heightfields import stacked_boxes
    from gantry_mapping.live import LiveMapping
    from gantry_mapping.mapper import OnnxMapper
    from gantry_sim.tasks.goal.mapping import mapper_bytes, mapping_cfg

    source = replace(env.student_map, source="pipeline")
    model = mapper_bytes(source)
    height_m, resolution_m, size = 0.35, 0.04, 400
    live = LiveMapping(mapping_cfg(source, env.robot, height_m), None if model is None else OnnxMapper(model))
    ground = stacked_boxes(np.random.default_rng(seed), size, resolution_m).surface_m.copy()
    half_m = 0.5 * size * resolution_m
    raster, corner = torch.from_numpy(ground), (-half_m, -half_m)
    timing = TimingLog(("map", "window", "frame"), frames)
    quat, dt_s = np.array([1.0, 0.0, 0.0, 0.0]), 1.0 / source.camera_hz
    for i in range(-(frames // 10), frames):
        stamp_s = (i + frames) * dt_s
        around = 0.25 * stamp_s  # on a circle of 3 m, at 0.75 m/s
        pos = np.array([3.0 * np.cos(around), 3.0 * np.sin(around), 0.0])
        row, column = ((pos[:2] + half_m) / resolution_m).astype(int)
        pos[2] = height_m + ground[row, column]
        place = (torch.from_numpy(part).float()[None] for part in (pos, quat))
        depth = render_depth(raster, resolution_m, corner, live.cfg.cameras[0], *place)[0].numpy()
        start = time.perf_counter()
        live.add_pose(stamp_s, pos, quat)
        live.add_depth(stamp_s, depth)
        mapped = time.perf_counter()
        live.pipeline.window(env.window, pos[None], quat[None])
        done = time.perf_counter()
        if i >= 0:
            for name, duration_s in (("map", mapped - start), ("window", done - mapped), ("frame", done - start)):
                timing.add(name, duration_s)
    return timing.summary()


def _print_frames(frame: dict[str, dict[str, float]], how: str) -> None:
    print(f"\none depth image of one robot on one core{how}, {int(frame['frame']['count'])} times; ms")
    print(f"{'':26}{'p50':>9}{'p99':>9}{'max':>9}")
    for name, row in frame.items():
        print(f"{name:<26}" + "".join(f"{1e3 * row[key]:9.2f}" for key in ("p50_s", "p99_s", "max_s")), flush=True)


def _compare_trainings(args: argparse.Namespace, task: Any, preset: Any) -> dict[str, Any]:
    from gantry_sim.benchmarks.commands import measure_training
    from gantry_sim.tasks.goal.mapping import SOURCES

    env = preset.env if args.envs is None else replace(preset.env, num_envs=args.envs)
    print(f"\ntraining with {env.num_envs} robots, {args.repeats} turns of each source of the map ...", flush=True)
    speeds: dict[str, dict[str, float]] = {source: {} for source in SOURCES}
    for turn in range(args.repeats):  # in turns, and the best of each: the machine has other things to do
        for source in SOURCES:
            changed = replace(env, student_map=replace(env.student_map, source=source))
            figures = measure_training(task, replace(preset, env=changed), args.iterations, args.seed)
            for name in ("collect_steps_per_s", "train_steps_per_s"):
                speeds[source][name] = max(speeds[source].get(name, 0.0), figures[name]["max"])
            alone, learning = (figures[name]["max"] for name in ("collect_steps_per_s", "train_steps_per_s"))
            told = f"{alone:,.0f} steps/s without learning, {learning:,.0f} with"
            print(f"turn {turn + 1} of {args.repeats}, {source}: {told}", flush=True)
    factor = {name: speeds["truth"][name] / speeds["pipeline"][name] for name in speeds["truth"]}
    for name, value in factor.items():
        met = "met" if value <= FACTOR_AIM else "NOT met"
        print(f"{met}: {name} {value:.2f} times slower with mapping in the loop, aim at most {FACTOR_AIM:g}")
    return {"num_envs": env.num_envs, "steps_per_s": speeds, "factor": factor}


MAPPING = Command(
    name="mapping",
    help="what a frame costs, and a student's training with mapping in the loop against a stand-in",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Time the robot's own mapping frame by frame, then train a student by reward alone, for a few iterations, with "
        "either source of its map in turns."
    ),
    epilog="examples:\n  gantry bench mapping --no-training\n  gantry bench mapping --json mapping.json",
)
