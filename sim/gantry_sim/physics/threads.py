"""N simulations of one model without compiled code of our own: one ``MjData`` per thread, states kept outside.

MuJoCo releases Python's lock while it steps, so threads share the work; keeping one ``MjData`` per thread instead of
one per simulation keeps it in the cache. The interface and its meaning are those of mjbatch's ``Batch``, which is
faster and taken instead where it is installed (``engine.py``).
"""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import own_cores
from gantry_sim.physics.live import LiveArray, Rows

_STATE = mujoco.mjtState
_SIGNATURE = int(_STATE.mjSTATE_INTEGRATION)
_COMPONENTS = {
    "time": _STATE.mjSTATE_TIME,
    "qpos": _STATE.mjSTATE_QPOS,
    "qvel": _STATE.mjSTATE_QVEL,
    "act": _STATE.mjSTATE_ACT,
    "history": _STATE.mjSTATE_HISTORY,
    "qacc_warmstart": _STATE.mjSTATE_WARMSTART,
    "ctrl": _STATE.mjSTATE_CTRL,
    "qfrc_applied": _STATE.mjSTATE_QFRC_APPLIED,
    "xfrc_applied": _STATE.mjSTATE_XFRC_APPLIED,
    "eq_active": _STATE.mjSTATE_EQ_ACTIVE,
    "mocap_pos": _STATE.mjSTATE_MOCAP_POS,
    "mocap_quat": _STATE.mjSTATE_MOCAP_QUAT,
    "userdata": _STATE.mjSTATE_USERDATA,
    "plugin_state": _STATE.mjSTATE_PLUGIN,
}
# Fields whose names start like this may change in mj_setConst. Geometry data (meshes, height fields) cannot.
_CONSTANT_PREFIXES = ("body", "dof", "jnt", "tendon", "actuator", "cam", "light", "site", "geom", "eq", "qpos0")
_STATISTICS = ("meaninertia", "meanmass", "meansize", "extent", "center")
_CHUNK = 8  # simulations a thread takes at a time: evens out the load, costs little locking


@dataclass
class _Worker:
    """Data that one thread steps with."""

    model: mujoco.MjModel
    data: mujoco.MjData
    outputs: list[tuple[NDArray[Any], NDArray[Any]]]
    """Derived fields to copy out: the field of ``data``, and the (N, ...) array it goes to."""
    constants: list[tuple[NDArray[Any], NDArray[Any]]]
    """Expanded fields to copy in: the field of ``model``, and the (N, ...) values."""
    scalars: list[tuple[Any, str, NDArray[Any]]]
    """Expanded scalars to set: ``model.opt`` or ``model.stat``, the name of the attribute, and the (N,) values."""


def physics_threads() -> int:
    """Threads of physics: ``GANTRY_PHYSICS_THREADS``, or the cores that are this process's own.

    Raises:
        GantryError: If the variable is no number of threads.
    """
    if given := os.environ.get("GANTRY_PHYSICS_THREADS"):
        if not given.isdecimal() or int(given) < 1:
            raise GantryError(f"GANTRY_PHYSICS_THREADS is '{given}', expected a number of threads, at least 1.")
        return int(given)
    return own_cores()


