"""Scores and tables as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def interval_text(score: Mapping[str, float], unit: float = 1.0, digits: int = 1) -> str:
    """A score with its interval: ``mean [low, high]``, each times ``unit``."""
    mean, low, high = (unit * score[name] for name in ("mean", "low", "high"))
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equally many cells as lines with aligned columns, two blanks apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
