"""Decisions per second of batched cars: their dynamics, the whole environment, with a policy, and with learning.

A decision is one action of one car. All that is measured is measured in turns, several times in one run, so that other
load on the machine meets all of it alike; the spread says how much of it there was.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.cars import car_spec
from gantry_policies.on_policy.trainer import PpoTrainer
from gantry_sim.benchmarks.rates import machine, spread, training_rates
from gantry_sim.cli.common import changed
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.vehicle.cars import BatchedCars
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.registry import Preset, Task, find_task
from gantry_sim.training.run_folder import RunCfg, check_run
from gantry_sim.training.train import build_trainer

CORE, ENVIRONMENT, POLICY, COLLECTING, LEARNING = "core", "environment", "policy", "collecting", "learning"
PARTS = (CORE, ENVIRONMENT, POLICY, LEARNING)
"""Parts that can be measured; ``learning`` also tells :data:`COLLECTING`, its share without updates."""
TITLES = {
    CORE: "dynamics alone",
    ENVIRONMENT: "whole environment, random actions",
    POLICY: "environment and policy",
    COLLECTING: "collecting for a training",
    LEARNING: "training, updates included",
}
"""For people."""
LEAST_STEPS = 8
"""A training has at least so many decisions of each car between two updates, however many cars there are."""
WARM_UP = 1
"""First iterations of a training, which are not counted."""
BLOCK = 10
"""Steps on a GPU between two looks at the clock, which must wait for it."""


@dataclass(frozen=True)
class SpeedCfg:
    """Settings of a measurement."""

    tasks: tuple[str, ...]
    """Driving tasks."""
    cars: tuple[int, ...] = (64, 1024, 8192)
    """Numbers of cars."""
    device: str = "cpu"
    """``cpu`` or a CUDA device."""
    parts: tuple[str, ...] = PARTS
    """Names of :data:`PARTS`."""
    seconds: float = 2.0
    """Least length of a measurement without learning."""
    repeats: int = 3
    """Measurements of each."""
    iterations: int = 2
    """Iterations of each training that count."""
    seed: int = 1
    """Of everything random."""
    changes: tuple[str, ...] = ()
    """``--set`` of all tasks; the number of cars is that of ``cars``."""

    def __post_init__(self) -> None:
        for name in self.parts:
            if name not in PARTS:
                raise UnknownNameError("part", name, PARTS)
        if not self.cars or min(self.cars) < 1 or self.repeats < 1 or self.iterations < 1 or not self.seconds > 0.0:
            raise GantryError(
                f"Nothing to measure: {list(self.cars)} cars, {self.seconds} s, {self.repeats} repeats, "
                f"{self.iterations} iterations; expected numbers above 0."
            )


def sized(preset: Preset, cars: int) -> Preset:
    """A preset with another number of cars and about as many decisions in an update, :data:`LEAST_STEPS` permitting.

    Updates would otherwise grow with the number of cars, and not the work of a decision.
    """
    learner = preset.learner
    samples = preset.env.num_envs * learner.steps_per_env
    return Preset(
        replace(preset.env, num_envs=cars),
        replace(learner, steps_per_env=max(LEAST_STEPS, math.ceil(samples / cars))),
    )


def bench_speed(cfg: SpeedCfg, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Measure.

    Args:
        cfg: What.
        say: Called with a line before each turn.

    Returns:
        ``machine``, ``settings``, ``results`` (per task and number of cars, with ``decisions_per_s``: part -> all,
        min, median, max).
    """
    facts = _machine(cfg.device)
    with torch_threads(1 if cfg.device == "cpu" else torch.get_num_threads()):
        subjects = [_Subject(find_task(name), cars, cfg) for cars in cfg.cars for name in cfg.tasks]
    for turn in range(1, cfg.repeats + 1):
        for subject in subjects:
            say(f"[{turn}/{cfg.repeats}] {subject.task.name}, {subject.cars:,} cars")
            subject.measure()
    return {
        "machine": facts,
        "settings": vars(cfg),
        "results": [subject.result() for subject in subjects],
    }


