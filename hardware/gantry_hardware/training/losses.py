"""Losses that are read when they are reported or saved, since every reading waits for a GPU."""

from __future__ import annotations

import math
from typing import Any

from gantry_hardware.training.trainer import DivergedError


class UnreadLosses:
    """Sum of the losses since the last reading: one that is not finite stays in it.

    Args:
        name: Name of the loss, for the message.
    """

    def __init__(self, name: str = "loss") -> None:
        self._name = name
        self._sum: Any = 0.0
        self._first: int | None = None
        self._last = 0

    def add(self, loss: Any, update: int) -> None:
        """Count a loss, a number or a tensor of one number without gradient, of the update of that number."""
        self._sum = self._sum + loss
        self._first, self._last = update if self._first is None else self._first, update

    def require_finite(self) -> None:
        """Read the sum, and begin a new one.

        Raises:
            DivergedError: If a loss was not finite; it is named again whenever this is called.
        """
        if self._first is None:
            return
        if not math.isfinite(float(self._sum)):
            one = f"update {self._last}"
            where = one if self._first == self._last else f"updates {self._first} to {self._last}"
            raise DivergedError(self._name, f"in {where}")
        self._sum, self._first = 0.0, None
