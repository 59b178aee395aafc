"""Ranges of actions and statistics of states, learned from data once and saved with the policy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_hardware.errors import GantryError

MIN_ACTION_RANGE = 0.1
"""A number of an action that hardly varies in the data is given this range, in the action's own units."""
MIN_STATE_STD = 0.1
"""A number of a state that hardly varies is divided by no less, in the state's own units."""


class ActionScaler(nn.Module):
    """Maps the range of the data to [-1, 1], widened so that a correction of a base can leave it.

    Scaled actions of the data lie within about 1 / (1 + action_scale).

    Args:
        action_size: n. A fresh scaler changes nothing but clamps to [-1, 1].
    """

    center: Tensor
    half_range: Tensor

    def __init__(self, action_size: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(action_size))
        self.register_buffer("half_range", torch.ones(action_size))

    def fit(self, action: Tensor, action_scale: float, limit: float | None = 1.0) -> None:
        """Take the range of the data.

        Args:
            action: ``(M, n)`` in their own units.
            action_scale: Largest correction, which the range is widened by.
            limit: What the environment takes on either side of zero, in the action's own units; the widened range
                ends there, since beyond it actions would make no difference. None for no such limit.

        Raises:
            GantryError: If there is no data, or the data lies outside the limit.
        """
        if not action.numel():
            raise GantryError("There are no actions to take the range of; expected demonstrations with some steps.")
        low, high = action.amin(0), action.amax(0)
        if limit is not None and (bool((low < -limit - 1e-4).any()) or bool((high > limit + 1e-4).any())):
            raise GantryError(
                f"Demonstrated actions go from {low.min():.3g} to {high.max():.3g}, expected -{limit} to {limit}."
            )
        center, half = (high + low) / 2, (high - low).clamp(min=MIN_ACTION_RANGE) / 2 * (1.0 + action_scale)
        low, high = center - half, center + half
        if limit is not None:
            low, high = low.clamp(min=-limit), high.clamp(max=limit)
        self.center.copy_((high + low) / 2)
        self.half_range.copy_((high - low) / 2)

    def scale(self, action: Tensor) -> Tensor:
        """``(..., n)`` in [-1, 1] of actions in their own units; what is out of range is clamped."""
        return ((action - self.center) / self.half_range).clamp(-1.0, 1.0)

    def unscale(self, action: Tensor) -> Tensor:
        """``(..., n)`` in their own units of actions in [-1, 1], which are clamped to it."""
        return self.center + self.half_range * action.clamp(-1.0, 1.0)


class StateScaler(nn.Module):
    """Subtracts the mean and divides by the standard deviation of the data.

    Args:
        state_size: Numbers of a state. A fresh scaler changes nothing.
        tokens: Last numbers of a state that are tokens of words, which stay as they are.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, state_size: int, tokens: int = 0) -> None:
        super().__init__()
        self._numbers = state_size - tokens
        self.register_buffer("mean", torch.zeros(state_size))
        self.register_buffer("std", torch.ones(state_size))

    def fit(self, state: Tensor) -> None:
        """Take the statistics of ``(M, s)`` states.

        Raises:
            GantryError: If there is none.
        """
        if not state.numel():
            raise GantryError("There are no states to take statistics of; expected some steps.")
        numbers = state[:, : self._numbers]
        self.mean[: self._numbers] = numbers.mean(0)
        self.std[: self._numbers] = numbers.std(0, unbiased=False).clamp(min=MIN_STATE_STD)

    def forward(self, state: Tensor) -> Tensor:
        """``(..., s)`` standardised."""
        return (state - self.mean) / self.std
