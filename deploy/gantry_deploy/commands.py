"""What an operator asks for, made into what a policy was trained to follow (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from gantry_deploy.contract import CommandSpec

Array = Any


def shape_command(spec: CommandSpec, requested: Array, previous: Array, dt_s: float) -> Array:
    """Limit a command to the trained range and to its rate of change.

    Args:
        spec: Ranges and rates.
        requested: Shape (N, c).
        previous: Shape (N, c), the last shaped command.
        dt_s: Time since ``previous``.

    Returns:
        Shape (N, c).
    """
    xp = array_namespace(requested)

    def row(values: tuple[float, ...]) -> Array:
        return xp.asarray([values], dtype=requested.dtype, device=device(requested))

    shaped = xp.minimum(xp.maximum(requested, row(spec.lower)), row(spec.upper))
    if any(rate > 0 for rate in spec.max_rate):
        step = row(tuple(rate * dt_s if rate > 0 else float("inf") for rate in spec.max_rate))
        shaped = previous + xp.minimum(xp.maximum(shaped - previous, -step), step)
    return shaped
