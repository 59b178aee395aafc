"""From a scanner's own beams to those of a contract, by the nearest return in each share of the angles."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import device

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_deploy.errors import ContractError
from gantry_mapping.elevation.ops import namespace

Array = Any

_EDGE = 1e-6
"""Share of a beam by which rounding may put an angle beyond the end of the scan."""


GAP_RAD = 0.2
"""A hole in a scan up to this wide takes the nearer of its two edges, unless another width is set."""
_TURN = 2.0 * np.pi
_LARGEST_TURN = 1.05 * _TURN
"""A scanner that covers more than this tells its angles in another unit; a few overlap by some beams."""


class ScanPooling:
    """Pools scans of one scanner; the table of which beam belongs where is made once.

    A beam that reads nothing (positive infinity, or beyond the contract's largest range) reads the largest range, one
    that is nearer than the scanner can see (negative infinity) 0. A beam that is not a number is left out; where all
    of a pooled beam's are, it is not a number either. Angles count modulo a turn.

    Args:
        layout: The contract's.
        beams: Of the scanner.
        angle_min_rad: Angle of its first beam.
        angle_step_rad: From one beam to the next; negative for a scanner that turns clockwise.
        like: Any floating array of the namespace and device that is worked on.

    Raises:
        ContractError: If the scanner does not cover the contract's angles, with both sides; or if its angles cannot be
            radians.
    """

    def __init__(
        self, layout: LidarLayout, beams: int, angle_min_rad: float, angle_step_rad: float, like: Array
    ) -> None:
        self._xp = namespace(like)
        self._range_max_m = layout.range_max_m
        angles = _near(layout, angle_min_rad + angle_step_rad * np.arange(beams), angle_min_rad, angle_step_rad)
        width = (layout.angle_max_rad - layout.angle_min_rad) / layout.beams
        order = np.argsort(angles, kind="stable")
        _require_cover(layout, angles[order], angle_min_rad, angle_step_rad, max(width, abs(angle_step_rad)) + _EDGE)
        place = (angles - layout.angle_min_rad) / width
        inside = (place >= -_EDGE) & (place <= layout.beams + _EDGE)
        bins = np.clip(np.floor(place).astype(np.int64), 0, layout.beams - 1)
        members: list[list[int]] = [[] for _ in range(layout.beams)]
        for beam in np.flatnonzero(inside).tolist():
            members[bins[beam]].append(beam)
        centres = layout.angle_min_rad + width * (np.arange(layout.beams) + 0.5)
        after = np.clip(np.searchsorted(angles[order], centres), 1, max(1, beams - 1))
        near = np.stack([order[after - 1], order[np.minimum(after, beams - 1)]])
        nearest = near[np.abs(angles[near] - centres).argmin(axis=0), np.arange(layout.beams)].tolist()
        # A coarser scanner has no beam in some shares; the one next to it stands in.
        members = [found or [nearest[j]] for j, found in enumerate(members)]
        depth = max(map(len, members))
        table = np.stack([np.pad(found, (0, depth - len(found)), mode="edge") for found in members])
        self._table = self._xp.asarray(table.ravel(), dtype=self._xp.int64, device=device(like))
        self._shape = table.shape

    def __call__(self, ranges_m: Array) -> Array:
        """Pool scans.

        Args:
            ranges_m: Shape (B, beams), those of the scanner.

        Returns:
            Shape (B, beams), those of the contract, m, in [0, largest range].
        """
        xp = self._xp
        known = xp.where(xp.isnan(ranges_m), xp.full_like(ranges_m, float("inf")), ranges_m)
        nan = xp.astype(xp.isnan(ranges_m), ranges_m.dtype)
        rows = (ranges_m.shape[0], *self._shape)
        near = xp.min(xp.reshape(xp.take(known, self._table, axis=1), rows), axis=-1)
        blind = xp.min(xp.reshape(xp.take(nan, self._table, axis=1), rows), axis=-1) > 0.5
        return xp.where(blind, xp.full_like(near, float("nan")), xp.clip(near, 0.0, self._range_max_m))


def bridged(layout: LidarLayout, ranges_m: np.ndarray, gap_rad: float) -> tuple[np.ndarray, float]:
    """A pooled scan whose small holes are closed by the nearer of their two edges.

    Args:
        layout: The contract's.
        ranges_m: Shape (beams,), those of the contract; not a number where nothing was read.
        gap_rad: Wider holes stay.

    Returns:
        The scan, and the width of its widest hole, rad, before.
    """
    holes, count = np.isnan(ranges_m), len(ranges_m)
    if not holes.any() or holes.all():
        return ranges_m, _TURN * bool(holes.all())
    span = layout.angle_max_rad - layout.angle_min_rad
    width, ring = span / count, span > _TURN - 1e-3
    # A scan of a whole turn has no ends; it is looked at from its first reading on.
    start = int(np.flatnonzero(~holes)[0]) if ring else 0
    turned = np.roll(ranges_m, -start)
    edges = np.diff(np.concatenate(([False], np.isnan(turned), [False])).astype(np.int8))
    found, widest = turned.copy(), 0.0
    for first, end in zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True):
        widest = max(widest, (end - first) * width)
        if (end - first) * width <= gap_rad + _EDGE:
            sides = [turned[first - 1]] if first else []
            sides += [turned[end % count]] if end < count or ring else []
            found[first:end] = min(sides)
    return np.roll(found, start), widest


def _near(layout: LidarLayout, angles: np.ndarray, angle_min_rad: float, angle_step_rad: float) -> np.ndarray:
    """The angles of a scanner, each within half a turn of the contract's middle.

    Raises:
        ContractError: If they cannot be radians.
    """
    covered = abs(angle_step_rad) * max(0, len(angles) - 1)
    if not (np.isfinite(angles).all() and covered <= _LARGEST_TURN and abs(angle_min_rad) <= _LARGEST_TURN):
        raise ContractError(
            f"The scanner's {len(angles)} beams start at {angle_min_rad:g} and lie {angle_step_rad:g} apart, together "
            f"{covered:g}: more than a turn in rad. Are they degrees?"
        )
    middle = 0.5 * (layout.angle_min_rad + layout.angle_max_rad)
    return angles - _TURN * np.round((angles - middle) / _TURN)


def _require_cover(
    layout: LidarLayout, angles: np.ndarray, angle_min_rad: float, angle_step_rad: float, slack: float
) -> None:
    """Refuse a scanner whose sorted angles leave out some of the contract's.

    Raises:
        ContractError: With both sides.
    """
    low, high = layout.angle_min_rad, layout.angle_max_rad
    # Across the seam behind, the last beam is the first one's neighbour.
    round_about = np.concatenate(([angles[-1] - _TURN], angles, [angles[0] + _TURN]))
    starts, ends = round_about[:-1], round_about[1:]
    left_out = np.minimum(ends, high) - np.maximum(starts, low)
    # At an end of the contract's angles half a hole is missing.
    allowed = np.where((starts < low) | (ends > high), slack, max(abs(angle_step_rad) + _EDGE, slack))
    if (left_out > allowed).any():
        first, last = sorted((angle_min_rad, angle_min_rad + angle_step_rad * (len(angles) - 1)))
        worst = int((left_out - allowed).argmax())
        hole = max(starts[worst], low), min(ends[worst], high)
        raise ContractError(
            f"The scanner covers {first:.3f} to {last:.3f} rad, the contract's scan {low:.3f} to {high:.3f} rad: "
            f"{hole[0]:.3f} to {hole[1]:.3f} rad are left out."
        )
