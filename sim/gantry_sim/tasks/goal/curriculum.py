"""Harder terrain for robots that arrive, easier terrain for those that end far away (AME-2, Sec. on curricula)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gantry_sim.tasks.goal.rewards import NEAR_M
from gantry_sim.tasks.goal.state import GoalState

FAR_M = 4.0
"""A robot that ends farther from its goal than this moves down: the mean distance at the start is about twice that
on our tiles, and this on the paper's."""
PROMOTE_ABOVE = 0.5
"""Running success that moves up."""


class GoalLevels:
    """Judges the episodes that end; called before a reset."""

    def __init__(self, cfg: Any, env: Any) -> None:
        del cfg
        # The first episode of an environment starts somewhere in its middle; it is not judged.
        self._judged = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)

    def __call__(self, env: Any, env_ids: Tensor, newest: float) -> dict[str, Tensor]:
        """Move robots; mean levels over all and by kind of terrain.

        Args:
            env: The environment.
            env_ids: (k,) episodes that end.
            newest: Weight of the newest episode in the running success.
        """
        state = GoalState.of(env)
        terrain = env.scene.terrain
        judged = self._judged[env_ids]
        ended_early = env.termination_manager.terminated[env_ids]
        arrived = (state.distance[env_ids] < NEAR_M) & ~ended_early
        before = state.success_ema[env_ids]
        success = torch.where(judged, (1.0 - newest) * before + newest * arrived, before)
        up = judged & arrived & (success > PROMOTE_ABOVE)
        down = judged & ~up & (state.distance[env_ids] > FAR_M)
        state.success_ema[env_ids] = success
        terrain.update_env_origins(env_ids, up, down)
        self._judged[env_ids] = True
        levels = terrain.terrain_levels.float()
        kinds = state.sites.kinds
        found = {"mean": levels.mean()}
        for kind in dict.fromkeys(kinds):
            columns = torch.tensor([i for i, name in enumerate(kinds) if name == kind], device=levels.device)
            found[kind] = levels[torch.isin(terrain.terrain_types, columns)].mean()
        return found
