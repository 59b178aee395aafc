"""Faster versions of functions at which the Array API standard's own are slow."""

from __future__ import annotations

from typing import Any

from gantry_mapping.elevation.ops import namespace

Array = Any


def limited(value: Array, low: float | None, high: float | None) -> Array:
    """Values of any shape and unit within limits; None for no limit.

    The standard's ``clip`` checks and broadcasts its limits, which on a robot's single row costs ten times as much.
    """
    if (clamp := getattr(value, "clamp", None)) is not None:
        return clamp(low, high)  # Torch's own: the Array API's ``maximum`` would copy the limit to the device first.
    xp = namespace(value)
    value = value if low is None else xp.maximum(value, low)
    return value if high is None else xp.minimum(value, high)
