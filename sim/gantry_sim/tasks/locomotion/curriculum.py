"""Harder ground for robots that follow their commands well, easier ground for those that do not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TRACKING_TERM = "track_planar_velocity"
"""Reward term whose mean over an episode is the score."""


class TerrainLevels:
    """Moves robots between levels by how well they tracked over the time that they really lived.

    The distance walked, mjlab's measure, says nothing here: commands change every few seconds and turn, so that a
    perfect follower walks in loops. A score of 1 is perfect tracking; 0.6 is an error of 0.7 widths of the reward.
    """

    def __init__(self, cfg: Any, env: Any) -> None:
        del cfg
        self._env = env
        # The first episode of an environment starts somewhere in its middle; it is not judged.
        self._judged = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)

    def __call__(self, env: Any, env_ids: Tensor, up_above: float = 0.6, down_below: float = 0.35) -> dict[str, Tensor]:
        """Judge the episodes that end; called before a reset. Returns mean levels, over all and by kind of ground."""
        terrain = env.scene.terrain
        manager = env.reward_manager
        weight = manager.get_term_cfg(TRACKING_TERM).weight
        lived_s = (env.episode_length_buf[env_ids] * env.step_dt).clamp(min=env.step_dt)
        score = manager._episode_sums[TRACKING_TERM][env_ids] / (weight * lived_s)
        judged = self._judged[env_ids]
        fell = env.termination_manager.terminated[env_ids]
        up = judged & ~fell & (score > up_above)
        down = judged & (fell | (score < down_below)) & ~up
        terrain.update_env_origins(env_ids, up, down)
        self._judged[env_ids] = True
        levels = terrain.terrain_levels.float()
        kinds = list(terrain.cfg.terrain_generator.sub_terrains)
        by_kind = {kind: levels[terrain.terrain_types == i].mean() for i, kind in enumerate(kinds)}
        return {"mean": levels.mean()} | by_kind
