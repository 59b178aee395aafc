"""Success and return of the episodes that a training finished last, exploration included."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

RECENT_EPISODES = 100
"""Finished episodes that the curve of a training averages."""


class EpisodeTally:
    """The last finished episodes: success at some step, and sum of rewards, not discounted."""

    def __init__(self) -> None:
        self._succeeded: deque[bool] = deque(maxlen=RECENT_EPISODES)
        self._returns: deque[float] = deque(maxlen=RECENT_EPISODES)

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

    def state(self) -> dict[str, Any]:
        """Both lists, as a checkpoint keeps them."""
        return {"recent": list(self._succeeded), "returns": list(self._returns)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what was saved; older checkpoints have no returns."""
        self._succeeded = deque(state["recent"], maxlen=RECENT_EPISODES)
        self._returns = deque(state.get("returns", []), maxlen=RECENT_EPISODES)
