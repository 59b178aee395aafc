"""Scores of policies of other packages' tasks, and records for their bundles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.evaluation.metrics import bootstrap_mean, rate_interval
from gantry_deploy.observations.builder import Signals
from gantry_sim.envs.rsl_rl import BatchedVecEnv
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.registry import MakePolicy, Task, acting


class Reader(Protocol):
    """State of an environment with a contract, as signals of its robot."""

    @property
    def follows_velocity(self) -> bool:
        """Whether a velocity is asked of the policy; nothing otherwise."""
        ...

    def command(self) -> Tensor:
        """Commanded velocities (N, 3) in the base frame, m/s and rad/s; (N, 0) where nothing is asked."""
        ...

    def errors(self, asked: Tensor) -> Tensor:
        """Errors (2, N) of planar velocity, m/s, and yaw rate, rad/s, from what was asked for, (N, 3)."""
        ...

    def signals(self) -> Signals:
        """Of the present state, n joints in the order of the actions."""
        ...

    def targets(self) -> dict[str, Tensor]:
        """Joint targets (N, n) of the step just taken, by their names in a recording."""
        ...


MakeReader = Callable[[Any, Any], Reader | None]
"""(environment, configuration) -> its reader; None where the task has no contract."""


def evaluate(
    make_reader: MakeReader,
    task: Task,
    env_cfg: Any,
    make_policy: MakePolicy,
    *,
    episodes: int,
    device: str,
    seed: int,
    full_model: bool,
    on_progress: Callable[[float], None],
) -> dict[str, Any]:
    """One episode in each of as many environments, noise and randomisation as in training.

    Args:
        make_reader: Of the package.
        task: The task; it has one model.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them, deterministic.
        episodes: Number of episodes.
        device: Where to simulate.
        seed: Of the episodes.
        full_model: Of no effect here.
        on_progress: Called with the share that is done.

    Returns:
        ``return`` and ``length_s`` of an episode, ``ended_early_rate``, the share that the task ended before its
        time, and of a task with a velocity command the mean errors until then.
    """
    del full_model
    env, vec_env = _fresh(task, replace(env_cfg, num_envs=episodes), device, seed)
    act, obs = acting(make_policy, env), vec_env.get_observations()
    alive = torch.ones(episodes, dtype=torch.bool, device=env.device)
    ended, total, steps = ~alive, torch.zeros(episodes, device=env.device), torch.zeros(episodes, device=env.device)
    reader = _of_velocities(make_reader(env, env_cfg))
    errors = torch.zeros(2, episodes, device=env.device)
    length = int(env.max_episode_length)
    with torch.inference_mode():
        for step in range(length):
            asked = None if reader is None else reader.command().clone()
            obs, reward, _, _ = vec_env.step(act(obs))
            total, steps = total + reward * alive, steps + alive
            ended, out = ended | (alive & env.reset_terminated), env.reset_terminated | env.reset_time_outs
            alive = alive & ~out
            if reader is not None and asked is not None:
                errors += reader.errors(asked) * alive
            on_progress((step + 1) / length)
            if not alive.any():
                break
    env.close()
    on_progress(1.0)
    scores = {"return": total, "length_s": steps * env.step_dt}
    if reader is not None:
        mean = errors / (steps - 1).clamp(min=1)
        scores |= {"lin_vel_error_m_s": mean[0], "yaw_rate_error_rad_s": mean[1]}
    return {
        "episodes": episodes,
        "ended_early_rate": asdict(rate_interval(int(ended.sum()), episodes)),
        **{name: asdict(bootstrap_mean(values.cpu().numpy())) for name, values in scores.items()},
    }


def _of_velocities(reader: Reader | None) -> Reader | None:
    """The reader, if a velocity is asked of the policy."""
    return reader if reader is not None and reader.follows_velocity else None


def record(
    make_reader: MakeReader,
    task: Task,
    env_cfg: Any,
    make_policy: MakePolicy,
    *,
    seed: int,
    envs: int = 6,
    steps: int = 200,
    before: int = 25,
) -> dict[str, np.ndarray]:
    """Signals, observations and joint targets of the environment under the policy, without noise and delays: they
    are added to finished terms, and no signals would give the same observation.

    Args:
        make_reader: Of the package.
        task: The task.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them, deterministic.
        seed: Of the episodes.
        envs: Environments side by side.
        steps: Control steps of each.
        before: Control steps that come first and are not recorded.

    Returns:
        Arrays of ``envs * steps`` rows, environment by environment, ``episode_start`` marking those without a past.

    Raises:
        GantryError: If the task has no contract.
    """
    task.contract(env_cfg)
    env, vec_env = _fresh(task, replace(env_cfg, num_envs=envs, noise=False), "cpu", seed)
    act, reader = acting(make_policy, env), make_reader(env, env_cfg)
    assert reader is not None
    length = int(env.max_episode_length)
    env.episode_length_buf[:] = torch.arange(envs) * max(0, length - before - steps // 2) // max(1, envs - 1)
    rows: dict[str, list[Tensor]] = {}
    with torch.inference_mode():
        obs: Any = vec_env.get_observations()
        for _ in range(before):
            obs = vec_env.step(act(obs))[0]
        env.observation_manager.reset()  # a replay of the recording has no earlier frames
        env.observation_manager.compute(update_history=True)
        obs = _observed(vec_env)
        start = torch.ones(envs, dtype=torch.bool)
        for _ in range(steps):
            signals = {name: value for name, value in vars(reader.signals()).items() if isinstance(value, Tensor)}
            step = {name: value.clone() for name, value in signals.items()}
            step |= {"observation": obs["actor"].clone(), "episode_start": start.clone()}
            obs, _, done, _ = vec_env.step(act(obs))
            # A reset leaves them as they were.
            step |= {name: values.clone() for name, values in reader.targets().items()}
            for name, value in step.items():
                rows.setdefault(name, []).append(value)
            start = done.bool()
    env.close()
    return {name: torch.stack(values, dim=1).flatten(0, 1).numpy() for name, values in rows.items()}


def _fresh(task: Task, cfg: Any, device: str, seed: int) -> tuple[Any, BatchedVecEnv]:
    """Environments at the beginning of an episode everywhere."""
    with quietly():
        batch: Any = task.make_env(cfg, device, seed)
        vec_env = BatchedVecEnv(batch)
    batch.begin_together()
    return batch.env, vec_env


def _observed(vec_env: BatchedVecEnv) -> Any:
    """Observations by rsl_rl's groups, made anew."""
    vec_env._obs = vec_env.batched.observe()  # type: ignore[attr-defined]
    return vec_env.get_observations()
