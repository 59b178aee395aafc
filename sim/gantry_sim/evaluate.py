"""Held-out evaluation of a policy on its task, all episodes side by side, scored as the sim-to-sim gate scores them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.metrics import EpisodeScores, tracking_scores
from gantry_hardware.robots import robot_spec
from gantry_sim.quiet import quietly
from gantry_sim.run_folder import EVALUATION_SEED
from gantry_sim.tasks.locomotion.state import LocomotionState
from gantry_sim.tasks.registry import Task
from gantry_sim.vec_env import GantryVecEnv

Policy = Callable[[Tensor], Tensor]


def evaluate_velocity(
    task: Task,
    env_cfg: Any,
    policy: Policy,
    *,
    episodes: int = 200,
    device: str = "cpu",
    seed: int = EVALUATION_SEED,
    full_model: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Run ``episodes`` episodes of the task's length and score them.

    Args:
        task: The task.
        env_cfg: Its configuration in training; randomisation and sensor noise stay as they are.
        policy: Observations (N, obs) to actions (N, n), deterministic.
        episodes: Number of episodes; friction, mass and commands differ between them.
        device: Where to simulate.
        seed: Of the episodes.
        full_model: Simulate every collision shape with the finer physics instead of the training model.
        on_progress: Called with the share that is done.

    Returns:
        Scores with confidence intervals, and what was measured.
    """
    torch.set_num_threads(1)
    cfg = task.evaluation(env_cfg, num_envs=episodes, full_model=full_model)
    with quietly():
        env = task.make_env(cfg, device, seed)
        vec_env = GantryVecEnv(env)
    env.episode_length_buf[:] = 0
    obs = vec_env.get_observations()
    scores = EpisodeScores(torch.zeros(episodes, 1, device=device), robot_spec(task.robot).fall_height_m)
    steps = int(env.max_episode_length) - 1  # the last step would reset every episode
    with torch.inference_mode():
        for step in range(steps):
            command = LocomotionState.of(env).command.clone()
            obs = vec_env.step(policy(obs["actor"]))[0]
            state = LocomotionState.of(env)
            # An environment that has just been reset shows its next episode; it has fallen, and counts no more.
            scores.fallen = scores.fallen | env.reset_terminated
            scores.update(state.lin_vel_b, state.ang_vel_b, state.quat, state.base_height, command)
            if on_progress is not None:
                on_progress((step + 1) / steps)
    env.close()
    result = tracking_scores(
        scores.lin_vel_error_m_s.cpu().numpy(),
        scores.yaw_rate_error_rad_s.cpu().numpy(),
        scores.fallen.cpu().numpy(),
    )
    return asdict(result) | {
        "seconds_per_episode": float(np.round(steps * env.step_dt, 3)),
        "seed": seed,
        "model": "full" if full_model else "training",
    }
