"""Scores of a policy over whole episodes that succeed or do not, on episodes that no training saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from gantry_policies.common.batched_env import Observation
from gantry_policies.common.evaluation import ActingPolicy, evaluate
from gantry_sim.tasks.registry import MakePolicy, Task

ENVS = 25
"""Most environments side by side."""


def evaluate_success(
    task: Task,
    env_cfg: Any,
    make_policy: MakePolicy,
    *,
    episodes: int,
    device: str,
    seed: int,
    full_model: bool,
    on_progress: Callable[[float], None],
) -> dict[str, Any]:
    """Run whole episodes of a policy; their beginnings depend on the seed alone, so that policies can be compared.

    Args:
        task: The task; it has one model.
        env_cfg: Its configuration in training; with ``end_on_success`` off, a success has to last to the end.
        make_policy: From environments to the policy that acts in them.
        episodes: How many.
        device: Where to simulate.
        seed: Of the episodes.
        full_model: Of no effect here.
        on_progress: Called with the share that is done.

    Returns:
        ``success_rate``, ``success_once`` and ``success_at_end`` as shares with 95 % intervals, means of steps and
        time to the first success, of the return, and of the sizes of actions and corrections; of a task that is told in
        words ``wrong_thing_rate``, the share of episodes in which another thing was moved.
    """
    del full_model
    hold = not getattr(env_cfg, "end_on_success", True)
    most = ENVS if task.has_contract else env_cfg.num_envs  # Others may need a process for each.
    env = task.make_env(replace(env_cfg, num_envs=min(most, episodes)), device, seed)
    try:
        meter = Meter(make_policy(env), lambda count: on_progress(min(1.0, count / episodes)))
        found = evaluate(env, meter, episodes)
    finally:
        env.close()
    on_progress(1.0)
    return {
        "episodes": found.episodes,
        "hold": hold,
        "success_rate": asdict(found.success_at_end if hold else found.success_once),
        "success_once": asdict(found.success_once),
        "success_at_end": asdict(found.success_at_end),
        **{f"{name}_rate": asdict(score) for name, score in found.flagged.items()},
        "steps_to_success": found.steps_to_success,
        "time_to_success_s": found.time_to_success_s,
        "mean_steps": found.mean_steps,
        "mean_return": found.mean_return,
        **meter.magnitudes(),
    }


class Meter:
    """Wrapper that acts as another policy does, and measures how large its actions are and how large its corrections of
    a base.

    Args:
        policy: Policy that acts; what its base wanted, if it has one, it tells as ``last_base_action``.
        on_episodes: Told how many episodes have ended so far.
    """

    def __init__(self, policy: ActingPolicy, on_episodes: Callable[[int], None] = lambda count: None) -> None:
        self._policy, self._on_episodes = policy, on_episodes
        self._episodes = 0
        self._sums = torch.zeros(3, dtype=torch.float64)
        self._steps = 0
        self._has_base = False

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        self._policy.reset(env_ids)
        if env_ids is not None:
            self._episodes += env_ids.numel()
            self._on_episodes(self._episodes)

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in the environment's range."""
        action = self._policy.act(obs)
        base = getattr(self._policy, "last_base_action", None)
        parts = [action.abs().mean()]
        if base is not None:
            self._has_base = True
            base = base.to(action.device)
            parts += [base.abs().mean(), (action - base).abs().mean()]
        self._sums[: len(parts)] += torch.stack(parts).double().cpu()
        self._steps += 1
        return action

    def magnitudes(self) -> dict[str, float]:
        """Mean size of a number of the action, of the base's, and of the correction, where there is one; without unit,
        the environment's range being -1 to 1."""
        means = (self._sums / max(1, self._steps)).tolist()
        names = ("mean_action", "mean_base_action", "mean_residual")
        return dict(zip(names, means, strict=True)) if self._has_base else {names[0]: means[0]}
