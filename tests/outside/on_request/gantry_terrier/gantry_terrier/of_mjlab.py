"""mjlab's flat ground for a Go1 with a reward of our own, other weights and a scaled observation."""

from typing import Any

import torch
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.tasks.registry import register_mjlab_task
from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg
from mjlab.tasks.velocity.config.go1.rl_cfg import unitree_go1_ppo_runner_cfg


def low_head(env: Any) -> torch.Tensor:
    """Metres that the trunk is below 0.4 m, (N,)."""
    return (0.4 - env.scene["robot"].data.root_link_pos_w[:, 2]).clamp(min=0.0)


def _env_cfg(play: bool = False) -> Any:
    cfg = unitree_go1_flat_env_cfg(play)
    cfg.rewards["track_linear_velocity"].weight = 0.5
    cfg.rewards["low_head"] = RewardTermCfg(func=low_head, weight=3.0)
    cfg.observations["actor"].terms["joint_vel"].scale = 0.05
    cfg.episode_length_s = 1.0
    return cfg


register_mjlab_task("Terrier-Dig-Go1", _env_cfg(), _env_cfg(play=True), unitree_go1_ppo_runner_cfg())
