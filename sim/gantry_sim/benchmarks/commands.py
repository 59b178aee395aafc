"""``gantry bench sim`` and ``gantry bench agreement``: how fast the CPU backend is, and how close to MuJoCo Warp."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gantry_deploy.cli.command import (
    Command,
    UsageError,
    add_json_option,
    choose,
    parse_numbers,
    result_so_far,
    seed_number,
)
from gantry_sim.benchmarks.rates import spread, training_rates
from gantry_sim.tasks.names import task_names

RATIO_AIM, RATIO_ENVS = 25.0, 256
"""Whole environment steps of the CPU backend over mjlab as it ships, at so many environments."""
COLLECT_AIM, LEARN_AIM = 30_000.0, 16_000.0
"""Control steps per second of the CPU preset, without learning and with it, on two quiet cores."""


def _sim_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--envs", type=_sizes, default="64,256", metavar="N,N", help="numbers of environments")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="least length of a measurement")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="measurements of each")
    parser.add_argument("--no-mjlab", action="store_true", help="leave out mjlab as it ships, which takes minutes")
    parser.add_argument("--task", default="velocity-flat-go2", help="task whose CPU preset is timed")
    parser.add_argument(
        "--iterations", type=int, default=10, metavar="N", help="training iterations to time; 0 for no training"
    )
    parser.add_argument("--seed", type=seed_number, default=1)
    add_json_option(parser)


def _sim(args: argparse.Namespace) -> dict[str, Any]:
    if not args.seconds > 0 or args.repeats < 1 or args.iterations < 0:
        raise UsageError("--seconds and --repeats take numbers above 0, --iterations 0 or more.")
    choose("task", args.task, task_names())
    from gantry_sim.benchmarks.sim import bench_sim, format_bench
    from gantry_sim.tasks.registry import find_task

    task = find_task(args.task)
    with_mjlab = not args.no_mjlab
    print(
        f"mjlab's Velocity-Flat-Go1, unmodified, at {', '.join(map(str, args.envs))} environments"
        + (", against mjlab as it ships; this takes minutes ..." if with_mjlab else " ..."),
        flush=True,
    )
    begin = time.monotonic()
    result = bench_sim(args.envs, args.seconds, args.repeats, with_warp=with_mjlab, seed=args.seed)
    print(format_bench(result))
    print(f"({time.monotonic() - begin:.0f} s)\n\nCPU preset of {task.name} ...", flush=True)
    with result_so_far(args, lambda: result):
        result["preset"] = _measure_preset(task, args)
    result["aims"] = aims_of(result)
    for name, aim in result["aims"].items():
        print(f"{name}: {aim['value']:,.1f}; on two cores that do nothing else the aim is {aim['aim']:,g}")
    return result


def _measure_preset(task: Any, args: argparse.Namespace) -> dict[str, Any]:
    """The environment of a CPU preset alone, then collecting and learning with it."""
    from gantry_sim.benchmarks.sim import bench_sim, format_bench
    from gantry_sim.tasks.locomotion.velocity import velocity_env_cfg
    from gantry_sim.tasks.locomotion.velocity_cfg import VelocityCfg

    preset = task.preset("cpu")
    result: dict[str, Any] = {"task": task.name, "num_envs": preset.env.num_envs}
    if isinstance(preset.env, VelocityCfg):
        make_cfg = partial(velocity_env_cfg, preset.env, seed=args.seed)
        sizes = (preset.env.num_envs,)
        alone = bench_sim(sizes, args.seconds, args.repeats, cfg_factory=make_cfg, with_warp=False, seed=args.seed)
        print(format_bench(alone).partition("\n")[2])
        result["environment_alone"] = alone["results"][0]
    if args.iterations:
        result["training"] = measure_training(task, preset, args.iterations, args.seed)
        for name, figures in result["training"].items():
            if isinstance(figures, dict):
                print(f"  {name.replace('_', ' ')}: {figures['median']:,.0f} (slowest {figures['min']:,.0f})")
    return result


def measure_training(task: Any, preset: Any, iterations: int, seed: int) -> dict[str, Any]:
    """Control steps per second of a training that is thrown away.

    Args:
        task: A task.
        preset: Its configuration.
        iterations: Iterations that count.
        seed: Of the training.

    Returns:
        ``collect_steps_per_s`` (environment and policy) and ``train_steps_per_s`` (learning too), each with median,
        min and max over the iterations.
    """
    from gantry_sim.training.run_folder import RunCfg

    counted = training_rates(RunCfg(task, "cpu", preset, "cpu", seed), iterations)
    return {
        "iterations": len(counted),
        "steps_per_iteration": preset.env.num_envs * preset.learner.steps_per_env,
        "collect_steps_per_s": spread([row["collect_steps_per_s"] for row in counted]),
        "train_steps_per_s": spread([row["steps_per_s"] for row in counted]),
    }


def aims_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Measured numbers beside what a machine that does nothing else should show; without a verdict, since other load
    shows in them. Aims whose numbers were not measured are left out."""
    rows: list[tuple[str, float, float]] = []
    for entry in result["results"]:
        if entry["num_envs"] == RATIO_ENVS and "ratio" in entry:
            rows.append((f"ratio at {RATIO_ENVS} environments", entry["ratio"]["median"], RATIO_AIM))
    training = result["preset"].get("training")
    if training is not None:
        rows.append(("steps/s without learning", training["collect_steps_per_s"]["median"], COLLECT_AIM))
        rows.append(("steps/s with learning", training["train_steps_per_s"]["median"], LEARN_AIM))
    return {name: {"value": value, "aim": aim} for name, value, aim in rows}


