"""Episodes of a policy in the training environment, recorded so that any runtime can be held against them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gantry_deploy.observations.builder import needed_signals
from gantry_deploy.policy.golden import EXTRA_PREFIX, OBJECT_ARRAY
from gantry_deploy.policy.onnx_policy import BASE_ACTION, IMAGE_PREFIX, OBSERVATION
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.common.evaluation import ActingPolicy
from gantry_policies.common.recorded_rows import MIN_OBSERVATIONS
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.terms import ACTION
from gantry_sim.tasks.registry import MakePolicy, Task

ENVS = 8
"""Environments side by side."""
IMAGE_ROWS = 100
"""Steps that are recorded of a policy with cameras, whose pictures fill the bundle."""

Arrays = dict[str, NDArray[Any]]


@torch.no_grad()
def record_episodes(task: Task, env_cfg: Any, make_policy: MakePolicy, *, seed: int) -> Arrays:
    """Whole episodes, one after the other, as :mod:`gantry_deploy.policy.golden` describes them.

    Args:
        task: The task.
        env_cfg: Its configuration in training; noise on what is seen is left out, since it could not be repeated.
        make_policy: From environments to the policy that acts in them.
        seed: Of the episodes.

    Raises:
        GantryError: If the task's environments do not show what a robot would have measured.
    """
    env = task.make_env(replace(env_cfg, num_envs=ENVS, object_noise_m=0.0), "cpu", seed)
    try:
        if not isinstance(env, ArmStepEnv):
            raise GantryError(
                f"Task '{task.name}' runs in a {type(env).__name__}, which does not say what a robot would "
                "measure; bundles are made of Gantry's own manipulation tasks."
            )
        has_images = any(key.startswith(IMAGE_PREFIX) for key in env.obs_shapes)
        return _record(env, make_policy(env), IMAGE_ROWS if has_images else MIN_OBSERVATIONS)
    finally:
        env.close()


def _record(env: ArmStepEnv, policy: ActingPolicy, rows: int) -> Arrays:
    obs = env.reset()
    policy.reset()
    open_rows: list[list[Arrays]] = [[] for _ in range(env.num_envs)]
    done: list[Arrays] = []
    while len(done) < rows:
        before = _before(env, obs)
        action = policy.act(obs)
        base = getattr(policy, "last_base_action", None)
        step = env.step(action)
        taken = {"action": action, "joint_target_rad": env.joint_targets}
        if base is not None:
            taken[BASE_ACTION] = base
        before |= {name: value.cpu().numpy() for name, value in taken.items()}
        ended = step.terminated | step.truncated
        for row, episode in enumerate(open_rows):
            taken_row = {name: value[row] for name, value in before.items()}
            episode.append(taken_row | {"episode_start": np.array(not episode)})
            if bool(ended[row]):
                done += episode
                open_rows[row] = []
        if bool(ended.any()):
            policy.reset(ended.nonzero().squeeze(1))
        obs = step.obs
    return {name: np.stack([row[name] for row in done]) for name in done[0]}


def _before(env: ArmStepEnv, obs: Observation) -> Arrays:
    """Measurements and observations before a step, (N, ...) by its name in a recording."""
    last_action: torch.Tensor = env.env.action_manager.get_term(ACTION).raw_action
    signals = env.state.signals(last_action)
    names = ("joint_pos_rad", "joint_vel_rad_s", "command", "last_action", "time_s")
    seen: dict[str, torch.Tensor] = {name: getattr(signals, name) for name in names}
    seen[OBSERVATION] = obs[STATE]
    if signals.object_pose_in_base is not None:
        seen[OBJECT_ARRAY] = signals.object_pose_in_base
    seen |= {key: value for key, value in obs.items() if key.startswith(IMAGE_PREFIX)}
    seen |= {
        EXTRA_PREFIX + name: signals.extra[name]
        for name in needed_signals(env.state.contract).keys() & signals.extra.keys()
    }
    return {name: value.cpu().numpy().copy() for name, value in seen.items()}
