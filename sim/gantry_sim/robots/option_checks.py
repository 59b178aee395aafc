"""Checks of the options of simulated robots before any is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.dynamics import load_dynamics
from gantry_sim.robots.terrain_names import terrain_name
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.workbench import ALL_CAMERAS
from gantry_sim.tasks.names import task_names


def require_bench_task(task: str) -> None:
    """Refuse a name that is no task at a workbench.

    Raises:
        UnknownNameError: With those that are.
    """
    if task not in LAYOUTS:
        raise UnknownNameError("manipulation task", task, LAYOUTS)


def camera_names(text: str) -> tuple[str, ...]:
    """Cameras of a workbench that a text with commas names.

    Raises:
        GantryError: If it names none.
        UnknownNameError: If it has no such camera.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise GantryError(f"The robot's option 'cameras' is '{text}', expected some of: {', '.join(ALL_CAMERAS)}.")
    for name in names:
        if name not in ALL_CAMERAS:
            raise UnknownNameError("camera", name, ALL_CAMERAS)
    return names


def require_difficulty(difficulty: float) -> None:
    """Refuse a difficulty that is none.

    Raises:
        GantryError: If it is not between 0 and 1.
    """
    if not 0.0 <= difficulty <= 1.0:
        raise GantryError(f"The terrain's difficulty is {difficulty}, expected 0 to 1.")


def _require_driving_task(task: str) -> None:
    if task and task not in task_names():
        raise UnknownNameError("task", task, task_names())


def _require_dynamics(dynamics: object) -> None:
    if isinstance(dynamics, str) and dynamics:
        load_dynamics(dynamics)


TERRAIN_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "terrain": lambda text: terrain_name(text) if text else "",
    "terrain_difficulty": require_difficulty,
    "dynamics": _require_dynamics,
}
"""Of a walking robot; an empty terrain is a flat floor."""
BENCH_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "task": require_bench_task,
    "cameras": camera_names,
    "dynamics": _require_dynamics,
}
"""Of an arm at a workbench."""
ROAD_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "task": _require_driving_task,
    "dynamics": _require_dynamics,
}
"""Of a car on a road."""
