"""Guessing the height of single cells from their neighbours, when a map is looked at; the map itself never changes."""

from __future__ import annotations

from typing import Any

from gantry_mapping.elevation.ops import namespace

Array = Any

MIN_NEIGHBOURS = 3
"""Fewer neighbours that are surer than the cell say nothing about it."""
STD_RATIO = 0.5
"""A neighbour is surer if its standard deviation is below this times the cell's."""


def infill(elevation: Array, variance: Array) -> Array:
    """Give a cell that is surrounded by surer ones their mean, weighted by precision; its variance stays its own.

    Args:
        elevation: Shape (N, rows, cols), m.
        variance: Shape (N, rows, cols), m^2.

    Returns:
        Elevation (N, rows, cols), m.
    """
    xp = namespace(elevation)
    count, total, weight = xp.zeros_like(elevation), xp.zeros_like(elevation), xp.zeros_like(elevation)
    height, var = _padded(elevation, 0.0), _padded(variance, float("inf"))
    rows, cols = elevation.shape[1:]
    for i in range(3):
        for j in range(3):
            if (i, j) == (1, 1):
                continue
            neighbour = var[:, i : i + rows, j : j + cols]
            surer = xp.astype(neighbour < STD_RATIO**2 * variance, elevation.dtype)
            precision = surer / neighbour
            count, weight = count + surer, weight + precision
            total = total + precision * height[:, i : i + rows, j : j + cols]
    filled = total / xp.where(count >= MIN_NEIGHBOURS, weight, 1.0)
    return xp.where(count >= MIN_NEIGHBOURS, filled, elevation)


def _padded(values: Array, value: float) -> Array:
    """A frame of ``value``, one cell wide, around (N, rows, cols)."""
    xp = namespace(values)
    edge = xp.full_like(values[:, :1, :], value)
    values = xp.concat((edge, values, edge), axis=1)
    edge = xp.full_like(values[:, :, :1], value)
    return xp.concat((edge, values, edge), axis=2)
