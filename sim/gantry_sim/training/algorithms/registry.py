"""Interface and registry of algorithms. Third parties add theirs as entry points ``gantry.algorithms``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.plugins import entry_points, load_plugin
from gantry_hardware.training.trainer import Trainer
from gantry_sim.tasks.registry import MakePolicy, Preset, Task
from gantry_sim.training.run_cfg import RunCfg

GROUP = "gantry.algorithms"
"""Entry-point group: name -> :class:`Algorithm`."""


@dataclass(frozen=True)
class TrainedPolicy:
    """Policy that a run has learned, on the CPU."""

    make_policy: MakePolicy
    """From environments to the policy that acts in them as it is, without exploring."""
    write_bundle: Callable[..., Path]
    """``(contract, golden, folder, *, card, private_key, mapper_bytes)`` -> the bundle's folder. Raises a PolicyError
    if onnxruntime and torch disagree; nothing is written then."""
    done: int
    """Units of training so far, see :attr:`gantry_hardware.training.trainer.Trainer.unit`."""
    env_steps: int
    """Control steps of all environments so far; 0 for an algorithm without environments."""
    wall_s: float
    """Training time so far."""
    chunk: ChunkSpec | None = None
    """Planning of several actions at once; None for a policy that is asked in every step."""
    weights_sha256: str = ""
    """SHA-256 of the weights that act, which its bundle's card and the sessions of its actors name too; empty where
    they are not hashed."""


@dataclass(frozen=True)
class Algorithm:
    """One way to learn a policy."""

    name: str
    """Registry name."""
    summary: str
    """One line for listings."""
    cfg_type: type
    """Class of its settings, a frozen dataclass."""
    preset: Callable[[Task], Preset]
    """Preset for a task that has none for this algorithm."""
    make_trainer: Callable[[RunCfg, Path | None], Trainer]
    """(run, its folder) -> the training, with its environments; seeded by the caller."""
    open: Callable[[RunCfg, Path, Trainer | None], TrainedPolicy]
    """(run, its folder, the training that has just ended or None) -> the policy of its newest checkpoint."""
    make_stream_trainer: Callable[..., Trainer] | None = None
    """(run, its folder, stream of steps, publish, tell) -> the training on steps of actors elsewhere; None for an
    algorithm that collects by itself alone."""
    make_fleet_trainer: Callable[..., Trainer] | None = None
    """(run, its folder, fleet of actors) -> the training on the fleet's steps; None for an algorithm that collects by
    itself alone, or not at all."""
    check: Callable[[RunCfg], None] = lambda run: None
    """Raises a GantryError where a run cannot work; asked before anything is written or built."""
    length: str = "total_steps"
    """Field of the settings that says how long a training is."""
    may_grow: tuple[str, ...] = ()
    """Fields of the settings that may be raised when a run is resumed."""
    demos: str = ""
    """Use of demonstrations: ``needs``, ``takes``, or nothing."""
    base: str = ""
    """Use of a cloned policy that it builds upon: ``needs``, ``takes``, or nothing."""
    teacher: bool = False
    """Whether it can learn from a teacher."""
    threads: int | None = None
    """Threads of the learner; None for as many as torch takes."""
    processes: bool = False
    """Whether several processes of a launcher can learn one policy together."""
    smaller: str = "a smaller env.num_envs helps"
    """Advice where memory is not enough."""


def algorithm_names() -> list[str]:
    """Names of all installed algorithms, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find_algorithm(name: str) -> Algorithm:
    """Look an algorithm up.

    Raises:
        UnknownNameError: If there is none of that name.
        GantryError: If the entry point does not hold one.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            found: Any = load_plugin(entry, "Algorithm", GantryError)
            if not isinstance(found, Algorithm):
                raise GantryError(f"Entry point '{entry.value}' is a {type(found).__name__}, expected an Algorithm.")
            for part in ("preset", "make_trainer", "open", "check"):
                if not callable(getattr(found, part)):
                    given = type(getattr(found, part)).__name__
                    raise GantryError(f"Algorithm '{name}': its '{part}' is a {given}, expected a function.")
            return found
    raise UnknownNameError("algorithm", name, algorithm_names())


def preset_by(task: Task, algorithm: str, preferred: str) -> tuple[str, Preset]:
    """Name and preset of a task for an algorithm: the preferred one if it is of that algorithm, else the first that
    is, else the algorithm's own, which has the algorithm's name.
    """
    names = sorted(task.presets, key=lambda name: name != preferred)
    for name in names:
        preset = task.preset(name)
        if preset.algorithm == algorithm:
            return name, preset
    return algorithm, find_algorithm(algorithm).preset(task)
