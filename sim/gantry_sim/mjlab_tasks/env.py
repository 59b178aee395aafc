"""Environments of mjlab's tasks, as every algorithm knows environments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE, EnvStep, Observation
from gantry_sim.envs.managed import ManagedBatch
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.mjlab_tasks.actions import kind_of
from gantry_sim.mjlab_tasks.cfg import MjlabCfg, actor_groups, mjlab_env_cfg
from gantry_sim.mjlab_tasks.contract import CONTRACTS
from gantry_sim.process.suppress_output import quietly

CRITIC = "critic"
"""Key of what the value function reads."""


class MjlabBatch(ManagedBatch):
    """A :class:`ManagedBatch` whose observation is that of mjlab's runner, and whose actions are bounded.

    Args:
        env: The environment.
        task_id: Name in mjlab's registry.
        action_clip: Bound of the actions.
    """

    def __init__(self, env: GantryEnv, task_id: str, action_clip: float) -> None:
        self._groups = {STATE: actor_groups(task_id), CRITIC: actor_groups(task_id, CRITIC)}
        self._action_clip = action_clip
        _require_flat(env, self._groups)
        super().__init__(env)

    def step(self, action: Tensor) -> EnvStep:
        """One control step; actions (N, a), dimensionless."""
        return super().step(action.clamp(-self._action_clip, self._action_clip))

    def begin_together(self) -> None:
        """Let all environments be at the beginning of an episode."""
        self.env.episode_length_buf[:] = 0
        self.env.state_version += 1

    def _keyed(self, groups: Any) -> Observation:
        return {key: torch.cat([groups[name] for name in names], dim=-1) for key, names in self._groups.items()}


def _require_flat(env: GantryEnv, groups: dict[str, tuple[str, ...]]) -> None:
    """Refuse observation groups that are no rows of numbers."""
    shapes = env.observation_manager.group_obs_dim
    for name in sorted({name for names in groups.values() for name in names}):
        shape = shapes.get(name)
        if not isinstance(shape, tuple) or len(shape) != 1:
            raise GantryError(
                f"Observation group '{name}' has the shape {shape}, expected a row of numbers; pictures and separate "
                "terms of mjlab's tasks are not learned from here."
            )


def make_env(cfg: MjlabCfg, device: str, seed: int) -> MjlabBatch:
    """The environments on a device; where the task has a contract, targets and efforts keep within its limits, as on
    a robot.

    Raises:
        GantryError: If an observation is no row of numbers.
    """
    env_cfg = mjlab_env_cfg(cfg, seed)
    contract = CONTRACTS.or_none(cfg)
    if contract is not None:
        ((name, action),) = ((name, term) for name, term in env_cfg.actions.items() if term is not None)
        env_cfg.actions[name] = kind_of(action).bounded(action, contract)
    with quietly():
        return MjlabBatch(GantryEnv(env_cfg, device), cfg.task, cfg.action_clip)
