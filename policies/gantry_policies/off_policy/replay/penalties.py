"""Penalties of executed gripper commands, for a gripper's critic alone (HIL-SERL, arXiv 2410.21845)."""

from __future__ import annotations

import torch
from torch import Tensor

SWITCH = 0.5
"""A gripper's place, the last number of an action, that is farther from zero opens or closes it."""


class GripperPenalties:
    """Remembers what each gripper was told last.

    Args:
        num_envs: N.
        amount: Penalty of a command that opens or closes a gripper, at most 0.
        device: Of the actions.
    """

    def __init__(self, num_envs: int, amount: float, device: str = "cpu") -> None:
        self.amount = amount
        self._last = torch.zeros(num_envs, device=device)
        """``(N,)``: -1 closed, 1 opened, 0 not told yet."""

    def reset(self, rows: Tensor | None = None) -> None:
        """Episodes begin, where ``(N,)`` bool says so, or everywhere."""
        self._last = torch.zeros_like(self._last) if rows is None else torch.where(rows, 0.0, self._last)

    def of(self, action: Tensor) -> Tensor:
        """Penalties ``(N,)`` of executed actions ``(N, n)`` in the environment's range."""
        told = torch.where(action[:, -1].abs() > SWITCH, action[:, -1].sign(), self._last)
        switched = (self._last != 0.0) & (told != self._last)
        self._last = told
        return self.amount * switched


def episode_penalties(action: Tensor, amount: float) -> Tensor:
    """Penalties ``(T,)`` of an episode's executed actions ``(T, n)`` in the environment's range."""
    gripper = GripperPenalties(1, amount, str(action.device))
    return torch.cat([gripper.of(row[None]) for row in action])
