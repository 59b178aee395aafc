"""Isaac Lab's flat ground for a Go2 with a reward of our own, another weight and a scaled observation."""

from typing import Any

import gymnasium
import torch
from isaaclab.managers import RewardTermCfg
from isaaclab.utils import configclass
from isaaclab_tasks.core.velocity.config.go2.flat_env_cfg import UnitreeGo2FlatEnvCfg


def low_head(env: Any) -> torch.Tensor:
    """Metres that the base is below 0.4 m, (N,)."""
    return (0.4 - env.scene["robot"].data.root_pos_w.torch[:, 2]).clamp(min=0.0)


@configclass
class DigCfg(UnitreeGo2FlatEnvCfg):
    """The task's configuration."""

    def __post_init__(self):
        super().__post_init__()
        self.rewards.track_lin_vel_xy_exp.weight = 0.5
        self.rewards.low_head = RewardTermCfg(func=low_head, weight=3.0)
        self.observations.policy.joint_vel.scale = 0.05
        self.episode_length_s = 1.0


gymnasium.register(
    "Terrier-Dig-Go2",
    entry_point="isaaclab.envs:ManagerBasedRLEnv",
    disable_env_checker=True,
    kwargs={
        "env_cfg_entry_point": f"{__name__}:DigCfg",
        "rsl_rl_cfg_entry_point": (
            "isaaclab_tasks.core.velocity.config.go2.agents.rsl_rl_ppo_cfg:UnitreeGo2FlatPPORunnerCfg"
        ),
    },
)
