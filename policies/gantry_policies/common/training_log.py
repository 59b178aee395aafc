"""The learning curve of a run for TensorBoard, which all trainers write by one class, and as CSV."""

from __future__ import annotations

import csv
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CURVE_FILE = "curve.csv"
"""Learning curve of a run, one row an iteration."""
BOARD_FOLDER = "tensorboard"
"""The same numbers as TensorBoard reads them."""


class TrainingLog:
    """Takes one row of numbers an iteration; every row is on its way to the disk when :meth:`write` returns.

    Args:
        run_dir: Folder of the run; None to write nothing.
        iteration: The iteration that is continued from: what an earlier session wrote beyond it is left out.
        env_steps: Environment steps at that iteration.

    Raises:
        OSError: If the files cannot be written.
    """

    def __init__(self, run_dir: Path | None, iteration: int, env_steps: int) -> None:
        self._file: Any = None
        self._writer: Any = None
        self._board: Board | None = None
        if run_dir is None:
            return
        run_dir.mkdir(parents=True, exist_ok=True)
        self._board = Board(run_dir, env_steps)
        path = run_dir / CURVE_FILE
        kept = _rows_until(path, iteration)
        part = path.with_suffix(".part")
        with part.open("w", newline="") as file:
            if kept:
                writer = csv.DictWriter(file, fieldnames=list(kept[0]))
                writer.writeheader()
                writer.writerows(kept)
        os.replace(part, path)
        self._file = path.open("a", newline="")
        if kept:
            self._writer = csv.DictWriter(self._file, fieldnames=list(kept[0]), extrasaction="ignore")

    def write(self, row: dict[str, float], env_steps: int) -> None:
        """Add one iteration.

        Raises:
            OSError: If the disk is full.
        """
        if self._file is None or self._board is None:
            return
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, fieldnames=list(row), extrasaction="ignore")
            self._writer.writeheader()
        self._writer.writerow(row)
        self._file.flush()
        names = [name for name in row if name not in ("iteration", "env_steps")]
        self._board.write({f"train/{name}": row[name] for name in names}, env_steps)

    def close(self) -> None:
        """Close both files; what could not be written was reported by :meth:`write`."""
        for file in (self._file, self._board):
            if file is not None:
                try:
                    file.close()
                except OSError:  # the disk is still full
                    continue


class Board:
    """Scalars in TensorBoard's format, written by the calling thread, so that a full disk is reported and not printed.

    Whatever a killed session logged after the checkpoint that is continued from is hidden by a session that starts at
    ``step + 1``. TensorBoard reads the files of a folder in the order of their names.

    Args:
        run_dir: Folder of the run.
        step: Step that is continued from.

    Raises:
        OSError: If the file cannot be written.
    """

    def __init__(self, run_dir: Path, step: int) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        # Classes that protobuf makes at run time, unknown to type checkers.
        events: Any = event_pb2
        summaries: Any = summary_pb2
        self._event, self._summary = events.Event, summaries.Summary
        folder = run_dir / BOARD_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        stamp = f"{time.time_ns() // 1_000_000_000:010d}.{time.time_ns() % 1_000_000_000:09d}"
        self._file = (folder / f"events.out.tfevents.{stamp}.gantry").open("wb")
        self._records = RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        self._add(step=step + 1, session_log=events.SessionLog(status=events.SessionLog.START))
        self._file.flush()

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Add points of several curves."""
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(step=step, summary=self._summary(value=values))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, **fields: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())


def log_evaluation(run_dir: Path, scores: Mapping[str, Any], step: int) -> None:
    """Add what an evaluation gave to the curves of a run, as ``eval/...``.

    Args:
        run_dir: Folder of the run.
        scores: Numbers by name, nested as they may be; what is no number is left out.
        step: Step of the training that was evaluated.

    Raises:
        OSError: If the file cannot be written.
    """
    board = Board(run_dir, step)
    try:
        board.write(flat_numbers("eval", scores), step)
    finally:
        board.close()


def flat_numbers(name: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers of nested mappings by path; ``mean`` stands for the thing itself."""
    found: dict[str, float] = {}
    for key, value in values.items():
        path = name if key == "mean" else f"{name}/{key}"
        if isinstance(value, Mapping):
            found |= flat_numbers(path, value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found[path] = float(value)
    return found


def _rows_until(path: Path, iteration: int) -> list[dict[str, str]]:
    """Rows of an earlier session up to the iteration that is continued from."""
    if iteration == 0 or not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = []
        for row in csv.DictReader(file):
            number = row.get("iteration") or ""
            if None in row or None in row.values() or not number.isdigit():
                break  # a kill may have cut the last line
            if int(number) <= iteration:
                rows.append(row)
        return rows
