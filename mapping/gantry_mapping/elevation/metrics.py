"""Metrics of a map against the true heights: error, coverage, likelihood, calibration.

Every number is over cells given by a mask; one over no cells is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gantry_mapping.elevation.ops import namespace

Array = Any


def masked_mean(values: Array, mask: Array) -> float:
    """Mean of ``values`` where ``mask``, bool, NaN for none; both of one shape."""
    xp = namespace(values)
    count = int(xp.sum(xp.astype(mask, xp.int64)))
    return _masked_sum(values, mask) / count if count else math.nan


def mae_cm(mean: Array, truth: Array, mask: Array) -> float:
    """Mean absolute error in cm of heights in m where ``mask``, bool; all of one shape."""
    return 100.0 * masked_mean(abs(mean - truth), mask)


def coverage(known: Array, mask: Array) -> float:
    """Share of the cells of ``mask`` that are ``known``, both bool and of one shape."""
    xp = namespace(known)
    return masked_mean(xp.astype(known, xp.float64), mask)


def gaussian_nll(mean: Array, variance: Array, truth: Array, mask: Array) -> float:
    """Mean negative log-likelihood in nats: ``0.5 ln(2 pi v) + (truth - mean)^2 / (2 v)``.

    ``mean`` and ``truth`` in m, ``variance`` in m^2, ``mask`` bool, all of one shape.
    """
    return masked_mean(_nll(mean, variance, truth), mask)


def within_sigma(mean: Array, variance: Array, truth: Array, mask: Array, sigmas: float = 1.0) -> float:
    """Share of cells whose truth is within ``sigmas`` standard deviations; 0.683 for 1 if the variance is right.

    ``mean`` and ``truth`` in m, ``variance`` in m^2, ``mask`` bool, all of one shape.
    """
    xp = namespace(mean)
    return masked_mean(xp.astype(_within(mean, variance, truth, sigmas), xp.float64), mask)


@dataclass(frozen=True)
class MapScores:
    """Scores over the cells of many frames."""

    cells: int
    """Cells compared."""
    mae_seen_cm: float
    """Mean absolute error where a sensor could see; a cell that the map does not know counts with its prior."""
    mae_occluded_cm: float
    """The same where it could not."""
    coverage: float
    """Share of cells that the map knows, that is with less than the prior's variance."""
    nll: float
    """Gaussian negative log-likelihood over all cells, nats; unknown ones count with the prior."""
    within_1_sigma: float
    """Share of the known cells whose truth is within one standard deviation."""
    mae_known_cm: float
    """Mean absolute error over the cells that the map knows."""


class ScoreCounter:
    """Adds scores up over frames, cell by cell.

    Args:
        prior_variance_m2: A cell with less is known.
    """

    def __init__(self, prior_variance_m2: float) -> None:
        self._prior_variance = prior_variance_m2
        self._sums: dict[str, float] = dict.fromkeys(_SUMS, 0.0)

    def add(self, mean: Array, variance: Array, truth: Array, seen: Array, mask: Array | None = None) -> None:
        """Count frames.

        Args:
            mean: Elevation, m, any shape.
            variance: Its variance, m^2.
            truth: True elevation, m; NaN where there is none.
            seen: Whether a sensor could have seen the cell, bool.
            mask: Which cells count, bool; None for all that have a truth.
        """
        xp = namespace(mean)
        counts = truth == truth if mask is None else mask & (truth == truth)
        known = counts & (variance < self._prior_variance)
        error = abs(mean - truth)
        parts = {
            "cells": (None, counts),
            "seen": (None, counts & seen),
            "known": (None, known),
            "error_seen": (error, counts & seen),
            "error": (error, counts),
            "error_known": (error, known),
            "nll": (_nll(mean, variance, truth), counts),
            "within": (None, known & _within(mean, variance, truth, 1.0)),
        }
        for name, (values, where) in parts.items():
            flags = xp.astype(where, xp.int64)
            self._sums[name] += float(xp.sum(flags)) if values is None else _masked_sum(values, where)

    def scores(self) -> MapScores:
        """The scores so far."""
        sums = self._sums
        occluded = sums["cells"] - sums["seen"]
        return MapScores(
            cells=int(sums["cells"]),
            mae_seen_cm=100.0 * _ratio(sums["error_seen"], sums["seen"]),
            mae_occluded_cm=100.0 * _ratio(sums["error"] - sums["error_seen"], occluded),
            coverage=_ratio(sums["known"], sums["cells"]),
            nll=_ratio(sums["nll"], sums["cells"]),
            within_1_sigma=_ratio(sums["within"], sums["known"]),
            mae_known_cm=100.0 * _ratio(sums["error_known"], sums["known"]),
        )


_SUMS = ("cells", "seen", "known", "error_seen", "error", "error_known", "nll", "within")


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan


def _masked_sum(values: Array, mask: Array) -> float:
    xp = namespace(values)
    wide = xp.astype(values, xp.float64)
    return float(xp.sum(xp.where(mask, wide, xp.zeros_like(wide))))


def _nll(mean: Array, variance: Array, truth: Array) -> Array:
    xp = namespace(mean)
    return 0.5 * xp.log(2.0 * math.pi * variance) + (truth - mean) ** 2 / (2.0 * variance)


def _within(mean: Array, variance: Array, truth: Array, sigmas: float) -> Array:
    return (mean - truth) ** 2 <= sigmas * sigmas * variance
