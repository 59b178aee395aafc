"""Problems of a dataset, as a list that names the place and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.files.text import LINE_LIMIT, printable


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    place: str
    """File within the dataset, and what in it: episode, frame, feature."""
    problem: str
    """Finding, and what was expected."""
    advice: str
    """Remedy."""

    def __post_init__(self) -> None:
        for name in ("place", "problem", "advice"):  # They hold names from files and messages of other libraries.
            object.__setattr__(self, name, printable(getattr(self, name), LINE_LIMIT))


RECORD_AGAIN = "record the episode again, or take it from a backup"
REPAIR = "'gantry data check FOLDER --repair' removes what belongs to no whole episode"
WRITE_STATS = "write the dataset anew, or have LeRobot compute its statistics again"


class Findings:
    """Collects findings; at most ``limit`` of a kind, because one cause often shows in every episode.

    Args:
        limit: Findings with the same advice and file that are kept one by one.
    """

    def __init__(self, limit: int = 20) -> None:
        self._limit = limit
        self._found: list[Finding] = []
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, place: str, problem: str, advice: str) -> None:
        """Take note of one."""
        kind = (place.partition(":")[0], advice)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= self._limit:
            self._found.append(Finding(place, problem, advice))

    def all(self) -> list[Finding]:
        """Everything that was found, with one line for what was left out of each kind."""
        rest = [
            Finding(file, f"{count - self._limit} more findings of this kind", advice)
            for (file, advice), count in self._counts.items()
            if count > self._limit
        ]
        return [*self._found, *rest]
