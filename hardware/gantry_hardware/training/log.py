"""Metrics of a training as JSON lines and for TensorBoard; a resumed training goes on where its checkpoint is."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gantry_hardware.files.json_file import JsonSyntaxError, parse_json
from gantry_hardware.files.whole_files import write_whole

METRICS_FILE = "metrics.jsonl"
"""One JSON object a line; ``kind`` says what it is: ``train`` or ``eval``."""
BOARD_FOLDER = "tensorboard"
"""The same numbers as TensorBoard reads them."""


class TrainingLog:
    """Appends rows; each is on its way to the disk when :meth:`write` returns.

    Args:
        run_dir: Folder of the run; None to write nothing.
        rows: Rows that belong to what is continued from; what an earlier session wrote beyond them is left out.
        step: Step on TensorBoard's axis at that row.

    Raises:
        OSError: If the files cannot be written.
    """

    def __init__(self, run_dir: Path | None, rows: int, step: int = 0) -> None:
        self.rows = rows
        self._file: Any = None
        self._board: Board | None = None
        if run_dir is None:
            return
        run_dir.mkdir(parents=True, exist_ok=True)
        path = run_dir / METRICS_FILE
        kept = path.read_text().splitlines(keepends=True)[:rows] if rows and path.is_file() else []
        write_whole(path, "".join(kept).encode())
        self._file = path.open("a")
        self._board = Board(run_dir, step)

    def write(self, kind: str, places: Mapping[str, Any], metrics: Mapping[str, Any], step: int) -> None:
        """Add one row of plain values; numbers that are not finite become null, as JSON has none.

        Args:
            kind: ``train`` or ``eval``.
            places: Entries that say where the row belongs; left out of TensorBoard.
            metrics: Numbers by name, nested as they may be.
            step: On TensorBoard's axis.

        Raises:
            OSError: If the disk is full.
        """
        self.rows += 1
        if self._file is None or self._board is None:
            return
        self._file.write(json.dumps(_finite({"kind": kind, **places, **metrics})) + "\n")
        self._file.flush()
        self._board.write(flat_numbers(kind, metrics), step)

    def close(self) -> None:
        """Close the files; what could not be written was reported by :meth:`write`."""
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

    def write(self, scalars: Mapping[str, float], step: int) -> None:
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
    """Add the scores of an evaluation to the curves of a run, as ``eval/...``.

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


def read_metrics(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Rows of a file of metrics; a last line that a kill has cut is left out.

    Args:
        path: The file.
        kind: ``train`` or ``eval`` for those rows alone.
    """
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(parse_json(line, f"a line of '{path}'", allow_nan=True))
        except JsonSyntaxError:
            break
    return [row for row in rows if kind in (None, row["kind"])]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
