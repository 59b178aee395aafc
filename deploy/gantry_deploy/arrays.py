"""What the Array API standard's own functions are slow at."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

Array = Any

_NAMESPACES: dict[type, Any] = {}  # by the arrays' type; asking anew takes a robot's single row as long as the work


def limited(value: Array, low: float | None, high: float | None) -> Array:
    """Values of any shape within limits; None for no limit.

    The standard's ``clip`` checks and broadcasts its limits, which on a robot's single row costs ten times as much.
    """
    kind = type(value)
    xp = _NAMESPACES.get(kind) or _NAMESPACES.setdefault(kind, array_namespace(value))
    value = value if low is None else xp.maximum(value, low)
    return value if high is None else xp.minimum(value, high)
