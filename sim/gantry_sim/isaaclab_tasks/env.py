"""Environments of Isaac Lab's tasks, as every algorithm knows environments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE, EnvStep, Observation
from gantry_sim.isaaclab_tasks.actions import KINDS
from gantry_sim.isaaclab_tasks.cfg import IsaacCfg, actor_groups, isaac_env_cfg
from gantry_sim.isaaclab_tasks.contract import CONTRACTS
from gantry_sim.isaaclab_tasks.opened import OpenEnv

CRITIC = "critic"
"""Key of what the value function reads."""


class IsaacBatch:
    """Implements :class:`gantry_policies.common.batched_env.BatchedEnv` around an environment of Isaac Lab.

    Args:
        opened: The environment, of managers or direct; it is reset here, and its first episodes end at different times.
        task_id: Name in gymnasium's registry.
        action_clip: Bound of the actions.

    Raises:
        GantryError: If an observation is no row of numbers.
    """

    def __init__(self, opened: OpenEnv, task_id: str, action_clip: float) -> None:
        self._opened, self.env = opened, opened.env
        env = self.env
        self.keep_final_obs = False
        """Whether ``next_obs`` holds the last observation of episodes that ended, at the price of observing twice."""
        self.cfg = env.cfg
        self.num_envs, self.device = int(env.num_envs), str(env.device)
        self.max_episode_steps, self.dt_s = int(env.max_episode_length), float(env.step_dt)
        self.resumes_inside = False
        """A resumed training begins new episodes."""
        self._groups = {STATE: actor_groups(task_id), CRITIC: actor_groups(task_id, CRITIC)}
        self._action_clip = action_clip
        self._managers = hasattr(env, "action_manager")
        self.action_size = (
            int(env.action_manager.total_action_dim) if self._managers else int(env.single_action_space.shape[0])
        )
        self._obs = self._keyed(env.reset()[0])
        self.obs_shapes: dict[str, tuple[int, ...]] = {STATE: tuple(self._obs[STATE].shape[1:])}
        # Otherwise all environments would end their first episode together.
        env.episode_length_buf[:] = torch.randint_like(env.episode_length_buf, high=max(1, self.max_episode_steps))
        self._fresh = True

    def begin_together(self) -> None:
        """Let all environments be at the beginning of an episode."""
        self.env.episode_length_buf[:] = 0

    def observe(self) -> Observation:
        """Present observations, made anew where managers make them: (N, ...) by key."""
        self._require_open()
        if self._managers:
            self._obs = self._keyed(self.env.observation_manager.compute())
        return dict(self._obs)

    def reset(self) -> Observation:
        """Begin new episodes everywhere; the first call leaves the episodes that the constructor has begun."""
        if self._fresh:
            self._fresh = False
            return self.observe()
        self._require_open()
        self._obs = self._keyed(self.env.reset()[0])
        return dict(self._obs)

    def step(self, action: Tensor) -> EnvStep:
        """One control step; actions (N, a), dimensionless."""
        self._require_open()
        self.env.cfg.compute_final_obs = self.keep_final_obs
        # Isaac Lab keeps actions and writes into them.
        action = action.clamp(-self._action_clip, self._action_clip).clone()
        groups, reward, terminated, truncated, extras = self.env.step(action)
        reward, terminated, truncated = reward.clone().float(), terminated.clone(), truncated.clone()
        obs = next_obs = self._obs = self._keyed(groups)
        final = extras.pop("final_obs", None)
        if final is not None:
            ended = (terminated | truncated)[:, None]
            next_obs = {key: torch.where(ended, last, obs[key]) for key, last in self._keyed(final).items()}
        success = torch.zeros_like(terminated)
        return EnvStep(dict(obs), next_obs, reward, terminated, truncated & ~terminated, success)

    def step_metrics(self) -> dict[str, Tensor]:
        """Scalars, means over the environments, of the step just taken; those of every term of the reward per
        second, 1/s.
        """
        env = self.env
        own = {
            "reward_per_s": env.reward_buf.mean() / env.step_dt,
            "falls_per_step": env.reset_terminated.float().mean(),
        }
        if not self._managers:
            return own
        terms = zip(env.reward_manager.active_terms, env.reward_manager._step_reward.mean(dim=0), strict=True)
        return own | {f"reward_term/{name}": value for name, value in terms}

    def training_state(self) -> dict[str, Any]:
        """Step counters and the terrain curriculum."""
        env = self.env
        state: dict[str, Any] = {"common_step_counter": int(getattr(env, "common_step_counter", 0))}
        terrain: Any = getattr(env.scene, "terrain", None)
        if getattr(terrain, "terrain_levels", None) is not None:
            state["terrain_levels"] = terrain.terrain_levels.clone()
            state["terrain_types"] = terrain.terrain_types.clone()
        return state

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Put counters and curriculum back and start fresh episodes from there."""
        env = self.env
        env.reset()
        env.common_step_counter = state["common_step_counter"]
        terrain = getattr(env.scene, "terrain", None)
        if "terrain_levels" in state and terrain is not None:
            terrain.terrain_levels[:] = state["terrain_levels"].to(env.device)
            terrain.terrain_types[:] = state["terrain_types"].to(env.device)
            terrain.env_origins[:] = terrain.terrain_origins[terrain.terrain_levels, terrain.terrain_types]
        env.episode_length_buf[:] = torch.randint_like(env.episode_length_buf, high=self.max_episode_steps)
        self._fresh = True

    def close(self) -> None:
        """Release the simulation; a second time does nothing."""
        self._opened.close()

    def _require_open(self) -> None:
        if not self._opened.is_open:
            raise GantryError(
                "These environments of Isaac Lab are closed: a process has one simulation, and the newest one has it."
            )

    def _keyed(self, groups: Any) -> Observation:
        missing = [name for names in self._groups.values() for name in names if name not in groups]
        found = {key: names for key, names in self._groups.items() if not set(names) & set(missing)}
        if STATE not in found:
            raise GantryError(f"The actor reads the observation groups {missing}, there are {', '.join(groups)}.")
        for name in sorted({name for names in found.values() for name in names}):
            if not isinstance(groups[name], Tensor) or groups[name].ndim != 2:
                raise GantryError(
                    f"Observation group '{name}' is no row of numbers; pictures and separate terms of Isaac Lab's "
                    "tasks are not learned from here."
                )
        # Isaac Lab writes the next step's into the same tensors.
        return {key: torch.cat([groups[name] for name in names], dim=-1).clone() for key, names in found.items()}


def make_env(cfg: IsaacCfg, device: str, seed: int) -> IsaacBatch:
    """The environments on a device; where the task has a contract, what actions command keeps within its limits, as on
    a robot.

    Raises:
        GantryError: If Isaac Lab cannot build them, or an observation is no row of numbers.
    """
    contract = CONTRACTS.or_none(cfg)
    env_cfg, _ = isaac_env_cfg(cfg, device, seed)
    if contract is not None:
        (action,) = (term for term in vars(env_cfg.actions).values() if term is not None)
        limits = KINDS[type(action).__name__.removesuffix("Cfg")].clip(contract)
        action.clip = {f"^{name}$": bounds for name, bounds in limits.items()}
    opened = OpenEnv(cfg.task, env_cfg)
    try:
        return IsaacBatch(opened, cfg.task, cfg.action_clip)
    except BaseException:
        opened.close()
        raise
