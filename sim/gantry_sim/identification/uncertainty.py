"""Least squares in groups that share a few parameters, and intervals that allow for residuals that are not white."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

CONFIDENCE_95 = 1.96
"""Half width of a 95 % interval in standard deviations."""
SMALL_SAMPLE = 1.05
"""Factor on standard deviations, as they are themselves estimated from some dozens of blocks."""


def noise_level(values: FloatArray) -> FloatArray:
    """Standard deviation (k,) of what is white in series (T, k), in their units: third differences, by their median."""
    third = np.abs(np.diff(values, n=3, axis=0))
    # The squares of the coefficients 1, 3, 3, 1 add up to 20.
    return np.median(third, axis=0) / 0.6745 / np.sqrt(20.0)


@dataclass
class NormalEquations:
    """Sums of a least-squares problem with p parameters, over rows that are added group by group."""

    size: int
    """Number of parameters, p."""
    num_blocks: int
    """Number of blocks of time, within which residuals may hang together."""
    matrix: FloatArray = field(init=False)
    """Shape (p, p), J' J."""
    gradient: FloatArray = field(init=False)
    """Shape (p,), J' r."""
    scores: FloatArray = field(init=False)
    """Shape (blocks, p), J' r of every block."""
    cost: float = 0.0
    """Sum of squares."""

    def __post_init__(self) -> None:
        self.matrix, self.gradient = np.zeros((self.size, self.size)), np.zeros(self.size)
        self.scores = np.zeros((self.num_blocks, self.size))

    def add(self, residual: FloatArray, jacobian: FloatArray, columns: IndexArray, block: IndexArray) -> None:
        """Add rows.

        Args:
            residual: Shape (m,), in units of its noise.
            jacobian: Shape (m, c), derivatives of the residual.
            columns: Shape (c,), parameters that the rows depend on.
            block: Shape (m,), block of time of every row, ascending.
        """
        self.matrix[np.ix_(columns, columns)] += jacobian.T @ jacobian
        starts = np.flatnonzero(np.concatenate(([True], np.diff(block) != 0)))
        sums = np.add.reduceat(jacobian * residual[:, None], starts, axis=0)
        self.scores[np.ix_(block[starts], columns)] += sums
        self.gradient[columns] += sums.sum(axis=0)
        self.cost += float(residual @ residual)

    def deviations(self, prior: FloatArray) -> FloatArray:
        """Standard deviations (p,) of the parameters, each in its own unit.

        The larger one of two: that of white residuals, and that of the sandwich of the blocks' scores, which holds for
        residuals that hang together within a block or are larger in some of them.

        Args:
            prior: Shape (p,), deviation that each parameter has without any data.
        """
        inverse = np.linalg.inv(self.matrix + np.diag(prior**-2.0))
        white = np.diag(inverse)
        spread = self.scores - self.scores.mean(axis=0)
        used = max(2, int(np.any(self.scores != 0.0, axis=1).sum()))
        meat = spread.T @ spread * (used / (used - 1.0))
        robust = np.diag(inverse @ meat @ inverse)
        return SMALL_SAMPLE * np.sqrt(np.maximum(white, robust))


def block_mean(values: FloatArray, blocks: IndexArray) -> tuple[float, float]:
    """Mean of values (m,) and its standard deviation, both in the values' unit, from the scatter of blocks' means.

    Args:
        values: Shape (m,), in any unit.
        blocks: Shape (m,), block of every value; values of one block may hang together.
    """
    _, place = np.unique(blocks, return_inverse=True)
    counts = np.bincount(place).astype(np.float64)
    sums = np.bincount(place, weights=values - values.mean())
    k = len(counts)
    if k < 2:
        return float(values.mean()), float("inf")
    return float(values.mean()), float(np.sqrt(k / (k - 1.0) * np.sum(sums**2)) / counts.sum())
