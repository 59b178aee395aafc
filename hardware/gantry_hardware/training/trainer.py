"""The training loop that every algorithm shares: log, progress, checkpoints, stop, time limit.

An algorithm subclasses :class:`Trainer` and says what a piece of work is; nothing here knows what is learned.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import require_one_process
from gantry_hardware.training.log import METRICS_FILE, TrainingLog, read_metrics
from gantry_hardware.training.rescue import saving_on_error

CHECKPOINTS = "checkpoints"
"""Folder of a run's checkpoints."""


class TrainingError(GantryError):
    """Training cannot go on; what is in the newest checkpoint is still good."""


class DivergedError(TrainingError):
    """A loss or a network is not finite any more; what is in the newest checkpoint is still good.

    Args:
        what: What is not finite, for example ``loss``.
        where: When it was found, for example ``in update 7``.
    """

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"The {what} stopped being finite {where}; a lower learning rate may help.")


class CheckpointError(GantryError):
    """A checkpoint cannot be written or read."""


@dataclass(frozen=True)
class Report:
    """Numbers of a piece of work that are worth a row of the log."""

    phase: str
    """Phase of the training, for example ``warmup`` or ``learn``."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Numbers by name, with their unit at the end of it."""
    evaluation: Any = None
    """Result of an evaluation, a dataclass; None where nothing was evaluated."""


@dataclass(frozen=True)
class Progress(Report):
    """A row of the log with where the training stands."""

    unit: str = ""
    """Unit of ``done`` and ``total``, for example ``iteration``."""
    done: int = 0
    """Units so far, resumed sessions included."""
    total: int = 0
    """Units of the whole training."""
    env_steps: int = 0
    """Control steps of all environments so far, resumed sessions included."""
    wall_s: float = 0.0
    """Training time so far without evaluations, resumed sessions included."""
    remaining_s: float = 0.0
    """Estimate from the mean of this session."""


OnProgress = Callable[[Progress], None]


