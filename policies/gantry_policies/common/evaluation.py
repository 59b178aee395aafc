"""Evaluation of a policy: whole episodes, counted so that quick ones are not favoured, with an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from gantry_deploy.evaluation.metrics import Score, rate_interval
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import BatchedEnv, Observation


class ActingPolicy(Protocol):
    """Whatever acts for all environments: a base, a learned policy, a script."""

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments or in all."""
        ...

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in the environment's range [-1, 1]."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Result of some episodes."""

    episodes: int
    """Number of episodes."""
    success_at_end: Score
    """Share of episodes that succeeded at their last step, with Wilson's 95 % interval."""
    success_once: Score
    """Share of episodes that succeeded at some step, with Wilson's 95 % interval."""
    steps_to_success: float | None
    """Mean number of steps to the first success, over the episodes that had one; None if none had."""
    time_to_success_s: float | None
    """The same, in s."""
    mean_return: float
    """Mean sum of an episode's rewards, not discounted."""
    mean_steps: float
    """Mean length of an episode."""
    flagged: dict[str, Score] = field(default_factory=dict)
    """Share of episodes in which a flag was true at some step, by its name, of all flags (N,) bool among the steps'
    extras."""


@dataclass(frozen=True)
class _Episode:
    at_end: bool
    first_success: int | None
    steps: int
    total: float
    flags: dict[str, bool]


class StoppedError(Exception):
    """An evaluation was left, because a stop was asked for."""


@torch.no_grad()
def evaluate(
    env: BatchedEnv, policy: ActingPolicy, episodes: int, is_stopped: Callable[[], bool] = lambda: False
) -> Evaluation:
    """Run whole episodes from a reset; afterwards the environments are in the middle of others.

    Every environment runs its own share of the episodes. Taking the first ones to finish would favour quick ones.

    Args:
        env: N environments.
        policy: Policy that acts.
        episodes: How many to count.
        is_stopped: Asked before every step; true to leave.

    Raises:
        GantryError: If episodes last longer than the environment says they may.
        StoppedError: If it was left.
    """
    count = env.num_envs
    wanted = [episodes // count + (index < episodes % count) for index in range(count)]
    obs = env.reset()
    policy.reset()
    steps = torch.zeros(count, dtype=torch.int64, device=env.device)
    first, total = torch.full_like(steps, -1), torch.zeros(count, device=env.device)
    flags: dict[str, Tensor] = {}
    done: list[_Episode] = []
    for _ in range(env.max_episode_steps * max(wanted)):
        if is_stopped():
            raise StoppedError
        step = env.step(policy.act(obs))
        steps += 1
        total += step.reward
        first = torch.where(step.success & (first < 0), steps, first)
        for name, value in step.extras.items():
            if isinstance(value, Tensor) and value.dtype == torch.bool and value.shape == first.shape:
                flags[name] = flags.get(name, torch.zeros_like(value)) | value
        ended = (step.terminated | step.truncated).nonzero().squeeze(1)
        for index in ended.tolist():
            if wanted[index]:
                wanted[index] -= 1
                reached = int(first[index]) if first[index] > 0 else None
                seen = {name: bool(value[index]) for name, value in flags.items()}
                lasted = int(steps[index])
                done.append(_Episode(bool(step.success[index]), reached, lasted, float(total[index]), seen))
        if len(done) == episodes:
            return _summary(done, env.dt_s)
        if ended.numel():
            steps[ended], first[ended], total[ended] = 0, -1, 0.0
            for value in flags.values():
                value[ended] = False
            policy.reset(ended)
        obs = step.obs
    limit = env.max_episode_steps
    raise GantryError(f"Only {len(done)} of {episodes} episodes ended; the environment says they last {limit} steps.")


def _summary(done: list[_Episode], dt_s: float) -> Evaluation:
    count = len(done)
    at_end, once = sum(episode.at_end for episode in done), [e.first_success for e in done if e.first_success]
    steps = sum(once) / len(once) if once else None
    return Evaluation(
        episodes=count,
        success_at_end=rate_interval(at_end, count),
        success_once=rate_interval(len(once), count),
        steps_to_success=steps,
        time_to_success_s=None if steps is None else steps * dt_s,
        mean_return=sum(episode.total for episode in done) / count,
        mean_steps=sum(episode.steps for episode in done) / count,
        flagged={
            name: rate_interval(sum(episode.flags.get(name, False) for episode in done), count)
            for name in done[-1].flags
        },
    )
