"""Launchers that start a command several times over: its place among the processes, and refusals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gantry_hardware.errors import GantryError

_COUNT, _RANK, _LOCAL_RANK, _LOCAL_COUNT = "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
"""Variables that torchrun sets."""
_LAUNCHERS = {_COUNT: "torchrun", "OMPI_COMM_WORLD_SIZE": "mpirun", "PMI_SIZE": "mpiexec"}
"""Variables in which launchers give the number of processes that work together, and the launcher that sets each."""
_OTHERS = ("MASTER_ADDR", "MASTER_PORT")
"""Variables that say where the processes of torchrun find each other."""


@dataclass(frozen=True)
class Launched:
    """Place of this process among those that a launcher has started."""

    rank: int = 0
    """Place among all, from 0."""
    local_rank: int = 0
    """Place among those of this machine, from 0."""
    count: int = 1
    """Number of all of them."""


def launched(environment: Mapping[str, str] | None = None) -> Launched:
    """Place of this process, as torchrun says it; alone without a launcher.

    Args:
        environment: Variables of the process; those of this one if None.

    Raises:
        GantryError: If another launcher has started several, or the variables contradict each other.
    """
    found = os.environ if environment is None else environment
    for name, launcher in _LAUNCHERS.items():
        if name != _COUNT and found.get(name, "").strip() not in ("", "1"):
            raise GantryError(
                f"{name} is '{found[name].strip()[:40]}', as {launcher} sets it for several processes; expected those "
                f"of torchrun. Start it with torchrun --nproc-per-node N --no-python gantry train ..., or unset {name} "
                "if it is left over."
            )
    if found.get(_COUNT, "").strip() in ("", "1"):
        return Launched()
    if missing := [name for name in (_RANK, _LOCAL_RANK, *_OTHERS) if not found.get(name, "").strip()]:
        raise GantryError(
            f"{_COUNT} is '{found[_COUNT].strip()[:40]}', and {', '.join(missing)} not set; expected all that torchrun "
            f"sets. Start it with torchrun, or unset {_COUNT} if it is left over."
        )
    count, rank, local = (_whole(found, name) for name in (_COUNT, _RANK, _LOCAL_RANK))
    if not (0 <= local <= rank < count):
        raise GantryError(
            f"{_RANK} is {rank} and {_LOCAL_RANK} is {local} of {_COUNT} {count} processes; expected {_LOCAL_RANK} <= "
            f"{_RANK} < {_COUNT}."
        )
    return Launched(rank, local, count)


def own_cores(environment: Mapping[str, str] | None = None) -> int:
    """Number of cores for this process, at least 1: those that it may use (all of the machine where the system does not
    say), divided by the processes of torchrun on this machine.

    Args:
        environment: Variables of the process; those of this one if None.

    Raises:
        GantryError: If the number of torchrun's processes on this machine is no number.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = os.environ if environment is None else environment
    return max(1, cores // max(1, _whole(found, _LOCAL_COUNT))) if found.get(_LOCAL_COUNT, "").strip() else cores


def require_one_process(environment: Mapping[str, str] | None = None) -> None:
    """Refuse to work as one of several processes, where each would do the same, or learn a policy of its own.

    Args:
        environment: Variables of the process; those of this one if None.

    Raises:
        GantryError: If a launcher says that there are several processes, or says nothing that can be understood.
    """
    found = os.environ if environment is None else environment
    for name, launcher in _LAUNCHERS.items():
        text = found.get(name, "").strip()
        if text and text != "1":
            raise GantryError(
                f"{name} is '{text[:40]}', as {launcher} sets it for several processes. This runs in one process on "
                f"one device: start it without the launcher, or unset {name} if it is left over."
            )


def _whole(found: Mapping[str, str], name: str) -> int:
    try:
        return int(found[name])
    except ValueError:
        raise GantryError(f"{name} is '{found[name].strip()[:40]}', expected a whole number.") from None
