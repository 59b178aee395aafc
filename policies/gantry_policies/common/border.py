"""Numbers that environments give, judged before a learner takes them in."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError


class NotFiniteError(GantryError):
    """An environment gave a number that is not finite."""


def require_finite(parts: Iterable[tuple[str, Tensor]], when: str) -> None:
    """Refuse numbers of N environments that are not finite, before they reach statistics, buffers or networks.

    Args:
        parts: What each is, for example ``a reward``, and its values, ``(N, ...)``.
        when: The step, for the message.

    Raises:
        NotFiniteError: With the environment, the number and its place.
    """
    floats = [(what, values) for what, values in parts if values.is_floating_point()]
    # Sums tell of almost everything, at a fraction of the cost of looking at every number; they are looked at together,
    # since every look waits for a GPU.
    if not floats or torch.isfinite(torch.stack([values.sum() for _, values in floats])).all():
        return
    for what, values in floats:
        wrong = (~torch.isfinite(values)).nonzero()
        if not len(wrong):
            continue
        env, *place = wrong[0].tolist()
        value = float(values[tuple(wrong[0].tolist())])
        where = f" at place {', '.join(map(str, place))}" if place else ""
        count = len({int(row[0]) for row in wrong})
        others = f" (and {count - 1} other environments)" if count > 1 else ""
        raise NotFiniteError(f"Environment {env}{others} gave {what} of {value}{where} in {when}, expected a number.")
