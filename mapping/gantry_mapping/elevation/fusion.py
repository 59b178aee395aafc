"""Fusion of a cell's new measurement with its estimate into one.

A fusion is elementwise over arrays of any one shape. A variance of infinity is a measurement that says nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from gantry_mapping.config import KalmanCfg, MappingCfg, WinnerTakeAllCfg
from gantry_mapping.elevation.ops import namespace
from gantry_mapping.errors import MappingError

Array = Any

FIRST_RATIO = 4.0
"""A cell that was only guessed counts as at least so many times as uncertain, in variance, as its first measurement."""
PAST_M = 0.02
"""A cell that is higher than a ray by less than this is left as it is."""
PAST_SHARE = 1e-3
"""A cell whose variance is that of ground that was looked past, to within this share of it, is such ground."""


class Fusion(Protocol):
    """Interface of a fusion for the map."""

    needs_draw: bool
    """Whether ``draw`` is used."""
    needs_slope: bool
    """Whether ``slope`` is used."""
    measured_only: bool
    """Whether only cells that hold a point may be fused, not those that a network filled in."""
    process_variance_m2_per_s: float
    """Growth rate of a cell's variance by itself."""

    def __call__(
        self,
        prior_mean: Array,
        prior_variance: Array,
        mean: Array,
        variance: Array,
        draw: Array | None = None,
        slope: Array | None = None,
    ) -> tuple[Array, Array]:
        """Fuse cell by cell; arrays of any shape, but all of the same one.

        Args:
            prior_mean: The map's heights, m.
            prior_variance: Its variance, m^2, finite and positive.
            mean: The measurement, m, finite.
            variance: Its variance, m^2, infinite for none.
            draw: Uniform in [0, 1), independent.
            slope: Steepest rise of the measured surface to a neighbour, m/m.

        Returns:
            Mean, m, and variance, m^2, after, of that shape.
        """
        ...


class WinnerTakeAll:
    """Probabilistic winner-take-all (AME-2, eq. 6-8): the measurement replaces the cell or it does not.

    Nothing is averaged, so edges stay sharp, and a cell never becomes surer than the surest estimate of it: what stays
    hidden stays uncertain however often it is guessed.
    """

    needs_draw = True
    measured_only = False
    process_variance_m2_per_s = 0.0

    def __init__(self, cfg: WinnerTakeAllCfg | None = None) -> None:
        self.cfg = cfg or WinnerTakeAllCfg()
        self.needs_slope = self.cfg.anti_erase

    def __call__(
        self,
        prior_mean: Array,
        prior_variance: Array,
        mean: Array,
        variance: Array,
        draw: Array | None = None,
        slope: Array | None = None,
    ) -> tuple[Array, Array]:
        """See :class:`Fusion`; ``draw`` is needed, ``slope`` with the guard against erasing."""
        if draw is None or (slope is None and self.needs_slope):
            raise MappingError("Winner-take-all got no draw, or no slope for its guard; both are expected.")
        xp = namespace(prior_mean)
        cautious = xp.maximum(variance, self.cfg.least_ratio * prior_variance)  # eq. 6: at most halve, or quarter
        valid = (cautious < self.cfg.gate_ratio * prior_variance) | (cautious < self.cfg.gate_variance_m2)  # eq. 7
        # eq. 8: p = (1/R) / (1/R + 1/P) = P / (P + R), which is 0 for a measurement that says nothing
        wins = valid & (draw < prior_variance / (prior_variance + cautious))
        if self.cfg.anti_erase:
            wins = wins & ~self._erases(prior_mean, prior_variance, mean, slope)
        return xp.where(wins, mean, prior_mean), xp.where(wins, cautious, prior_variance)

    def _erases(self, prior_mean: Array, prior_variance: Array, mean: Array, slope: Array) -> Array:
        """Near an edge, a slanted view smears the ground up the wall: steep, lower, over a surface known well."""
        drops = prior_mean - mean >= self.cfg.anti_erase_drop_m
        confident = prior_variance < self.cfg.anti_erase_std_m**2
        return drops & confident & (slope > self.cfg.anti_erase_slope)


