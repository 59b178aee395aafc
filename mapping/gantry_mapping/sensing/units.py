"""Units of depth: images whose numbers cannot be metres are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_mapping.errors import MappingError

FARTHEST_M = 200.0
"""A depth image in metres of which three quarters are farther than this is in another unit."""
NEAREST_M = 0.02
"""... and one of which three quarters are nearer than this: no depth camera measures so near."""


def require_metres(depth: NDArray[np.floating[Any]], scale: str = "m") -> None:
    """Refuse depths (height, width) that cannot be metres; zero, NaN and Inf are no measurements.

    Args:
        depth: The depths.
        scale: Words for what they are said to be, for the message.

    Raises:
        MappingError: With the numbers, and the unit that they probably are in.
    """
    flat = depth.ravel()
    if flat.size > 20_000:  # A sample tells the unit as well.
        flat = flat[:: flat.size // 10_000]
    with np.errstate(invalid="ignore"):
        seen = flat[np.isfinite(flat) & (flat > 0.0)]
    if not seen.size:
        return
    low, high = np.quantile(seen, (0.25, 0.75), method="lower")
    if low > FARTHEST_M:
        raise MappingError(
            f"three quarters of the depths are {low:.4g} or more, expected {scale}; they may be millimetres"
        )
    if high < NEAREST_M:
        raise MappingError(
            f"three quarters of the depths are {high:.3g} or less, expected {scale}; a factor of 0.001 may have been "
            "applied twice"
        )
