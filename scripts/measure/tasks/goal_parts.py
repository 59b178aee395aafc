"""Time of a task's environments by part of a control step, and of a training's acting and learning.

python scripts/measure/tasks/goal_parts.py [--task ame2-go2] [--preset cpu] [--steps 100]
    [--set KEY=VALUE ...] [--learn]

For tasks on mjlab's managers that PPO trains. Beside the clock's time stands the processor's, over all threads: on a
machine with other work it is the steadier one. Actions are noise with the preset's first deviation. Parts are timed
where they are called: what one part computes first and others share (state, map, noise) counts for that part. Without
--learn no network runs and only the environments are built.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gantry_policies.on_policy.trainer import PpoTrainer
from gantry_sim.cli.common import changed
from gantry_sim.tasks.registry import Preset, Task, find_task
from gantry_sim.training.algorithms.ppo import make_trainer
from gantry_sim.training.run_cfg import RunCfg


def now() -> NDArray[np.float64]:
    """Time of the clock and of the processor, s."""
    return np.array([time.perf_counter(), time.process_time()])


class Clock:
    """Seconds by name of a part, of the clock and of the processor."""

    def __init__(self) -> None:
        self.seconds: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(2))

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Time every call of a method of an object from now on."""
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = now()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds[name] += now() - start

        setattr(owner, method, timed)

    def table(self, total: NDArray[np.float64], count: int) -> dict[str, list[float]]:
        """Milliseconds by part and of the rest, per one of so many repetitions that took ``total`` seconds."""
        rest = total - sum(self.seconds.values(), np.zeros(2))
        parts = sorted(self.seconds.items(), key=lambda item: -item[1][1])
        return {name: (1e3 * value / count).tolist() for name, value in [*parts, ("rest", rest)]}


def watch_env(clock: Clock, env: Any) -> None:
    """Time the parts of a ``GantryEnv``."""
    clock.watch(env.action_manager, "process_action", "decoder")
    clock.watch(env.sim, "step", "physics")
    clock.watch(env.scene, "update", "sensors' caches")
    clock.watch(env.termination_manager, "compute", "terminations")
    clock.watch(env.reward_manager, "compute", "rewards")
    clock.watch(env, "_reset_idx", "resets")
    clock.watch(env.sim, "forward", "forward of resets")
    clock.watch(env.sim, "sense", "map look-ups")
    clock.watch(env.observation_manager, "compute", "observations")


def env_parts(task: Task, preset: Preset, steps: int, seed: int) -> dict[str, Any]:
    """Rate and milliseconds per control step of the environments alone."""
    torch.set_num_threads(1)
    batch: Any = task.make_env(preset.env, "cpu", seed)
    std = float(preset.learner.init_std)
    generator = torch.Generator().manual_seed(seed)

    def run(count: int) -> NDArray[np.float64]:
        start = now()
        for _ in range(count):
            batch.step(std * torch.randn(batch.num_envs, batch.action_size, generator=generator))
        return now() - start

    with torch.inference_mode():
        run(20)
        rates = [(batch.num_envs * steps / run(steps)).round().tolist() for _ in range(3)]  # unwatched
        clock = Clock()
        watch_env(clock, batch.env)
        total = run(steps)
    model = batch.env.sim.mj_model
    batch.close()
    return {
        "envs": batch.num_envs,
        "geoms": int(model.ngeom),
        "steps_per_s": rates,
        "parts_ms": clock.table(total, steps),
    }


def training_parts(run: RunCfg, iterations: int) -> dict[str, Any]:
    """Rate of a training, and milliseconds per iteration of acting, environments and learning."""
    trainer: PpoTrainer = make_trainer(run, None)
    work = trainer.work()
    next(work)
    clock = Clock()
    clock.watch(trainer.env, "step", "environments")
    clock.watch(trainer.alg, "act", "acting")
    clock.watch(trainer.alg, "update", "learning")
    start, before = now(), trainer.env_steps
    for _ in range(iterations):
        next(work)
    total = now() - start
    return {
        "steps_per_s": [((trainer.env_steps - before) / total).round().tolist()],
        "parts_ms": clock.table(total, iterations),
    }


def show(title: str, found: dict[str, Any]) -> None:
    """Print a table of parts."""
    rates = ", ".join(f"{wall:.0f} ({cpu:.0f})" for wall, cpu in found["steps_per_s"])
    print(f"{title}: steps per second of the clock (of the processor): {rates}")
    for name, (wall, cpu) in found["parts_ms"].items():
        print(f"  {name:<20} {wall:9.2f} ms {cpu:9.2f} ms")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="ame2-go2")
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change of the preset")
    parser.add_argument("--steps", type=int, default=100, help="control steps of each of four runs")
    parser.add_argument("--learn", type=int, default=0, metavar="ITERATIONS", help="time a training as well")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    args = parser.parse_args()
    task = find_task(args.task)
    preset = changed(task.presets[args.preset](), args.set)
    found = {"environments": env_parts(task, preset, args.steps, args.seed)}
    if args.learn:
        run = RunCfg(task=task, preset_name=args.preset, preset=preset, seed=args.seed, device="cpu")
        found["training"] = training_parts(run, args.learn)
    if args.json:
        print(json.dumps(found))
        return
    for title, part in found.items():
        show(title, part)


if __name__ == "__main__":
    main()
