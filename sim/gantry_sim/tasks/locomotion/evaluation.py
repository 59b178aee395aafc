"""Scores of velocity policies, as the sim-to-sim gate computes them, and records of their exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from gantry_deploy.evaluation.metrics import EpisodeScores, bootstrap_mean, rate_interval, tracking_scores
from gantry_deploy.policy.golden import EXTRA_PREFIX
from gantry_hardware.robots import robot_spec
from gantry_sim.envs.managed import ManagedBatch
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.envs.rsl_rl import BatchedVecEnv
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.locomotion.motion import MotionScores
from gantry_sim.tasks.locomotion.state import LocomotionState
from gantry_sim.tasks.locomotion.terms import ContractAction
from gantry_sim.tasks.locomotion.velocity_cfg import VelocityCfg
from gantry_sim.tasks.registry import MakePolicy, Task, acting

STANDING_SHARE = 4
"""One episode without a command for so many with one."""
STANDING_S = 10.0
"""Length of an episode without a command."""
RECORDED_RESAMPLE_S = (0.5, 1.0)
"""Commands change this often in a recording, so that it holds many of them, standing included."""


def evaluate_velocity(
    task: Task,
    env_cfg: VelocityCfg,
    make_policy: MakePolicy,
    *,
    episodes: int,
    device: str,
    seed: int,
    full_model: bool,
    on_progress: Callable[[float], None],
) -> dict[str, Any]:
    """Episodes of the task's length in which every command moves, then a quarter as many that are told to stand; where
    training pushes the robots, both again with pushes, standing then for the task's length as well.

    Args:
        task: The task.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them, deterministic.
        episodes: Number of episodes with commands; friction, mass and commands differ between them.
        device: Where to simulate.
        seed: Of the episodes.
        full_model: Simulate every collision shape with the finer physics instead of the training model.
        on_progress: Called with the share that is done.

    Returns:
        Scores with confidence intervals, those of standing under ``standing``, those with pushes under ``pushed`` and
        ``standing_pushed``.
    """
    still = max(1, episodes // STANDING_SHARE)
    cfg = task.evaluation(env_cfg, num_envs=episodes, full_model=full_model)
    rest = task.evaluation(env_cfg, num_envs=still, full_model=full_model, standing=True)
    rest = replace(rest, episode_s=min(STANDING_S, rest.episode_s))
    parts = {
        "": (cfg, _tracking, episodes * cfg.episode_s),
        "standing": (rest, _standing, still * rest.episode_s),
    }
    if env_cfg.push_m_s > 0.0:
        parts["pushed"] = (replace(cfg, push_m_s=env_cfg.push_m_s), _tracking, episodes * cfg.episode_s)
        shoved = replace(rest, push_m_s=env_cfg.push_m_s, episode_s=cfg.episode_s)
        parts["standing_pushed"] = (shoved, _standing, still * cfg.episode_s)
    total, before, result = sum(work for _, _, work in parts.values()), 0.0, {}
    for name, (part, score, work) in parts.items():
        scores = score(task, part, make_policy, device, seed, _section(on_progress, before / total, work / total))
        result |= {name: scores} if name else scores
        before += work
    return result


def _section(on_progress: Callable[[float], None], start: float, share: float) -> Callable[[float], None]:
    """Progress of a part of the work."""
    return lambda done: on_progress(start + share * done)


def _tracking(
    task: Task, cfg: VelocityCfg, make_policy: MakePolicy, device: str, seed: int, on_progress: Callable[[float], None]
) -> dict[str, Any]:
    env, vec_env = fresh_env(task, cfg, device, seed)
    act = acting(make_policy, env)
    obs = vec_env.get_observations()
    scores = EpisodeScores(torch.zeros(cfg.num_envs, 1, device=device), robot_spec(cfg.robot).fall_height_m)
    motion = MotionScores(env)
    steps = int(env.max_episode_length) - 1  # the last step would reset every episode
    with torch.inference_mode():
        for step in range(steps):
            command = LocomotionState.of(env).command.clone()
            obs = vec_env.step(act(obs))[0]
            state = LocomotionState.of(env)
            # An environment that has just been reset shows its next episode; it has fallen, and counts no more.
            scores.fallen = scores.fallen | env.reset_terminated
            scores.update(state.lin_vel_b, state.ang_vel_b, state.quat, state.base_height, command)
            motion.update(~scores.fallen)
            on_progress((step + 1) / steps)
    env.close()
    result = tracking_scores(
        scores.lin_vel_error_m_s.cpu().numpy(),
        scores.yaw_rate_error_rad_s.cpu().numpy(),
        scores.fallen.cpu().numpy(),
    )
    seconds = float(np.round(steps * env.step_dt, 3))
    return asdict(result) | {"seconds_per_episode": seconds, "motion": motion.result()}


def _standing(
    task: Task, cfg: VelocityCfg, make_policy: MakePolicy, device: str, seed: int, on_progress: Callable[[float], None]
) -> dict[str, Any]:
    """Distance that robots without a command get in the plane, per second until the end or the fall, and share of those
    that fall.
    """
    env, vec_env = fresh_env(task, cfg, device, seed)
    act = acting(make_policy, env)
    obs = vec_env.get_observations()
    base = env.robot.indexing.free_joint_q_adr[:2]
    start = env.sim.data.qpos[:, base].clone()
    end, stood = start.clone(), torch.zeros(cfg.num_envs, device=device)
    fallen = torch.zeros(cfg.num_envs, dtype=torch.bool, device=device)
    motion = MotionScores(env)
    steps = int(env.max_episode_length) - 1
    with torch.inference_mode():
        for step in range(steps):
            obs = vec_env.step(act(obs))[0]
            fallen = fallen | env.reset_terminated
            end = torch.where(fallen[:, None], end, env.sim.data.qpos[:, base])
            stood += (~fallen).float()
            motion.update(~fallen)
            on_progress((step + 1) / steps)
    env.close()
    drift_m_s = (end - start).norm(dim=-1) / (stood * env.step_dt)  # NaN, which does not count, if it fell at once
    return {
        "episodes": cfg.num_envs,
        "seconds_per_episode": float(np.round(steps * env.step_dt, 3)),
        "drift_m_s": asdict(bootstrap_mean(drift_m_s.cpu().numpy())),
        "fall_rate": asdict(rate_interval(int(fallen.sum()), cfg.num_envs)),
        "motion": motion.result(),
    }


def record_velocity(
    task: Task,
    env_cfg: VelocityCfg,
    make_policy: MakePolicy,
    *,
    seed: int,
    envs: int = 6,
    steps: int = 240,
    before: int = 50,
) -> dict[str, np.ndarray]:
    """Signals, observations and joint targets of the training environment under the policy.

    Robots are in motion when it begins, at times spread over the length of an episode, so that the gait clock is
    recorded far from zero and one episode ends and another begins; commands change quickly.

    Args:
        task: The task.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them, deterministic.
        seed: Of the episodes.
        envs: Environments side by side.
        steps: Control steps of each.
        before: Control steps that come first and are not recorded.

    Returns:
        Arrays of ``envs * steps`` rows, environment by environment, ``episode_start`` marking those without a past.
    """
    cfg = replace(env_cfg, num_envs=envs, resample_s=RECORDED_RESAMPLE_S)
    return record_signals(task, cfg, make_policy, seed=seed, steps=steps, before=before)


def record_signals(
    task: Task, cfg: Any, make_policy: MakePolicy, *, seed: int, steps: int, before: int
) -> dict[str, np.ndarray]:
    """The recording of :func:`record_velocity`, of any task whose actor sees through
    :class:`~gantry_sim.tasks.locomotion.terms.ActorObservation` and acts through ``ContractAction``.

    Args:
        task: The task.
        cfg: Its configuration, with the number of environments to record.
        make_policy: From environments to the policy that acts in them, deterministic.
        seed: Of the episodes.
        steps: Control steps of each environment.
        before: Control steps that come first and are not recorded.
    """
    env, vec_env = fresh_env(task, cfg, "cpu", seed)
    act = acting(make_policy, env)
    envs = cfg.num_envs
    length = int(env.max_episode_length)
    env.episode_length_buf[:] = torch.arange(envs) * max(0, length - before - steps // 2) // max(1, envs - 1)
    env.state_version += 1
    joint_action = env.action_manager.get_term(env.task_state.names.action)
    assert isinstance(joint_action, ContractAction)
    rows: dict[str, list[torch.Tensor]] = {}
    with torch.inference_mode():
        obs: Any = vec_env.get_observations()
        for _ in range(before):
            obs = vec_env.step(act(obs))[0]
        env.observation_manager.reset()  # a replay of the recording has no earlier frames
        obs = env.observation_manager.compute(update_history=True)
        start = torch.ones(envs, dtype=torch.bool)
        for _ in range(steps):
            measured = dict(vars(LocomotionState.of(env).measured))
            measured |= {EXTRA_PREFIX + name: value for name, value in measured.pop("extra").items()}
            signals = {name: value.clone() for name, value in measured.items() if value is not None}
            action = act(obs)
            step = signals | {"observation": obs["actor"].clone(), "episode_start": start.clone()}
            obs, _, done, _ = vec_env.step(action)
            step["joint_target_rad"] = joint_action.targets.clone()
            for name, value in step.items():
                rows.setdefault(name, []).append(value)
            start = done.bool()
    env.close()
    return {name: torch.stack(values, dim=1).flatten(0, 1).numpy() for name, values in rows.items()}


def fresh_env(task: Task, cfg: Any, device: str, seed: int) -> tuple[GantryEnv, BatchedVecEnv]:
    """An environment at the beginning of an episode everywhere."""
    with quietly():
        batch = task.make_env(cfg, device, seed)
        assert isinstance(batch, ManagedBatch)
        env, vec_env = batch.env, BatchedVecEnv(batch)
    env.episode_length_buf[:] = 0
    env.state_version += 1
    return env, vec_env
