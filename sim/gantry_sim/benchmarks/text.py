"""Scores, tables and lists of numbers as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gantry_deploy.cli.command import UsageError

PEERS_FILE = "peers.json"
"""Rows of scripts/measure/peers/compare.py, by peer, in the output folder of `gantry bench page`."""


def interval_text(score: Mapping[str, float], unit: float = 1.0, digits: int = 1) -> str:
    """A score with its interval: ``mean [low, high]``, each times ``unit``."""
    mean, low, high = (unit * score[name] for name in ("mean", "low", "high"))
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equally many cells as lines with aligned columns, two blanks apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def of_seeds(values: Sequence[float | None], unit: float = 1.0, digits: int = 0) -> str:
    """Values of seeds in units of ``unit``, with strokes between them; ``-`` where there is none."""
    return "/".join("-" if value is None else f"{value / unit:.{digits}f}" for value in values)


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers of an option, separated by commas.

    Raises:
        UsageError: If one is none.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text}: expected whole numbers, for example 1,2,3.") from None
