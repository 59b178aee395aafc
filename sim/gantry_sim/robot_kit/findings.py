"""Findings of a check, one line each: the value, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from gantry_hardware.files.text import printable_lines

NAME_WIDTH = 14
"""Width of the column with a check's name."""


class Level(Enum):
    """Severity of a finding."""

    PASS = "pass"
    """As expected."""
    NOTE = "note"
    """Worth knowing; nothing to do."""
    OPEN = "open"
    """To be filled in or mended later; nothing is prevented."""
    FAIL = "FAIL"
    """Prevents that the robot is used."""


@dataclass(frozen=True)
class Finding:
    """One line of a report."""

    level: Level
    """Severity."""
    check: str
    """Name of the check: ``inertia``, ``mesh``, ``pose`` ..."""
    text: str
    """The value, what was expected, and what to do."""

    @property
    def line(self) -> str:
        """The finding as it is printed."""
        return printable_lines(f"{self.level.value}  {self.check:<{NAME_WIDTH}}{self.text}")


def fails(findings: Iterable[Finding]) -> list[Finding]:
    """Those that prevent that the robot is used."""
    return [finding for finding in findings if finding.level is Level.FAIL]


def opens(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are to be filled in later."""
    return [finding for finding in findings if finding.level is Level.OPEN]
