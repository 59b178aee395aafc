"""Arrays that a user may write between two calls of an engine, and that keep the engine's precision where they do not.

A user of an engine works in float32 while MuJoCo computes in float64. Copying every value back before a call would
round the whole state once per step; so only elements that differ from what was last shown are taken over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = slice | NDArray[np.int64]


class LiveArray:
    """An (N, ...) array shown to the user, and the engine's values behind it.

    Args:
        values: (N, ...) the engine's values; kept by reference.
        dtype: Type of the shown array; None for that of ``values``.
    """

    def __init__(self, values: NDArray[Any], dtype: Any = None) -> None:
        self.values = values
        """(N, ...) values in the engine's precision."""
        self.array: NDArray[Any] = values.astype(dtype or values.dtype)
        """(N, ...) what the user reads and writes; its memory stays where it is."""
        self._shown = self.array.copy()

    def take_writes(self, rows: Rows) -> None:
        """Take over elements of these rows that the user has changed."""
        array, shown = self.array[rows], self._shown[rows]
        written = array != shown
        if not written.any():
            return
        written &= (array == array) | (shown == shown)  # a NaN that was shown is not a write
        if isinstance(rows, slice):
            self.values[rows][written] = array[written]
        else:
            values = self.values[rows]
            values[written] = array[written]
            self.values[rows] = values

    def show(self, rows: Rows) -> None:
        """Let the user see the engine's values of these rows."""
        self.array[rows] = self.values[rows]
        self._shown[rows] = self.array[rows]

    def store(self, row: int, value: NDArray[Any]) -> None:
        """Change one row on the engine's side, and show it."""
        self.values[row] = value
        self.show(slice(row, row + 1))