class Trainer(ABC):
    """A training that can be stopped and continued anywhere.

    Args:
        run_dir: Folder for log and checkpoints; None to write nothing.
        save_every_s: Time between two checkpoints.
        processes: Number of processes that learn together and have found each other.
        writes: Whether this is the one of them that writes.

    Raises:
        GantryError: If a launcher has started several processes, and they do not learn together.
    """

    unit: str = "step"
    """Unit of :attr:`done` and :attr:`total`."""

    def __init__(self, run_dir: Path | None, save_every_s: float, processes: int = 1, *, writes: bool = True) -> None:
        if processes == 1:
            require_one_process()
        self.run_dir = run_dir if writes else None
        self.source = run_dir
        """Folder of the checkpoint that :meth:`resume` reads."""
        self.save_every_s = save_every_s
        self.wall_s = 0.0
        """Training time so far without evaluations, resumed sessions included; part of every checkpoint."""
        self.rows = 0
        """Rows of the log so far; part of every checkpoint."""
        self.is_stopping = False
        """Whether a stop was asked for."""
        self.had_ended = False
        """Whether it was resumed where nothing was left to do."""
        self.redone = ""
        """Work that a stop has left unfinished and a continuation begins anew, for example ``iteration 3``; empty for
        none."""
        self.on_step: Callable[[int, int], None] = lambda number, count: None
        """Called within a long piece of work with the number of a step, from 1, and how many there are."""

    @property
    @abstractmethod
    def done(self) -> int:
        """Units so far, resumed sessions included."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Units of the whole training."""

    @property
    def env_steps(self) -> int:
        """Control steps of all environments so far; 0 for an algorithm without environments."""
        return 0

    @property
    def is_complete(self) -> bool:
        """Whether the training has come to its end."""
        return self.done >= self.total

    def is_over(self, minutes: float = 0.0) -> bool:
        """Whether nothing is left to do: it is complete, or has used up its time.

        Args:
            minutes: Longest training time; 0 for no limit.
        """
        return self.is_complete or 0.0 < 60.0 * minutes <= self.wall_s

    @abstractmethod
    def work(self) -> Iterator[Report | None]:
        """Pieces of work until the end, or until :attr:`is_stopping`; yields after each, with numbers when they are
        due.
        """

    @abstractmethod
    def save_checkpoint(self) -> Path | None:
        """Write everything that an exact continuation needs; nothing without a folder.

        Raises:
            CheckpointError: If it cannot be written; those before are untouched.
            DivergedError: If it would hold weights that are not finite, or come of such a loss.
        """

    @abstractmethod
    def save_after_error(self) -> Path | None:
        """Save what was learned since the last checkpoint, though environments may have broken down; None where that
        is nothing, or is not finite.
        """

    def take_over(self) -> Path | None:
        """Save what was learned in place of the process that writes, which is lost; None as
        :meth:`save_after_error`."""
        self.run_dir = self.source
        if self.run_dir is not None and (log := self.run_dir / METRICS_FILE).is_file():
            # Evaluations, which others do not count, among them; but no row of what is done again.
            self.rows = sum(row.get("env_steps", 0) <= self.env_steps for row in read_metrics(log))
        return self.save_after_error()

    @abstractmethod
    def resume(self) -> Path:
        """Continue from the newest intact checkpoint of the run folder; says so where newer ones are damaged.

        Raises:
            CheckpointError: If there is none, or it does not fit this training.
        """

    def stop(self) -> None:
        """End after the current piece of work, checkpoint included; safe to call from a signal handler."""
        self.is_stopping = True

    def train(
        self,
        on_progress: OnProgress | None = None,
        *,
        minutes: float = 0.0,
        on_step: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Train to the end, until :meth:`stop`, or until the time is over.

        Args:
            on_progress: Called with every row of the log.
            minutes: Longest training time, evaluations not counted; 0 for no limit.
            on_step: Called within a long piece of work with the number of a step, from 1, and how many there are.

        Returns:
            Whether the training is complete, by its length or by its time.

        Raises:
            TrainingError: If numbers are not finite any more, or the log cannot be written.
            CheckpointError: If a checkpoint cannot be written.
            Exception: What environments or data raise; what was learned until then is saved first.
        """
        if on_step is not None:
            self.on_step = on_step
        log = self._written(lambda: TrainingLog(self.run_dir, self.rows, self._place()))
        is_late = False
        first_done, first_s = self.done, self.wall_s
        try:
            with saving_on_error(self.save_after_error, CheckpointError):
                saved = began = time.perf_counter()
                for report in self.work():
                    self.wall_s += time.perf_counter() - began
                    if report is not None:
                        self._tell(report, log, first_done, first_s, on_progress)
                    if 0.0 < 60.0 * minutes <= self.wall_s:
                        is_late = True
                        self.stop()
                    if not self.is_stopping and time.perf_counter() - saved > self.save_every_s:
                        self.save_checkpoint()
                        saved = time.perf_counter()
                    began = time.perf_counter()
        finally:
            log.close()
        self.save_checkpoint()
        return self.is_complete or is_late

    def _tell(
        self, report: Report, log: TrainingLog, first_done: int, first_s: float, on_progress: OnProgress | None
    ) -> None:
        """Write a row, and show it."""
        speed = (self.done - first_done) / max(1e-9, self.wall_s - first_s)
        progress = Progress(
            **vars(report),
            unit=self.unit,
            done=self.done,
            total=self.total,
            env_steps=self.env_steps,
            wall_s=self.wall_s,
            remaining_s=(self.total - self.done) / speed if speed > 0.0 else 0.0,
        )
        places = {"phase": report.phase, self.unit: self.done, "env_steps": self.env_steps}
        metrics: dict[str, Any] = {"wall_s": round(self.wall_s, 3), **report.metrics}
        if report.evaluation is not None:
            metrics |= asdict(report.evaluation)
        kind = "train" if report.evaluation is None else "eval"
        self._written(lambda: log.write(kind, places, metrics, self._place()))
        self.rows = log.rows
        if on_progress is not None:
            on_progress(progress)

    def _place(self) -> int:
        """Step on TensorBoard's axis."""
        return self.env_steps or self.done

    def _written(self, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except OSError as error:
            raise TrainingError(f"Cannot write the log in '{self.run_dir}': {error.strerror or error}.") from error
