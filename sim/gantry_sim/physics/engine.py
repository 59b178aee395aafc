"""The narrow interface between the CPU simulation and what steps MuJoCo C: a C++ pool if there is one, else threads."""

from __future__ import annotations

import importlib.util
from typing import Any, Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import UnknownNameError

IdArray = NDArray[np.int64]

ENGINES = ("mjbatch", "threads")
"""Names of the engines in order of preference."""


class BatchEngine(Protocol):
    """N simulations of one model. mjbatch's ``Batch`` has this interface; so has our thread pool.

    Arrays that ``bind`` and ``expand`` return are live: they keep their memory for the engine's life, writes to input
    fields count at the next call, and every bound field is refreshed by every call for the simulations it touches.
    """

    def bind(self, name: str, dtype: Any = None) -> NDArray[Any]:
        """An (N, ...) array over the ``MjData`` field ``name``."""
        ...

    def expand(self, name: str, dtype: Any = None) -> NDArray[Any]:
        """An (N, ...) array of the ``MjModel`` field ``name``, one row per simulation."""
        ...

    def step(self, ids: IdArray | None = None, nstep: int = 1) -> None:
        """``nstep`` calls of ``mj_step`` in simulations, indices (k,), or all; derived fields are one substep behind
        the state afterwards.
        """
        ...

    def forward(self, ids: IdArray | None = None) -> None:
        """``mj_forward`` in simulations, indices (k,), or all: derived fields become current."""
        ...

    def reset(self, ids: IdArray | None = None) -> None:
        """``mj_resetData`` in simulations, indices (k,), or all, then writes to input fields since the last call,
        then ``mj_forward``.
        """
        ...

    def set_const(self, ids: IdArray | None = None) -> None:
        """``mj_setConst`` per simulation, indices (k,), or in all, after expanded inputs have changed."""
        ...


def available_engines() -> list[str]:
    """Engines that can be used here, best first."""
    return [name for name in ENGINES if name == "threads" or importlib.util.find_spec(name)]


def make_engine(model: mujoco.MjModel, num_envs: int, num_threads: int = 0, name: str | None = None) -> BatchEngine:
    """Build an engine.

    Args:
        model: Compiled model; copied.
        num_envs: Number of simulations N.
        num_threads: Worker threads; 0 for one per core that this process may use.
        name: An entry of :data:`ENGINES`; None takes the best that is installed.

    Raises:
        UnknownNameError: If there is no such engine here.
    """
    available = available_engines()
    name = name or available[0]
    if name not in available:
        raise UnknownNameError("physics engine", name, available)
    from gantry_sim.physics.threads import ThreadBatch, physics_threads

    if name == "mjbatch":
        from mjbatch import Batch

        return Batch(model, num_envs, num_threads or physics_threads())
    return ThreadBatch(model, num_envs, num_threads)
