"""Success of a policy over whole episodes, without favouring short ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_policies.common.batched_env import EnvStep, Observation, BatchedEnv


@dataclass(frozen=True)
class ArmEpisode:
    """One finished episode."""

    env: int
    """Environment."""
    success_once: bool
    """It succeeded at some step."""
    success_at_end: bool
    """It succeeded at its last step."""
    steps: int
    """Control steps."""
    steps_to_success: int | None
    """Control steps up to the first success; None if there was none."""
    total_reward: float
    """Sum of the rewards."""


@dataclass(frozen=True)
class ArmScores:
    """Scores over a number of episodes."""

    episodes: int
    """Episodes."""
    success_once: float
    """Share that succeeded at some step."""
    success_at_end: float
    """Share that succeeded at the last step."""
    mean_steps_to_success: float
    """Of those that succeeded; NaN if none did."""
    mean_reward: float
    """Mean sum of rewards."""


class EpisodeCounter:
    """Follows N environments from the beginning of their episodes and keeps those that finish.

    Args:
        num_envs: N.
        per_env: Episodes to keep of each environment. Those that finish early begin more of them; counting all would
            count short episodes, which in most tasks are the successful ones, too often.
    """

    def __init__(self, num_envs: int, per_env: int) -> None:
        self._per_env = per_env
        self._kept = [0] * num_envs
        self._steps, self._first = torch.zeros(num_envs, dtype=torch.long), torch.zeros(num_envs, dtype=torch.long)
        self._reward = torch.zeros(num_envs)
        self.episodes: list[ArmEpisode] = []
        """Those that were kept."""

    @property
    def is_complete(self) -> bool:
        """Whether every environment has given its episodes."""
        return min(self._kept) >= self._per_env

    def add(self, step: EnvStep) -> None:
        """Take note of a step of all environments."""
        success, ended = step.success.cpu(), (step.terminated | step.truncated).cpu()
        self._steps += 1
        self._reward += step.reward.cpu()
        self._first = torch.where((self._first == 0) & success, self._steps, self._first)
        for i in ended.nonzero().flatten().tolist():
            if self._kept[i] < self._per_env:
                self._kept[i] += 1
                first, steps = int(self._first[i]), int(self._steps[i])
                self.episodes.append(
                    ArmEpisode(i, first > 0, bool(success[i]), steps, first or None, float(self._reward[i]))
                )
        self._steps[ended], self._first[ended], self._reward[ended] = 0, 0, 0.0

    def scores(self) -> ArmScores:
        """Scores over the kept episodes."""
        count = max(1, len(self.episodes))
        firsts = [item.steps_to_success for item in self.episodes if item.steps_to_success is not None]
        return ArmScores(
            episodes=len(self.episodes),
            success_once=sum(item.success_once for item in self.episodes) / count,
            success_at_end=sum(item.success_at_end for item in self.episodes) / count,
            mean_steps_to_success=sum(firsts) / len(firsts) if firsts else math.nan,
            mean_reward=sum(item.total_reward for item in self.episodes) / count,
        )


def score(
    env: BatchedEnv,
    act: Callable[[Observation], Tensor],
    episodes: int,
    *,
    ended: Callable[[Tensor], None] = lambda rows: None,
) -> ArmScores:
    """Run whole episodes of a policy.

    Args:
        env: The environments; they are reset first.
        act: Observations to actions (N, a).
        episodes: At least so many, shared out evenly to the environments.
        ended: Told which environments (N,), bool, begin a new episode, for policies that remember.
    """
    counter = EpisodeCounter(env.num_envs, math.ceil(episodes / env.num_envs))
    obs = env.reset()
    ended(torch.ones(env.num_envs, dtype=torch.bool, device=env.device))
    while not counter.is_complete:
        step = env.step(act(obs))
        counter.add(step)
        over = step.terminated | step.truncated
        if bool(over.any()):
            ended(over)
        obs = step.obs
    return counter.scores()
