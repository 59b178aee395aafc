"""Success and return of the episodes that a training finished last, exploration included."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

RECENT_EPISODES = 100
"""Finished episodes that the curve of a training averages."""


class EpisodeTally:
    """The last finished episodes: success at some step, and sum of rewards, not discounted.

    Args:
        limit: Number of episodes that are kept; None for all.
    """

    def __init__(self, limit: int | None = RECENT_EPISODES) -> None:
        self._succeeded: deque[bool] = deque(maxlen=limit)
        self._returns: deque[float] = deque(maxlen=limit)

    def add(self, succeeded: bool, earned: float) -> None:
        """Count a finished episode; ``earned`` is its sum of rewards."""
        self._succeeded.append(succeeded)
        self._returns.append(earned)

    @property
    def success_rate(self) -> float | None:
        """Share of them that succeeded; None before any."""
        return sum(self._succeeded) / len(self._succeeded) if self._succeeded else None

    @property
    def mean_return(self) -> float:
        """Mean sum of rewards; 0 before any."""
        return sum(self._returns) / len(self._returns) if self._returns else 0.0

    def take_all(self) -> list[tuple[bool, float]]:
        """Success and sum of rewards of each, which are forgotten here."""
        found = list(zip(self._succeeded, self._returns, strict=True))
        self._succeeded.clear()
        self._returns.clear()
        return found

    def state(self) -> dict[str, Any]:
        """Both lists, as a checkpoint keeps them."""
        return {"recent": list(self._succeeded), "returns": list(self._returns)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what was saved; older checkpoints have no returns."""
        self._succeeded = deque(state["recent"], maxlen=self._succeeded.maxlen)
        self._returns = deque(state.get("returns", []), maxlen=self._returns.maxlen)
