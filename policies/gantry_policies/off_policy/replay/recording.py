"""Demonstrations of a scripted expert, recorded in environments side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import BatchedEnv, Observation
from gantry_policies.common.evaluation import ActingPolicy
from gantry_policies.off_policy.replay.demos import Demo


def record_demos(env: BatchedEnv, expert: ActingPolicy, wanted: int) -> tuple[list[Demo], int]:
    """Let an expert act until enough of its episodes have succeeded.

    Args:
        env: N environments; is reset.
        expert: Acts in all of them.
        wanted: Number of demonstrations.

    Returns:
        The first ``wanted`` successful episodes, with the reward 1 at their last step and 0 before; and the number of
        steps of all episodes that ended meanwhile, failures included.

    Raises:
        GantryError: If the expert succeeds in fewer than one of 40 episodes.
    """
    obs, steps, done = env.reset(), 0, []
    rows: list[list[tuple[Observation, Tensor]]] = [[] for _ in range(env.num_envs)]
    for _ in range(40 * wanted * env.max_episode_steps):
        if len(done) >= wanted:
            return done[:wanted], steps
        action = expert.act(obs)
        step = env.step(action)
        for index in range(env.num_envs):
            rows[index].append((_row(obs, index), action[index]))
        ended = (step.terminated | step.truncated).nonzero().squeeze(1)
        for index in ended.tolist():
            taken, rows[index] = rows[index], []
            steps += len(taken)
            if bool(step.success[index]):
                done.append(_demo(taken, _row(step.next_obs, index)))
        if ended.numel():
            expert.reset(ended)
        obs = step.obs
    raise GantryError(f"The expert succeeded in {len(done)} episodes, expected {wanted}.")


def _row(obs: Observation, index: int) -> Observation:
    return {key: value[index].clone() for key, value in obs.items()}


def _demo(taken: list[tuple[Observation, Tensor]], last: Observation) -> Demo:
    frames = [*(seen for seen, _ in taken), last]
    reward = torch.zeros(len(taken))
    reward[-1] = 1.0
    seen = {key: torch.stack([frame[key] for frame in frames]) for key in last}
    return Demo(seen, torch.stack([action for _, action in taken]), reward)
