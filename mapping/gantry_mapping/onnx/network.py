"""A network from a file, run by onnxruntime on one thread, within bounds of time and memory.

The graph is checked before it is loaded (:mod:`gantry_mapping.onnx.graph`). All networks of a process share an arena
whose size is limited, and a thread watches how long a step computes: not on a clock, which a busy machine runs down as
well, but on the processor, which only the network's own work does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_mapping.onnx.graph import check_graph

MEMORY_BYTES = 2**30
"""Most memory for the weights and steps of all networks of a process."""
COMPUTE_LIMIT_S = 1.0
"""Longest that one step may compute, seconds on the processor; a control period is some twenty times shorter."""
WATCH_EVERY_S = 0.05
"""Time between two looks at what computes."""
IDLE_LOOKS = 100
"""After so many looks at nothing the watching thread sleeps until there is something."""
TEXT_LENGTH = 300
"""Letters of onnxruntime's messages that are repeated."""


class Network:
    """One checked and loaded graph.

    Args:
        model: The ONNX file.
        file: Its name, for messages.
        error: Class of the errors to raise.
        limit_s: Longest that one step may compute, seconds on the processor.

    Raises:
        GantryError: Of class ``error``, if the graph is refused or cannot be loaded.
    """

    def __init__(self, model: bytes, file: str, error: type[GantryError], *, limit_s: float = COMPUTE_LIMIT_S) -> None:
        check_graph(model, file, error)
        self.file = file
        self._error = error
        self._limit_s = limit_s
        self._session = _load(model, file, error)
        self.metadata: dict[str, str] = self._read_metadata()
        """What the file says of itself."""

    def _read_metadata(self) -> dict[str, str]:
        try:
            return self._session.get_modelmeta().custom_metadata_map
        except UnicodeDecodeError as problem:
            raise self._error(f"{self.file} holds metadata that is no UTF-8 text: {problem}") from problem

    @property
    def inputs(self) -> list[ort.NodeArg]:
        """Name, shape and type of each input."""
        return list(self._session.get_inputs())

    @property
    def outputs(self) -> list[ort.NodeArg]:
        """Name, shape and type of each output."""
        return list(self._session.get_outputs())

    def run(self, outputs: Sequence[str], feeds: Mapping[str, NDArray], steps: int = 1) -> list[NDArray]:
        """One step.

        Args:
            outputs: Names of the outputs that are wanted.
            feeds: Name of each input to its array.
            steps: Rows of a batch, each of which may compute for as long as one step.

        Returns:
            The outputs in that order.

        Raises:
            GantryError: Of class ``error``, if it computes for too long, needs too much memory, or refuses its inputs.
        """
        limit_s = self._limit_s * max(1, steps)
        step = _WATCH.begin(limit_s)
        try:
            return self._session.run(list(outputs), dict(feeds), step.options)  # type: ignore[return-value]
        except Exception as problem:  # onnxruntime raises several types without a common base
            if step.options.terminate:
                raise self._error(
                    f"{self.file} was stopped in a step that had computed for more than {limit_s:g} s."
                ) from problem
            shapes = ", ".join(f"'{name}' {array.dtype} {np.shape(array)}" for name, array in feeds.items())
            raise self._error(f"{self.file} failed on {shapes}: {first_line(problem)}") from problem
        finally:
            _WATCH.end(step)


class _Step:
    """A step that is being computed by one thread."""

    def __init__(self, limit_s: float) -> None:
        self.options = ort.RunOptions()
        # The time of another thread on the processor can be read on Linux alone; elsewhere the clock stands in.
        thread_clock = getattr(time, "pthread_getcpuclockid", None)
        self._clock = None if thread_clock is None else thread_clock(threading.get_ident())
        self._end_s = self._now_s() + limit_s

    def _now_s(self) -> float:
        return time.monotonic() if self._clock is None else time.clock_gettime(self._clock)

    def judge(self) -> None:
        """Let it end after the present operator, if its time is over."""
        try:
            if self._now_s() > self._end_s:
                self.options.terminate = True
        except OSError:  # The thread is gone, and so is the step.
            pass


class _Watch:
    """One thread that looks at all steps of the process; it sleeps while there are none for a while."""

    def __init__(self) -> None:
        self._steps: set[_Step] = set()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, limit_s: float) -> _Step:
        """Watch a step of the present thread."""
        step = _Step(limit_s)
        self._steps.add(step)
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start()
        return step

    def end(self, step: _Step) -> None:
        """It is done."""
        self._steps.discard(step)

    def forget_thread(self) -> None:
        """A process that was forked has no such thread."""
        self.__init__()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="network watch", daemon=True)
                self._thread.start()

    def _look(self) -> None:
        idle = 0
        while True:
            steps = tuple(self._steps)
            for step in steps:
                step.judge()
            idle = 0 if steps else idle + 1
            if idle > IDLE_LOOKS:
                self._wake.clear()
                if not self._steps:  # One that began before is seen here, one that begins after wakes this thread.
                    self._wake.wait()
                idle = 0
            time.sleep(WATCH_EVERY_S)


_WATCH = _Watch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WATCH.forget_thread)
_ARENA_LOCK = threading.Lock()
_arena_made = False


def _limit_memory() -> None:
    """Register the arena of all networks of this process, once."""
    global _arena_made
    with _ARENA_LOCK:
        if _arena_made:
            return
        from onnxruntime.capi.onnxruntime_pybind11_state import OrtMemType

        info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
        # 1: ask for no more than is needed, instead of the next power of two.
        ort.create_and_register_allocator(info, ort.OrtArenaCfg({"max_mem": MEMORY_BYTES, "arena_extend_strategy": 1}))
        _arena_made = True


def _load(model: bytes, file: str, error: type[GantryError]) -> ort.InferenceSession:
    _limit_memory()
    options = ort.SessionOptions()
    # One thread: such a network is too small to share, and a spinning pool would starve the control loop.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    for key, value in (
        ("session.intra_op.allow_spinning", "0"),
        ("session.use_env_allocators", "1"),
        # Weights outside the file are covered by no hash; a folder that cannot exist keeps them from being found.
        ("session.model_external_initializers_file_folder_path", os.devnull),
    ):
        options.add_session_config_entry(key, value)
    try:
        # Folding keeps what every constant operator gives, outside the arena: small files could fill the memory.
        return ort.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
        )
    except Exception as problem:  # onnxruntime raises several types without a common base
        raise error(f"{file} cannot be loaded: {first_line(problem)}") from problem


def first_line(problem: Exception) -> str:
    """The beginning of what onnxruntime says, without control characters: it repeats names from the file."""
    line = next(iter(str(problem).strip().splitlines()), "") or type(problem).__name__
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)[:TEXT_LENGTH]
