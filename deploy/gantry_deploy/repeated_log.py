"""Trouble that a control loop meets at every tick, logged once."""

from __future__ import annotations

import logging
import re


class Repeated:
    """Logs trouble once, and again when it is something else: a control loop would say it at every tick.

    Args:
        log: Where to.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._kind = log, ""

    def error(self, text: str, *, trace: bool = False) -> None:
        """Say what is wrong, with the present exception's trace the first time; other numbers are nothing else."""
        kind = re.sub(r"[-+.\d]+", "#", text)
        if kind != self._kind:
            self._kind = kind
            self._log.error("%s (repeated until it is something else)", text, exc_info=trace)

    def over(self) -> None:
        """It works again, so that the same trouble is said again."""
        self._kind = ""