class ThreadBatch:
    """N MuJoCo simulations stepped by Python threads; a :class:`~gantry_sim.physics.engine.BatchEngine`.

    Args:
        model: Compiled model; copied, edit it before.
        num_sims: Number of simulations N.
        num_threads: Worker threads; 0 for :func:`physics_threads`.
    """

    def __init__(self, model: mujoco.MjModel, num_sims: int, num_threads: int = 0) -> None:
        if num_sims < 1:
            raise ValueError(f"A batch needs at least one simulation, got {num_sims}.")
        self.num_sims = num_sims
        self.num_threads = max(1, min(num_threads or physics_threads(), num_sims))
        self._model = copy.copy(model)
        self._workers = [_Worker(copy.copy(model), mujoco.MjData(model), [], [], []) for _ in range(self.num_threads)]
        self._pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="physics")
        self.nstate = mujoco.mj_stateSize(model, _SIGNATURE)
        row = np.zeros(self.nstate)
        mujoco.mj_getState(model, self._workers[0].data, row, _SIGNATURE)
        self._state = np.tile(row, (num_sims, 1))
        self._slices = _component_slices(model)
        self._warnings = np.zeros((num_sims, int(mujoco.mjtWarning.mjNWARNING), 2), dtype=np.int32)
        self._watch_warnings = False
        self._inputs: dict[str, LiveArray] = {}
        self._derived: dict[str, NDArray[Any]] = {}
        self._expanded: dict[str, LiveArray] = {}
        self._statistics: dict[str, NDArray[Any]] = {}

    # Arrays.

    def bind(self, name: str, dtype: Any = None) -> NDArray[Any]:
        """An (N, ...) array over the ``MjData`` field ``name``; live, see ``BatchEngine``.

        Args:
            name: A component of the state, ``warning`` (N, warnings, 2: last info and count), or a derived field of
                fixed size.
            dtype: None for the field's own, or ``float32`` for a float field.

        Raises:
            ValueError: If there is no such field, or it is bound already with another dtype.
        """
        if name in self._slices:
            field = np.asarray(getattr(self._workers[0].data, name))
            if name not in self._inputs:
                values = self._state[:, self._slices[name]].reshape(self.num_sims, *field.shape)
                self._inputs[name] = LiveArray(values, dtype or field.dtype)
            return _checked(self._inputs[name].array, name, dtype or field.dtype)
        if name == "warning":
            self._watch_warnings = True
            return self._warnings
        if name not in self._derived:
            sources = [_fixed_size_field(worker.data, name) for worker in self._workers]
            array = np.zeros((self.num_sims, *sources[0].shape), dtype or sources[0].dtype)
            self._derived[name] = array
            for worker, source in zip(self._workers, sources, strict=True):
                worker.outputs.append((source, array))
        native = _fixed_size_field(self._workers[0].data, name).dtype
        return _checked(self._derived[name], name, dtype or native)

    def expand(self, name: str, dtype: Any = None) -> NDArray[Any]:
        """An (N, ...) array of the ``MjModel`` or ``MjOption`` field ``name``, one row per simulation.

        Raises:
            ValueError: If there is no such field, or it is expanded already with another dtype.
        """
        if name not in self._expanded:
            self._expand(name, dtype)
        return _checked(self._expanded[name].array, name, dtype or _model_field(self._model, name).dtype)

    def _expand(self, name: str, dtype: Any = None) -> LiveArray:
        template = _model_field(self._model, name)
        live = self._expanded[name] = LiveArray(_repeated(template, self.num_sims), dtype)
        for worker in self._workers:
            if template.ndim:
                worker.constants.append((_model_field(worker.model, name), live.values))
            else:
                worker.scalars.append((worker.model.opt, name, live.values))
        return live

    # Physics.

    def step(self, ids: NDArray[Any] | None = None, nstep: int = 1) -> None:
        """``nstep`` calls of ``mj_step`` in simulations, indices (k,), or all; derived fields are one substep behind
        the state afterwards.
        """
        self._call(ids, lambda model, data: mujoco.mj_step(model, data, nstep))

    def forward(self, ids: NDArray[Any] | None = None) -> None:
        """``mj_forward`` in simulations, indices (k,), or all: derived fields become current."""
        self._call(ids, mujoco.mj_forward)

    def reset(self, ids: NDArray[Any] | None = None) -> None:
        """``mj_resetData`` in simulations, indices (k,), or all, then writes to inputs since the last call, then
        ``mj_forward``.
        """
        rows = _row_numbers(ids, self.num_sims)
        index = slice(None) if ids is None else rows
        worker = self._workers[0]
        mujoco.mj_resetData(self._model, worker.data)
        mujoco.mj_getState(self._model, worker.data, state := np.zeros(self.nstate), _SIGNATURE)
        self._state[index] = state
        for name in ("qpos0", "body_pos", "body_quat"):  # the fields that mj_resetData reads
            if name in self._expanded:
                self._reset_with_constants(rows)
                break
        self._warnings[index] = 0
        self._call(ids, mujoco.mj_forward)

    def _reset_with_constants(self, rows: NDArray[np.int64]) -> None:
        worker = self._workers[0]
        for live in self._expanded.values():
            live.take_writes(rows)
        for row in rows:
            self._apply_constants(worker, row)
            mujoco.mj_resetData(worker.model, worker.data)
            mujoco.mj_getState(worker.model, worker.data, self._state[row], _SIGNATURE)

    def set_const(self, ids: NDArray[Any] | None = None) -> None:
        """``mj_setConst`` per simulation, indices (k,), or in all; every model field that it changes is expanded."""
        rows = _row_numbers(ids, self.num_sims)
        for live in self._expanded.values():
            live.take_writes(rows)
        self._keep_statistics()
        model, data = self._workers[0].model, self._workers[0].data
        names = _constant_fields(self._model)
        templates = {name: getattr(self._model, name) for name in names if name not in self._expanded}
        changes: dict[str, dict[int, NDArray[Any]]] = {}
        for row in rows:
            for name, template in templates.items():
                getattr(model, name)[...] = template
            self._apply_constants(self._workers[0], row)
            mujoco.mj_setConst(model, data)
            for name in names:
                before = templates[name] if name in templates else self._expanded[name].values[row]
                if not np.array_equal(before, after := getattr(model, name)):
                    changes.setdefault(name, {})[row] = after.copy()
            for name, values in self._statistics.items():
                values[row] = getattr(model.stat, name)
        for name, template in templates.items():
            getattr(model, name)[...] = template
        for name, rows_changed in changes.items():
            live = self._expanded.get(name) or self._expand(name)
            for row, value in rows_changed.items():
                live.store(row, value)

    def _keep_statistics(self) -> None:
        if self._statistics:
            return
        for name in _STATISTICS:
            values = self._statistics[name] = _repeated(np.asarray(getattr(self._model.stat, name)), self.num_sims)
            for worker in self._workers:
                if values.ndim == 1:
                    worker.scalars.append((worker.model.stat, name, values))
                else:
                    worker.constants.append((getattr(worker.model.stat, name), values))

    # How a call runs.

    def _call(self, ids: NDArray[Any] | None, function: Callable[[mujoco.MjModel, mujoco.MjData], None]) -> None:
        rows = _row_numbers(ids, self.num_sims)
        index: Rows = slice(None) if ids is None else rows
        for live in (*self._inputs.values(), *self._expanded.values()):
            live.take_writes(index)
        chunks = deque(rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))
        failures: list[tuple[int, Exception]] = []
        count = min(self.num_threads, len(chunks))
        futures = [self._pool.submit(self._work, self._workers[i], chunks, function, failures) for i in range(count)]
        for future in futures:
            future.result()
        for live in self._inputs.values():
            live.show(index)
        if failures:
            row, error = min(failures, key=lambda failure: failure[0])
            raise RuntimeError(f"simulation {row}: {error}") from error

    def _work(
        self,
        worker: _Worker,
        chunks: deque[NDArray[np.int64]],
        function: Callable[[mujoco.MjModel, mujoco.MjData], None],
        failures: list[tuple[int, Exception]],
    ) -> None:
        model, data = worker.model, worker.data
        while True:
            try:
                chunk = chunks.popleft()
            except IndexError:
                return
            for row in chunk:
                self._apply_constants(worker, row)
                mujoco.mj_setState(model, data, self._state[row], _SIGNATURE)
                if self._watch_warnings:
                    data.warning.lastinfo[:] = self._warnings[row, :, 0]
                    data.warning.number[:] = self._warnings[row, :, 1]
                try:
                    function(model, data)
                except mujoco.FatalError as error:
                    failures.append((int(row), error))
                    continue
                mujoco.mj_getState(model, data, self._state[row], _SIGNATURE)
                if self._watch_warnings:
                    self._warnings[row, :, 0] = data.warning.lastinfo
                    self._warnings[row, :, 1] = data.warning.number
                for source, array in worker.outputs:
                    array[row] = source

    def _apply_constants(self, worker: _Worker, row: int) -> None:
        for target, values in worker.constants:
            target[...] = values[row]
        for owner, name, values in worker.scalars:
            setattr(owner, name, values[row].item())


