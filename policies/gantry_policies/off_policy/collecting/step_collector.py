"""Source of an off-policy training's steps: environments of this process, a fleet of actors, or a session's actors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.off_policy.collecting.tally import EpisodeTally


class StepCollector(ABC):
    """Stores steps of the environments, and counts them.

    Args:
        episodes: Tally of finished episodes; None for a new one.
    """

    def __init__(self, episodes: EpisodeTally | None = None) -> None:
        self.env_steps = 0
        """Steps of all environments together, those before a continuation included."""
        self.episodes = EpisodeTally() if episodes is None else episodes
        """Episodes that were finished last."""

    @property
    def own_env(self) -> BatchedEnv | None:
        """Environments of this process that it steps; None where steps come from elsewhere."""
        return None

    def reset(self) -> None:  # noqa: B027
        """Begin new episodes in environments of this process; elsewhere actors begin their own."""

    @abstractmethod
    def step(self, warmup: str | None = None, noise: float = 0.0) -> None:
        """Store one step of every environment, or what has come from elsewhere.

        Args:
            warmup: In a warm-up, the policy that acts, a name of :data:`~gantry_policies.off_policy.config.WARMUPS`;
                None for the learner, exploring.
            noise: Half-width of the noise around the base's action in a warm-up by it, in scaled units.
        """

    def state(self, *, inside: bool = True) -> dict[str, Any]:
        """Counters for a continuation, and where that is possible the state inside the episodes.

        Args:
            inside: Whether to ask the environments for their state; not where they have broken down.
        """
        del inside
        return {"env_steps": self.env_steps, **self.episodes.state(), "inside": None}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put it back."""
        self.env_steps = state["env_steps"]
        self.episodes.restore(state)
