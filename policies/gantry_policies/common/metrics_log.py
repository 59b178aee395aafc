"""The course of a training as JSON lines and for TensorBoard; a resumed training goes on where its checkpoint is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from gantry_hardware.json_file import JsonSyntaxError, parse_json
from gantry_hardware.whole_files import write_whole
from gantry_policies.common.training_log import Board, flat_numbers

METRICS_FILE = "metrics.jsonl"
"""One JSON object a line; ``kind`` says what it is: ``train`` or ``eval``."""

_PLACES = ("kind", "phase", "env_steps", "step")
"""Entries of a row that say where it belongs."""


class MetricsLog:
    """Appends rows; each is on its way to the disk when :meth:`write` returns.

    Args:
        run_dir: Folder of the run; None to write nothing.
        rows: Rows that belong to what is continued from; what an earlier session wrote beyond them is left out.
        step: Environment steps, or updates of a clone, at that row.

    Raises:
        OSError: If the file cannot be written.
    """

    def __init__(self, run_dir: Path | None, rows: int, step: int = 0) -> None:
        self.rows = rows
        self._file = None
        self._board: Board | None = None
        if run_dir is None:
            return
        run_dir.mkdir(parents=True, exist_ok=True)
        path = run_dir / METRICS_FILE
        kept = path.read_text().splitlines(keepends=True)[:rows] if rows and path.is_file() else []
        write_whole(path, "".join(kept).encode())
        self._file = path.open("a")
        self._board = Board(run_dir, step)

    def write(self, row: dict[str, Any]) -> None:
        """Add one row of plain values; numbers that are not finite become null, as JSON has none.

        Raises:
            OSError: If the disk is full.
        """
        self.rows += 1
        if self._file is not None:
            self._file.write(json.dumps(_finite(row)) + "\n")
            self._file.flush()
        if self._board is not None:
            numbers = {name: value for name, value in row.items() if name not in _PLACES}
            step = row["env_steps"] if "env_steps" in row else row["step"]
            self._board.write(flat_numbers(str(row["kind"]), numbers), int(step))

    def close(self) -> None:
        """Close the file."""
        for file in (self._file, self._board):
            if file is not None:
                file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of metrics; a last line that a kill has cut is left out."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(parse_json(line, f"a line of '{path}'", allow_nan=True))
        except JsonSyntaxError:
            break
    return rows


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