def _repeated(template: NDArray[Any], count: int) -> NDArray[Any]:
    return np.repeat(template[None], count, axis=0)


def _component_slices(model: mujoco.MjModel) -> dict[str, slice]:
    """Slice of each component in an integration state; components are in the order of their bits."""
    slices = {}
    start = 0
    for name, bit in sorted(_COMPONENTS.items(), key=lambda item: int(item[1])):
        size = mujoco.mj_stateSize(model, int(bit))
        slices[name] = slice(start, start + size)
        start += size
    return slices


def _fixed_size_field(data: mujoco.MjData, name: str) -> NDArray[Any]:
    field = getattr(data, name, None)
    # Constraint and contact arrays live in an arena that every step lays out anew.
    if not isinstance(field, np.ndarray) or name.startswith(("efc_", "iefc_", "contact")):
        raise ValueError(f"unknown field {name}")
    return field


def _model_field(model: mujoco.MjModel, name: str) -> NDArray[Any]:
    field = getattr(model, name, None)
    if field is None:
        field = getattr(model.opt, name, None)
        field = np.asarray(field) if isinstance(field, (int, float)) else field
    if not isinstance(field, np.ndarray) or field.dtype.kind not in "fiub":
        raise ValueError(f"unknown field {name}")
    return field


def _constant_fields(model: mujoco.MjModel) -> list[str]:
    return [
        name
        for name in dir(model)
        if name.startswith(_CONSTANT_PREFIXES) and isinstance(getattr(model, name), np.ndarray)
    ]


def _checked(array: NDArray[Any], name: str, dtype: Any) -> NDArray[Any]:
    if array.dtype != np.dtype(dtype):
        raise ValueError(f"{name} is already bound with another dtype")
    return array


def _row_numbers(ids: NDArray[Any] | None, num_sims: int) -> NDArray[np.int64]:
    if ids is None:
        return np.arange(num_sims)
    ids = np.asarray(ids)
    if ids.dtype == bool:
        if ids.shape != (num_sims,):
            raise ValueError(f"a mask needs shape ({num_sims},), got {ids.shape}")
        return np.flatnonzero(ids)
    rows = ids.astype(np.int64)
    if len(rows) and (np.any(np.diff(rows) <= 0) or rows[0] < 0 or rows[-1] >= num_sims):
        raise ValueError("ids must be sorted, unique and in range")
    return rows
