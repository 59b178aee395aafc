"""A task's environment as rsl_rl's ``VecEnv``, with what a resumed training must carry over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from mjlab.managers.curriculum_manager import NullCurriculumManager
from mjlab.rl import RslRlVecEnvWrapper

from gantry_sim.envs.manager_env import GantryEnv

Metrics = Callable[[GantryEnv], dict[str, torch.Tensor]]


class GantryVecEnv(RslRlVecEnvWrapper):
    """mjlab's wrapper, plus training state and metrics.

    Args:
        env: The environment; it is reset here.
        metrics: Scalars of the step just taken, for progress and log.
    """

    def __init__(self, env: GantryEnv, metrics: Metrics | None = None) -> None:
        super().__init__(env)
        self.gantry_env = env
        self._metrics = metrics
        spread = torch.randint_like(env.episode_length_buf, high=max(1, int(env.max_episode_length)))
        env.episode_length_buf = spread  # else all environments would end their first episode together
        env.state_version += 1

    def expert_action(self) -> torch.Tensor:
        """As of :meth:`gantry_sim.envs.manager_env.GantryEnv.expert_action`."""
        return self.gantry_env.expert_action()

    def step_metrics(self) -> dict[str, torch.Tensor]:
        """Scalars, means over the environments, of the step just taken; those of every term of the reward per
        second, 1/s.
        """
        env = self.gantry_env
        own = {
            "reward_per_s": env.reward_buf.mean() / env.step_dt,
            "falls_per_step": env.reset_terminated.float().mean(),
        }
        terms = zip(env.reward_manager.active_terms, env.reward_manager._step_reward.mean(dim=0), strict=True)
        own |= {f"reward_term/{name}": value for name, value in terms}
        return own | (self._metrics(env) if self._metrics else {})

    def training_state(self) -> dict[str, Any]:
        """Step counters and the terrain curriculum."""
        env = self.gantry_env
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
        env = self.gantry_env
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
