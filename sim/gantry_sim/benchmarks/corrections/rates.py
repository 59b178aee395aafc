"""Rates of learning from corrections: actors beside a learner, against both taking turns in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import Progress
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.trainer import OffPolicyTrainer
from gantry_sim.benchmarks.corrections.teaching import DEMOS_SEED, ROOM_SEED, record
from gantry_sim.benchmarks.corrections.trial import run_trial
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.manipulation.persons.batch import ScriptedCorrector
from gantry_sim.tasks.registry import find_task

TASK = "yam-lift"
"""Task of these measurements."""
DEMOS = 5
"""Demonstrations that a learner in the same process begins with."""
ROW_STEPS = 100
"""Steps between two rows of a learner's log."""
SHORTEST_S = 5.0
"""Shortest time between first and last row that a rate is taken from, s."""


def measure_asynchronous(folder: Path, actors: int, seconds: float, updates_per_step: float = 2.0) -> dict[str, Any]:
    """Actors, each with a scripted person, and a learner as processes of their own.

    Args:
        folder: New folder for what they write.
        actors: How many.
        seconds: Time from their start on, s.
        updates_per_step: Most updates of the critic for a step of any actor.

    Returns:
        Plain data: ``actors``, ``steps_per_s``, ``updates_per_s``, and ``bytes_per_step`` of the learner's journal.

    Raises:
        GantryError: If a process fails, or the time is too short.
    """
    learner = (TASK, "--preset", "hil-serl", "--episodes", "0", "--no-export")
    for setting in (f"log_every_steps={ROW_STEPS}", f"updates_per_step={updates_per_step}", "warmup_steps=50"):
        learner += ("--set", f"learner.{setting}")
    own = [
        ("--device", "scripted", "--speed", "0", "--option", f"seed={index}", "--duration", "1000000")
        for index in range(actors)
    ]
    found = run_trial(folder, learner, own, seconds)
    journals = sum(path.stat().st_size for path in (folder / "run" / "link").rglob("*.journal"))
    taken = sum(item["learner"]["acknowledged"] for item in found["sessions"])
    rows = [row for row in found["metrics"] if row["phase"] == "learn"]
    return {"actors": actors, **_rates(rows), "bytes_per_step": journals / max(1, taken)}


def measure_synchronous(robots: int, seconds: float, updates_per_step: float = 2.0) -> dict[str, Any]:
    """The same learner with as many robots and persons in one process: they take turns.

    Args:
        robots: How many, side by side.
        seconds: Time from the first step on, s.
        updates_per_step: Updates of the critic for a step of any robot.

    Returns:
        As :func:`measure_asynchronous`, without bytes.
    """
    task = find_task(TASK)
    shown = record(task, DEMOS, 0.2, DEMOS_SEED)
    learner = replace(
        presets.hil_serl(), warmup_steps=50, eval_every_steps=0, log_every_steps=ROW_STEPS, total_steps=10_000_000
    )
    learner = replace(learner, updates_per_step=updates_per_step)
    env = task.make_env(replace(task.usual_env(), num_envs=robots), "cpu", ROOM_SEED)
    with torch_threads(1):
        person = ScriptedCorrector(env)  # type: ignore[arg-type]
        trainer = OffPolicyTrainer(env, learner, demos=shown.demos, person=person)
        rows: list[dict[str, Any]] = []
        began = time.monotonic()

        def note(row: Progress) -> None:
            if row.phase == "learn":
                rows.append({"env_steps": row.env_steps, "wall_s": row.wall_s, "updates": row.metrics["updates"]})
            if time.monotonic() - began > seconds:
                trainer.stop()

        trainer.train(note)
    env.close()
    return {"actors": robots, **_rates(rows)}


def measure_rates(folder: Path, seconds: float, say: Callable[[str], None] = print) -> dict[str, list[dict[str, Any]]]:
    """Both ways with one and with two robots, in one run on one machine.

    Args:
        folder: New folder for what processes write.
        seconds: Of each of the four parts, s.
        say: Called with a line before each part.
    """
    found: dict[str, list[dict[str, Any]]] = {"asynchronous": [], "synchronous": []}
    for count in (1, 2):
        say(f"{count} robot(s) and a learner as processes, then in one process")
        found["asynchronous"].append(measure_asynchronous(folder / f"actors-{count}", count, seconds))
        found["synchronous"].append(measure_synchronous(count, seconds))
    return found


def _rates(rows: list[dict[str, Any]]) -> dict[str, float]:
    if len(rows) < 2 or rows[-1]["wall_s"] - rows[0]["wall_s"] < SHORTEST_S:
        raise GantryError(f"The learner wrote {len(rows)} rows, too few for a rate; give it more seconds.")
    span_s = rows[-1]["wall_s"] - rows[0]["wall_s"]
    return {
        "steps_per_s": (rows[-1]["env_steps"] - rows[0]["env_steps"]) / span_s,
        "updates_per_s": (rows[-1]["updates"] - rows[0]["updates"]) / span_s,
    }
