"""Rates: their spread over repeats, those of a training that is thrown away, and the machine they are measured on."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

WARM_UP_ITERATIONS = 2
"""First iterations of a training, which are not counted."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """``min``, ``median`` and ``max``."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def machine() -> dict[str, Any]:
    """Processor and number of cores."""
    from gantry_sim.demo.machine import processor

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": processor(), "cores": cores}


def training_rates(run: Any, iterations: int, warm_up: int = WARM_UP_ITERATIONS) -> list[dict[str, float]]:
    """Metrics of the iterations that count, of a training that is thrown away; rates are in control steps per second.

    Args:
        run: A :class:`~gantry_sim.training.run_folder.RunCfg`.
        iterations: Number of them.
        warm_up: First iterations, which are left out.
    """
    from gantry_sim.training.train import build_trainer

    preset = run.preset
    samples = preset.env.num_envs * preset.learner.steps_per_env
    learner = replace(preset.learner, total_steps=samples * (iterations + warm_up))
    rows: list[Any] = []
    build_trainer(replace(run, preset=replace(preset, learner=learner)), None).train(rows.append)
    return [row.metrics for row in rows[warm_up:]]
