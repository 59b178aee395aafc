"""The person at the robot: questions, and keys that take effect at once."""

from __future__ import annotations

import queue
import sys
import threading
from typing import Protocol

from gantry_deploy.errors import SafetyError


class OperatorGoneError(SafetyError):
    """The terminal was closed."""


class Operator(Protocol):
    """Answers questions, and can press a key while something runs."""

    def tell(self, text: str) -> None:
        """Show a line."""
        ...

    def ask(self, question: str, answers: tuple[str, ...] = ("y", "n")) -> str:
        """One of the answers; the question is asked again until it is one.

        Raises:
            OperatorGoneError: If the terminal was closed.
        """
        ...

    def pressed(self) -> bool:
        """Whether Enter was pressed since the last question."""
        ...


class ConsoleOperator:
    """A person at a terminal; one thread reads lines, so that a key counts while the robot moves."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, name="gantry-operator", daemon=True).start()

    def tell(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def ask(self, question: str, answers: tuple[str, ...] = ("y", "n")) -> str:
        """Print the question and wait for one of the answers."""
        while True:
            print(f"{question} [{'/'.join(answers)}] ", end="", flush=True)
            line = self._lines.get()
            if line is None:
                print(flush=True)
                raise OperatorGoneError("No answer comes any more: the terminal was closed.")
            if line.strip().lower() in answers:
                return line.strip().lower()
            print(f"'{line.strip()}' is no answer, expected {' or '.join(answers)}.", flush=True)

    def pressed(self) -> bool:
        """Whether Enter was pressed, or the terminal was closed."""
        if self._lines.empty():
            return False
        line = self._lines.get()
        if line is None:
            self._lines.put(None)
        return True

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        self._lines.put(None)
