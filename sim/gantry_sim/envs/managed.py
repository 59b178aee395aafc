"""mjlab's managed environment as a batched one: true last observations, and what a resumed training carries over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from mjlab.managers.curriculum_manager import NullCurriculumManager
from torch import Tensor

from gantry_policies.common.batched_env import STATE, EnvStep, Observation
from gantry_sim.envs.manager_env import GantryEnv

Metrics = Callable[[GantryEnv], dict[str, Tensor]]
"""Scalars of the step just taken, means over the environments."""
ACTOR_GROUP = "actor"
"""mjlab's observation group that the policy reads."""


class ManagedBatch:
    """Implements :class:`gantry_policies.common.batched_env.BatchedEnv` around a :class:`GantryEnv`.

    Args:
        env: The environment; it is reset here, and its first episodes end at different times.
        metrics: Scalars of the step just taken, for progress and log.
    """

    def __init__(self, env: GantryEnv, metrics: Metrics | None = None) -> None:
        self.env = env
        self.cfg = env.cfg
        self.num_envs, self.device = env.num_envs, str(env.device)
        self.action_size = int(env.action_manager.total_action_dim)
        self.max_episode_steps = int(env.max_episode_length)
        self.dt_s = float(env.step_dt)
        self.keep_final_obs = False
        """Whether ``next_obs`` holds the last observation of episodes that ended, at the price of observing twice."""
        self.resumes_inside = False
        """A resumed training begins new episodes."""
        self._metrics = metrics
        self._obs = self._keyed(env.reset()[0])
        self.obs_shapes: dict[str, tuple[int, ...]] = {STATE: tuple(self._obs[STATE].shape[1:])}
        # Otherwise all environments would end their first episode together.
        env.episode_length_buf = torch.randint_like(env.episode_length_buf, high=max(1, self.max_episode_steps))
        env.state_version += 1
        self._fresh = True

    def observe(self) -> Observation:
        """Present observations, made anew: (N, ...) by key, other groups of mjlab beside ``state``."""
        return self._keyed(self.env.observation_manager.compute())

    def reset(self) -> Observation:
        """Begin new episodes everywhere; the first call leaves the episodes that the constructor has begun."""
        if self._fresh:
            self._fresh = False
            return self.observe()
        return self._keyed(self.env.reset()[0])

    def step(self, action: Tensor) -> EnvStep:
        """One control step; actions (N, a), dimensionless."""
        env = self.env
        env.keep_final_obs = self.keep_final_obs
        groups, reward, terminated, truncated, extras = env.step(action)
        reward, terminated = reward.clone(), terminated.clone()  # mjlab writes the next step's into the same tensors.
        obs = next_obs = self._keyed(groups)
        if env.final_obs is not None:
            ended = (terminated | truncated)[:, None]
            next_obs = {key: torch.where(ended, last, obs[key]) for key, last in self._keyed(env.final_obs).items()}
        success = torch.zeros_like(terminated)
        return EnvStep(obs, next_obs, reward, terminated, truncated & ~terminated, success, extras)

    def expert_action(self) -> Tensor:
        """As of :meth:`gantry_sim.envs.manager_env.GantryEnv.expert_action`."""
        return self.env.expert_action()

    def step_metrics(self) -> dict[str, Tensor]:
        """Scalars, means over the environments, of the step just taken; those of every term of the reward per
        second, 1/s.
        """
        env = self.env
        own = {
            "reward_per_s": env.reward_buf.mean() / env.step_dt,
            "falls_per_step": env.reset_terminated.float().mean(),
        }
        terms = zip(env.reward_manager.active_terms, env.reward_manager._step_reward.mean(dim=0), strict=True)
        own |= {f"reward_term/{name}": value for name, value in terms}
        return own | (self._metrics(env) if self._metrics else {})

    def training_state(self) -> dict[str, Any]:
        """Step counters and the terrain curriculum."""
        env = self.env
        state: dict[str, Any] = {
            "common_step_counter": env.common_step_counter,
            "sim_step_counter": env._sim_step_counter,
        }
        terrain = env.scene.terrain
        if terrain is not None and getattr(terrain, "terrain_levels", None) is not None:
            state["terrain_levels"] = terrain.terrain_levels.clone()
            state["terrain_types"] = terrain.terrain_types.clone()
        if hasattr(env.task_state, "training_state"):
            state["task"] = env.task_state.training_state()
        return state

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Put counters and curriculum back and start fresh episodes from there."""
        env = self.env
        env.common_step_counter = state["common_step_counter"]
        env._sim_step_counter = state["sim_step_counter"]
        terrain = env.scene.terrain
        if "terrain_levels" in state and terrain is not None:
            terrain.terrain_levels[:] = state["terrain_levels"].to(env.device)
            terrain.terrain_types[:] = state["terrain_types"].to(env.device)
            assert terrain.env_origins is not None
            assert terrain.terrain_origins is not None
            terrain.env_origins[:] = terrain.terrain_origins[terrain.terrain_levels, terrain.terrain_types]
        if "task" in state:
            env.task_state.restore_training_state(state["task"])
        # The curriculum would judge this reset by where robots of another life stand, and move them to other levels.
        curriculum, env.curriculum_manager = env.curriculum_manager, NullCurriculumManager()
        try:
            env.reset()
        finally:
            env.curriculum_manager = curriculum
        env.episode_length_buf = torch.randint_like(env.episode_length_buf, high=int(env.max_episode_length))
        env.state_version += 1

    def close(self) -> None:
        """Release physics and drawing."""
        self.env.close()

    def _keyed(self, groups: Any) -> Observation:
        return {STATE if name == ACTOR_GROUP else name: value for name, value in groups.items()}