class Kalman:
    """Classical elevation mapping: a one-dimensional Kalman filter per cell with a gate on the Mahalanobis distance."""

    needs_draw = False
    needs_slope = False
    measured_only = True

    def __init__(self, cfg: KalmanCfg | None = None) -> None:
        self.cfg = cfg or KalmanCfg()
        self.process_variance_m2_per_s = self.cfg.process_variance_m2_per_s

    def __call__(
        self,
        prior_mean: Array,
        prior_variance: Array,
        mean: Array,
        variance: Array,
        draw: Array | None = None,
        slope: Array | None = None,
    ) -> tuple[Array, Array]:
        """See :class:`Fusion`; ``draw`` and ``slope`` are ignored."""
        xp = namespace(prior_mean)
        seen = variance < float("inf")
        variance = xp.where(seen, variance, 1.0)
        total = prior_variance + variance
        innovation = mean - prior_mean
        outlier = innovation * innovation > self.cfg.gate_sigma**2 * total
        gain = prior_variance / total
        # gain * R is (1 - gain) * P without the difference, which float32 has no digits for where P is large.
        fused = xp.clip(gain * variance, self.cfg.variance_floor_m2, None)
        new_mean = xp.where(outlier, prior_mean, prior_mean + gain * innovation)
        new_variance = xp.where(outlier, prior_variance + self.cfg.outlier_variance_m2, fused)
        return xp.where(seen, new_mean, prior_mean), xp.where(seen, new_variance, prior_variance)


def fusion_variances(prior_variance: Array, variance: Array, looked: Array, known: Array) -> tuple[Array, Array]:
    """Variances with which measurements and guesses meet: a network's guess of what is hidden, however sure, never
    replaces what was measured, and a first measurement counts more than any number of guesses. All of one shape.

    Args:
        prior_variance: The map's variance, m^2.
        variance: Of what comes in, m^2; infinite for nothing.
        looked: Whether that was measured, or else guessed; bool.
        known: Whether the map's was measured; bool.

    Returns:
        The prior's variance and the newcomer's, m^2.
    """
    xp = namespace(prior_variance)
    first = looked & ~known
    prior_variance = xp.where(first, xp.maximum(prior_variance, FIRST_RATIO * variance), prior_variance)
    return prior_variance, xp.where(known & ~looked, float("inf"), variance)


def lowered(mean: Array, variance: Array, here: Array, bound: Array, std_m: float, known: Array) -> tuple[Array, Array]:
    """A map's cells that are higher than a ray that passed over them, lowered; what was only guessed below a ray is as
    sure as that, lest it keep out what is measured later. What was measured comes down to the ray and no further. All
    of one shape.

    Args:
        mean: Of the map, m.
        variance: Of the map, m^2.
        here: What was estimated of the cell now, m: it may lie deeper than the ray. It counts where no more is known of
            the cell than that it was looked past, from nearer perhaps than before.
        bound: What the ground lies below, m; infinity where unknown.
        std_m: Standard deviation of the result.
        known: Whether the map's was measured; bool.

    Returns:
        Mean, m, and variance, m^2, after.
    """
    xp = namespace(mean)
    looked, past = xp.isfinite(bound), std_m * std_m
    guessed = ~known | (xp.abs(variance - past) < PAST_SHARE * past)
    lowest = xp.where(guessed, xp.minimum(bound, here), bound)
    low = mean > xp.where(looked, lowest, bound) + PAST_M
    unsure = low | (looked & ~known)
    return xp.where(low, lowest, mean), xp.where(unsure, past, variance)


def make_fusion(cfg: MappingCfg) -> WinnerTakeAll | Kalman:
    """The fusion that a configuration asks for."""
    return WinnerTakeAll(cfg.wta) if cfg.fusion == "wta" else Kalman(cfg.kalman)


def steepest_slope(height: Array, resolution_m: float) -> Array:
    """Steepest rise or fall (N, rows, cols) to a neighbour along a row or column, m/m, of heights of that shape, m."""
    xp = namespace(height)
    along_x = abs(height[:, 1:, :] - height[:, :-1, :]) * (1.0 / resolution_m)
    along_y = abs(height[:, :, 1:] - height[:, :, :-1]) * (1.0 / resolution_m)
    edge_x, edge_y = xp.zeros_like(height[:, :1, :]), xp.zeros_like(height[:, :, :1])
    return xp.maximum(
        xp.maximum(xp.concat((along_x, edge_x), axis=1), xp.concat((edge_x, along_x), axis=1)),
        xp.maximum(xp.concat((along_y, edge_y), axis=2), xp.concat((edge_y, along_y), axis=2)),
    )
