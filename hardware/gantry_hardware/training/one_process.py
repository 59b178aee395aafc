"""Refusal of trainings that a launcher has started several times over."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gantry_hardware.errors import GantryError

_LAUNCHERS = {"WORLD_SIZE": "torchrun", "OMPI_COMM_WORLD_SIZE": "mpirun", "PMI_SIZE": "mpiexec"}
"""Variables in which launchers give the number of processes that work together, and the launcher that sets each."""


def require_one_process(environment: Mapping[str, str] | None = None) -> None:
    """Refuse to train as one of several processes, which would each learn a policy of its own.

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
                f"{name} is '{text[:40]}', as {launcher} sets it for several processes. Training runs in one process "
                "on one device: the others would each learn a policy of their own. Start it without the launcher, "
                f"unset {name} if it is left over, and choose a GPU with --device cuda:1."
            )
