"""Batched environments as rsl_rl's ``VecEnv``, the form in which PPO trains on them."""

from __future__ import annotations

from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from gantry_policies.common.batched_env import STATE, BatchedEnv, Observation

ACTOR, CRITIC = "actor", "critic"
"""Observation groups of rsl_rl: what the policy reads, and what its value function reads."""


class BatchedVecEnv(VecEnv):
    """A :class:`BatchedEnv` behind rsl_rl's interface: key ``state`` is the group ``actor``, other keys are groups of
    their own, pictures among them; where there is no ``critic``, the critic reads what the actor reads.

    Args:
        env: The environments; they are reset here unless they are already under way.
    """

    def __init__(self, env: BatchedEnv) -> None:
        self.batched = env
        self.num_envs, self.num_actions, self.device = env.num_envs, env.action_size, env.device
        self.max_episode_length = env.max_episode_steps
        self.episode_length_buf = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
        self.cfg: Any = getattr(env, "cfg", {})
        self._obs = env.reset()

    def reset(self) -> tuple[TensorDict, dict[str, Any]]:
        """Begin new episodes everywhere."""
        self._obs = self.batched.reset()
        return self.get_observations(), {}

    def get_observations(self) -> TensorDict:
        """The newest observations by group, (N, ...) each."""
        return _groups(self._obs, self.num_envs)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """One control step; actions (N, a), dimensionless."""
        step = self.batched.step(actions)
        self._obs = step.obs
        extras = {"time_outs": step.truncated, **step.extras}
        return self.get_observations(), step.reward, (step.terminated | step.truncated).long(), extras

    def expert_action(self) -> Tensor:
        """Actions of the task's scripted policy in the present state, (N, a), dimensionless."""
        return self.batched.expert_action()  # type: ignore[attr-defined]

    def step_metrics(self) -> dict[str, Tensor]:
        """Scalars of the step just taken, means over the environments."""
        metrics = getattr(self.batched, "step_metrics", None)
        return {} if metrics is None else metrics()

    def training_state(self) -> dict[str, Any]:
        """State that a resumed training carries over; nothing where the environments offer nothing."""
        state = getattr(self.batched, "training_state", None)
        return {} if state is None else state()

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """Generators with a state that a resumed training carries over, beside torch's own."""
        return getattr(self.batched, "generators", ())

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Put it back."""
        if state:
            self.batched.restore_training_state(state)  # type: ignore[attr-defined]
            current = getattr(self.batched, "observe", None)
            self._obs = self.batched.reset() if current is None else current()

    def close(self) -> None:
        """Release what the environments hold."""
        self.batched.close()


def _groups(obs: Observation, num_envs: int) -> TensorDict:
    groups = {ACTOR if key == STATE else key: value for key, value in obs.items()}
    groups.setdefault(CRITIC, obs[STATE])
    return TensorDict(groups, batch_size=[num_envs], device=next(iter(groups.values())).device)
