"""Persons that correct batches of environments, and the amount of their help."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import torch
from torch import Tensor

from gantry_policies.common.batched_env import Observation

RECENT_EPISODES = 20
"""Finished episodes over which rates are told."""


class Person(Protocol):
    """A person, or a script in place of one, beside N environments."""

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments ``(m,)`` or in all."""
        ...

    def decide(self, obs: Observation, policy_action: Tensor) -> tuple[Tensor, Tensor]:
        """Look at a step before it is taken.

        Args:
            obs: ``(N, ...)`` by key.
            policy_action: ``(N, n)`` in the environment's range: what the policy wants.

        Returns:
            ``(N,)`` bool, where the person acts, and ``(N, n)`` actions in the environment's range [-1, 1], of which
            those rows count.
        """
        ...


class HelpTally:
    """Counts of a training with a person.

    Args:
        num_envs: N.
    """

    def __init__(self, num_envs: int) -> None:
        self.person_steps = 0
        """Steps in which a person acted."""
        self.corrections = 0
        """Times that a person took over."""
        self._acted = torch.zeros(num_envs, dtype=torch.bool)
        self._helped, self._steps = torch.zeros(num_envs, dtype=torch.int64), torch.zeros(num_envs, dtype=torch.int64)
        self._recent: deque[tuple[int, int, bool]] = deque(maxlen=RECENT_EPISODES)

    @property
    def intervention_rate(self) -> float:
        """Share of the steps of recent episodes in which a person acted; 0 before any."""
        steps = sum(count for _, count, _ in self._recent)
        return sum(helped for helped, _, _ in self._recent) / steps if steps else 0.0

    @property
    def alone_rate(self) -> float:
        """Share of recent episodes that succeeded without any help; 0 before any."""
        return sum(won and not helped for helped, _, won in self._recent) / max(1, len(self._recent))

    def add(self, acted: Tensor, ended: Tensor, won: Tensor) -> None:
        """Count a step of every environment: where a person acted, which episodes ended, which of those succeeded;
        ``(N,)`` bool each."""
        acted, ended, won = acted.cpu(), ended.cpu(), won.cpu()
        self.person_steps += int(acted.sum())
        self.corrections += int((acted & ~self._acted).sum())
        self._acted = acted & ~ended
        self._helped += acted
        self._steps += 1
        for index in ended.nonzero().squeeze(1).tolist():
            self._recent.append((int(self._helped[index]), int(self._steps[index]), bool(won[index])))
            self._helped[index], self._steps[index] = 0, 0

    def metrics(self, dt_s: float) -> dict[str, float]:
        """Numbers for the log, of steps of ``dt_s`` s."""
        return {
            "person_s": self.person_steps * dt_s,
            "corrections": float(self.corrections),
            "intervention_rate": self.intervention_rate,
            "success_alone": self.alone_rate,
        }

    def reset(self) -> None:
        """Episodes begin everywhere; unfinished ones are not counted among the recent."""
        self._acted.zero_()
        self._helped.zero_()
        self._steps.zero_()
