"""From a scanner's own beams to those of a contract, by the nearest return in each share of the angles."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import device

from gantry_deploy.drive_spec import LidarLayout
from gantry_deploy.errors import ContractError
from gantry_mapping.ops import namespace

Array = Any

_EDGE = 1e-6
"""Share of a beam by which rounding may put an angle beyond the end of the scan."""


class ScanPooling:
    """Pools scans of one scanner; the table of which beam belongs where is made once.

    A beam that reads nothing (positive infinity, or beyond the contract's largest range) reads the largest range, one
    that is nearer than the scanner can see (negative infinity) 0. A beam that is not a number is left out; where all
    of a pooled beam's are, it is not a number either.

    Args:
        layout: The contract's.
        beams: Of the scanner.
        angle_min_rad: Angle of its first beam.
        angle_step_rad: From one beam to the next; negative for a scanner that turns clockwise.
        like: Any floating array of the namespace and device that is worked on.

    Raises:
        ContractError: If the scanner does not cover the contract's angles; with both sides.
    """

    def __init__(
        self, layout: LidarLayout, beams: int, angle_min_rad: float, angle_step_rad: float, like: Array
    ) -> None:
        self._xp = namespace(like)
        self._range_max_m = layout.range_max_m
        angles = angle_min_rad + angle_step_rad * np.arange(beams)
        width = (layout.angle_max_rad - layout.angle_min_rad) / layout.beams
        low, high = float(angles.min()), float(angles.max())
        slack = max(width, abs(angle_step_rad)) + _EDGE
        if low > layout.angle_min_rad + slack or high < layout.angle_max_rad - slack:
            raise ContractError(
                f"The scanner covers {low:.3f} to {high:.3f} rad, the contract's scan "
                f"{layout.angle_min_rad:.3f} to {layout.angle_max_rad:.3f} rad."
            )
        place = (angles - layout.angle_min_rad) / width
        inside = (place >= -_EDGE) & (place <= layout.beams + _EDGE)
        bins = np.clip(np.floor(place).astype(np.int64), 0, layout.beams - 1)
        members = [np.flatnonzero(inside & (bins == j)) for j in range(layout.beams)]
        centres = layout.angle_min_rad + width * (np.arange(layout.beams) + 0.5)
        nearest = np.abs(angles[None, :] - centres[:, None]).argmin(axis=1)
        # A coarser scanner has no beam in some shares; the one next to it stands in.
        members = [found if found.size else nearest[j : j + 1] for j, found in enumerate(members)]
        depth = max(found.size for found in members)
        table = np.stack([np.pad(found, (0, depth - found.size), mode="edge") for found in members])
        self._table = self._xp.asarray(table.ravel(), dtype=self._xp.int64, device=device(like))
        self._shape = table.shape

    def __call__(self, ranges_m: Array) -> Array:
        """Pool scans.

        Args:
            ranges_m: Shape (B, beams of the scanner).

        Returns:
            Shape (B, beams of the contract), m, in [0, largest range].
        """
        xp = self._xp
        known = xp.where(xp.isnan(ranges_m), xp.full_like(ranges_m, float("inf")), ranges_m)
        nan = xp.astype(xp.isnan(ranges_m), ranges_m.dtype)
        rows = (ranges_m.shape[0], *self._shape)
        near = xp.min(xp.reshape(xp.take(known, self._table, axis=1), rows), axis=-1)
        blind = xp.min(xp.reshape(xp.take(nan, self._table, axis=1), rows), axis=-1) > 0.5
        return xp.where(blind, xp.full_like(near, float("nan")), xp.clip(near, 0.0, self._range_max_m))
