"""Manipulation tasks by name. Third parties add theirs as entry points ``gantry.arm_tasks``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.tasks.names import ARM_GROUP, arm_task_names

if TYPE_CHECKING:
    from torch import Tensor

    from gantry_deploy.contract.policy_contract import PolicyContract
    from gantry_policies.common.batched_env import BatchedEnv


class ScriptedExpert(Protocol):
    """Acts in all environments of a task at once, from what the simulator knows."""

    def act(self) -> Tensor:
        """The next action, (N, a), in [-1, 1]."""
        ...

    def reset(self, rows: Tensor | None = None) -> None:
        """Begin anew where episodes ended: rows (N,), bool, or all."""
        ...


@dataclass(frozen=True)
class ArmTask:
    """Everything that demonstrations, learning and evaluation ask of a manipulation task."""

    name: str
    """Registry name."""
    summary: str
    """One line for listings."""
    robot: str
    """Robot name."""
    make_cfg: Callable[[], Any]
    """A fresh configuration, a frozen dataclass with a field ``num_envs``."""
    make_env: Callable[[Any, int], BatchedEnv]
    """(configuration, seed) -> environments."""
    contract: Callable[[Any], PolicyContract]
    """Configuration -> the contract of its policies."""
    expert: Callable[[Any, float, int], ScriptedExpert]
    """(environments of this task, badness from 0 to 1, seed) -> an expert that acts in them."""


def find_arm_task(name: str) -> ArmTask:
    """Look a manipulation task up.

    Raises:
        UnknownNameError: If there is none of that name.
        GantryError: If the entry point does not hold one.
    """
    for entry in entry_points(group=ARM_GROUP):
        if entry.name == name:
            task = entry.load()
            if not isinstance(task, ArmTask):
                raise GantryError(f"Entry point '{entry.value}' is a {type(task).__name__}, expected an ArmTask.")
            return task
    raise UnknownNameError("manipulation task", name, arm_task_names())