def _sizes(text: str) -> tuple[int, ...]:
    numbers = parse_numbers(text)
    if any(number < 1 or number != int(number) for number in numbers):
        raise argparse.ArgumentTypeError(f"'{text}' holds something else than whole numbers above 0")
    return tuple(int(number) for number in numbers)


def _agreement_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", metavar="TASK", nargs="*", help="for example go1-flat or g1-rough; all if not given")
    parser.add_argument("--envs", type=int, default=16, metavar="N", help="number of environments")
    parser.add_argument("--seed", type=seed_number, default=1)
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu or cuda:0, for MuJoCo Warp (default: cpu)")
    add_json_option(parser)


def _agreement(args: argparse.Namespace) -> dict[str, Any]:
    if args.envs < 1:
        raise UsageError(f"--envs is {args.envs}, expected 1 or more.")
    from gantry_sim.physics.agreement import AGREEMENT_TASKS, format_agreement, measure_agreement
    from gantry_sim.training.run_folder import require_device

    require_device(args.device)
    names = [choose("agreement task", name, AGREEMENT_TASKS) for name in args.tasks] or list(AGREEMENT_TASKS)
    measure: Callable[..., dict[str, dict[str, float]]] = measure_agreement
    tables: dict[str, Any] = {}
    result = {"num_envs": args.envs, "seed": args.seed, "device": args.device, "tasks": tables}
    with result_so_far(args, lambda: result if tables else None):
        for name in names:
            print(f"{name} ...", flush=True)
            tables[name] = measure(AGREEMENT_TASKS[name], args.envs, args.seed, args.device)
            print(format_agreement(name, tables[name]), flush=True)
    return result


SIM = Command(
    name="sim",
    help="environment steps per second on the CPU, against mjlab as it ships",
    add_arguments=_sim_arguments,
    run=_sim,
    description=(
        "Time whole environment steps of mjlab's own task on the CPU backend and on mjlab as it ships, in turns, then "
        "the CPU preset of a task with and without learning, and show where the time goes."
    ),
    epilog="examples:\n  gantry bench sim --json sim.json\n  gantry bench sim --no-mjlab --envs 1024",
)

AGREEMENT = Command(
    name="agreement",
    help="how closely the CPU backend agrees with MuJoCo Warp",
    add_arguments=_agreement_arguments,
    run=_agreement,
    description=(
        "Run both backends from the same seeds and states, and print the largest differences; takes minutes. With "
        "--device cuda:0 MuJoCo Warp runs on the GPU, from the same states alone, since a GPU draws other numbers from "
        "a seed."
    ),
    epilog="examples:\n  gantry bench agreement go1-flat --json agreement.json\n"
    "  gantry bench agreement --device cuda:0",
)