class _Subject:
    """One task with one number of cars, and what has been measured of it so far."""

    def __init__(self, task: Task, cars: int, cfg: SpeedCfg) -> None:
        self.task, self.cars, self.cfg = task, cars, cfg
        name = "cpu" if cfg.device == "cpu" else "gpu"
        preset = sized(changed(task.preset(name), cfg.changes), cars)
        self.run = RunCfg(task, name, preset, cfg.device, cfg.seed)
        check_run(self.run)
        self.found: dict[str, list[float]] = {}
        self._steps: dict[str, Callable[[int], None]] = {}
        with torch.inference_mode():
            env = task.make_env(self.run.preset.env, cfg.device, cfg.seed)
            assert isinstance(env, DriveEnv)
            if CORE in cfg.parts:
                self._steps[CORE] = _core_step(env, cfg.seed)
            if ENVIRONMENT in cfg.parts:
                self._steps[ENVIRONMENT] = _random_step(env, cfg.seed)
            if POLICY in cfg.parts:
                self._steps[POLICY] = _policy_step(env, self.run)

    def measure(self) -> None:
        """One turn of everything."""
        cfg = self.cfg
        with torch.inference_mode(), torch_threads(1 if cfg.device == "cpu" else torch.get_num_threads()):
            for part, step in self._steps.items():
                self._note(part, self.cars * step_rate(step, cfg.seconds, cfg.device))
        if LEARNING in cfg.parts:
            rows = training_rates(self.run, cfg.iterations, WARM_UP)
            for part, rates in (
                (COLLECTING, [row["collect_steps_per_s"] for row in rows]),
                (LEARNING, [row["steps_per_s"] for row in rows]),
            ):
                self._note(part, len(rates) / sum(1.0 / rate for rate in rates))

    def result(self) -> dict[str, Any]:
        """Results of the measurement."""
        env, learner = self.run.preset.env, self.run.preset.learner
        return {
            "task": self.task.name,
            "cars": self.cars,
            "model": env.model,
            "substeps": env.substeps,
            "steps_per_env": learner.steps_per_env,
            "epochs": learner.epochs,
            "minibatches": learner.minibatches_of(self.cars * learner.steps_per_env),
            "decisions_per_s": {part: {"all": rates, **spread(rates)} for part, rates in self.found.items()},
        }

    def _note(self, part: str, rate: float) -> None:
        self.found.setdefault(part, []).append(rate)


def step_rate(step: Callable[[int], None], seconds: float, device: str = "cpu") -> float:
    """Calls per second of a step, which is told its number; at least three calls, after two that do not count."""
    waits = device != "cpu"
    for number in range(2):
        step(number)
    if waits:
        torch.cuda.synchronize(device)
    steps, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds or steps < 3:
        for _ in range(BLOCK if waits else 1):
            step(steps)
            steps += 1
        if waits:
            torch.cuda.synchronize(device)
    return steps / elapsed


def speed_lines(result: dict[str, Any]) -> list[str]:
    """Results as text."""
    facts, settings = result["machine"], result["settings"]
    lines = [
        f"{facts['processor']}, {facts['cores']} cores"
        + (f", {facts['gpu']}" if facts["gpu"] else "")
        + f"; torch {facts['torch']}, {facts['learn_threads']} threads to learn, 1 otherwise on the CPU; "
        f"load {facts['load_1min']:.1f} before",
        f"Decisions per second, median (slowest to fastest) of {settings['repeats']} in turns",
    ]
    for entry in result["results"]:
        lines.append(
            f"{entry['task']}, {entry['cars']:,} cars, {entry['model']}, {entry['substeps']} physics steps a decision; "
            f"updates: {entry['cars'] * entry['steps_per_env']:,} decisions, {entry['epochs']} epochs of "
            f"{entry['minibatches']} minibatches"
        )
        for part, rates in entry["decisions_per_s"].items():
            low, high = rates["min"], rates["max"]
            lines.append(f"  {TITLES[part]:<36}{rates['median']:>14,.0f}  ({low:,.0f} to {high:,.0f})")
    return lines


def _core_step(env: DriveEnv, seed: int) -> Callable[[int], None]:
    """Cars as the environment's, that are never put back: steering and acceleration at random."""
    spec, device = env.cfg.driver, env.device
    cars = BatchedCars(car_spec(env.cfg.robot), env.num_envs, env.cars.cfg, seed=seed, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    drawn = [2.0 * torch.rand(2, env.num_envs, generator=generator, device=device) - 1.0 for _ in range(8)]
    targets = [(spec.steering_limit_rad * steering, spec.accel_limit_m_s2 * accel) for steering, accel in drawn]

    def step(number: int) -> None:
        cars.step(*targets[number % len(targets)])

    return step


def _random_step(env: DriveEnv, seed: int) -> Callable[[int], None]:
    generator = torch.Generator(env.device).manual_seed(seed)
    size = (env.num_envs, env.action_size)
    actions = [2.0 * torch.rand(size, generator=generator, device=env.device) - 1.0 for _ in range(8)]

    def step(number: int) -> None:
        env.step(actions[number % len(actions)])

    return step


def _policy_step(env: DriveEnv, run: RunCfg) -> Callable[[int], None]:
    """The environment under a policy of the preset's size that has learned nothing, as a bundle would answer."""
    few = replace(run.preset, env=replace(run.preset.env, num_envs=2))
    with torch.inference_mode(False):
        trainer = build_trainer(replace(run, preset=few), None)
        assert isinstance(trainer, PpoTrainer)
        policy = trainer.alg.get_policy().as_onnx(verbose=False).to(run.device).eval()

    def step(number: int) -> None:
        env.step(policy(env.observe()["state"]))

    return step


def _machine(device: str) -> dict[str, Any]:
    return machine() | {
        "gpu": "" if device == "cpu" else torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "learn_threads": torch.get_num_threads(),
        "load_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
    }
