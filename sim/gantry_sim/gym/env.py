"""Environments of gymnasium as the parallel environments that off-policy learners train on."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import own_cores
from gantry_policies.common.batched_env import EnvStep, Observation
from gantry_sim.gym.cfg import GymCfg, make_plan
from gantry_sim.gym.episodes import ENDED, FAILURE, LAST, NOW, REWARD, SUCCESS_KEYS, TRACE, EpisodeGroup
from gantry_sim.gym.layout import GymEnvError


class GymStepEnv:
    """Implements :class:`gantry_policies.common.batched_env.BatchedEnv`.

    The environments are shared out over worker processes, each of which steps its own one after the other. An episode
    depends on the seed, its number and its actions alone, and so not on how many processes there are, as long as the
    environment draws its chance from ``reset(seed=...)`` or from the global generators of Python and numpy.

    Args:
        cfg: The environments.
        seed: Of the episodes; the same seed gives the same ones, in the same order.
        device: Where tensors live.

    Raises:
        GantryError: If there is no such environment, it does not fit, or a worker cannot start.
    """

    def __init__(self, cfg: GymCfg, seed: int = 0, device: str = "cpu") -> None:
        self.cfg = cfg
        self.num_envs = cfg.num_envs
        self.device = device
        self.keep_final_obs = True
        """``next_obs`` always holds the last observation of episodes that ended."""
        self.plan = make_plan(cfg)
        self.action_size = self.plan.action.low.size
        self.max_episode_steps = self.plan.max_episode_steps
        self.dt_s = self.plan.dt_s
        self.obs_shapes: dict[str, tuple[int, ...]] = self.plan.observation.shapes
        workers = min(_processes(cfg), cfg.num_envs)
        self._slots = math.ceil(cfg.num_envs / max(1, workers))
        groups = [range(row, min(row + self._slots, cfg.num_envs)) for row in range(0, cfg.num_envs, self._slots)]
        makers = [partial(EpisodeGroup, cfg, self.plan, seed, tuple(rows), self._slots, os.getpid()) for rows in groups]
        self._groups = len(groups)
        self._begun = False
        self._warned = False
        try:
            # Workers start afresh: a copy of this process would hold half of its threads and graphics.
            self._vector = AsyncVectorEnv(makers, context="spawn") if workers else SyncVectorEnv(makers)
        except (EOFError, OSError) as error:
            raise GymEnvError(
                f"A worker process for '{cfg.env_id}' ended while it started; what it said is above. A script that "
                "makes environments must do so below `if __name__ == '__main__':`, or with processes=0."
            ) from error

    def reset(self) -> Observation:
        """Begin new episodes everywhere; returns their first observations.

        Raises:
            GymEnvError: If an environment failed, or its process ended.
        """
        told, info = self._answer(self._vector.reset, "reset")
        self._raise_failure(info)
        self._begun = True
        return self._observation(told, NOW)

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions, (N, action_size) in [-1, 1], without unit.

        Raises:
            GymEnvError: If an environment failed, or its process ended; nothing can be done with the others then.
            GantryError: If the action has another shape or is not finite, or the environments were never reset.
        """
        if tuple(action.shape) != (self.num_envs, self.action_size):
            raise GantryError(
                f"The action has shape {tuple(action.shape)}, expected ({self.num_envs}, {self.action_size})."
            )
        if not bool(torch.isfinite(action).all()):
            raise GantryError("An action is not finite.")
        if not self._begun:
            raise GantryError("The environments were never reset; call reset() before the first step().")
        rows = np.zeros((self._groups * self._slots, self.action_size), np.float32)
        rows[: self.num_envs] = action.detach().cpu().numpy()
        batch = rows.reshape(self._groups, self._slots, self.action_size)
        told, *_, info = self._answer(lambda: self._vector.step(batch), "step")
        self._raise_failure(info)
        terminated, truncated, success, known = self._tensor(told[ENDED]).bool().unbind(-1)
        self._warn_unknown((terminated | truncated) & ~known)
        return EnvStep(
            self._observation(told, NOW),
            self._observation(told, LAST),
            self._tensor(told[REWARD]),
            terminated,
            truncated,
            success,
        )

    def close(self) -> None:
        """Release environments and processes; more than once does no harm."""
        self._begun = False
        if self._vector.closed:
            return
        try:
            self._vector.close()
        except (EOFError, OSError):
            self._end_workers()

    def _answer(self, ask: Callable[[], Any], what: str) -> Any:
        try:
            return ask()
        except (EOFError, OSError) as error:
            codes = self._end_workers()
            raise GymEnvError(
                f"A worker process for '{self.cfg.env_id}' ended during a {what} ({codes}); it may have crashed, or "
                "have been killed for want of memory. processes=0 shows where, fewer num_envs need less."
            ) from error

    def _raise_failure(self, info: dict[str, Any]) -> None:
        if FAILURE not in info:
            return
        text, trace = next((f, t) for f, t in zip(info[FAILURE], info[TRACE], strict=True) if f)
        self.close()
        raise GymEnvError(text) from RuntimeError(trace)

    def _end_workers(self) -> str:
        """End all processes of a broken vector; returns in words what became of those that ended by themselves."""
        processes = getattr(self._vector, "processes", [])
        for process in processes:
            process.join(0.5)
            if not process.is_alive():
                break
        codes = [f"{process.name} exit code {process.exitcode}" for process in processes if not process.is_alive()]
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        self._vector.closed = True
        self._begun = False
        return ", ".join(codes) or "no exit code"

    def _observation(self, told: dict[str, np.ndarray], prefix: str) -> Observation:
        return {key: self._tensor(told[f"{prefix}{key}"]) for key in self.obs_shapes}

    def _tensor(self, values: np.ndarray) -> Tensor:
        """From (groups, slots, ...) to (N, ...)."""
        return torch.from_numpy(values.reshape(-1, *values.shape[2:])[: self.num_envs]).to(self.device)

    def _warn_unknown(self, silent: Tensor) -> None:
        if self._warned or not bool(silent.any()):
            return
        self._warned = True
        keys = ", ".join(SUCCESS_KEYS)
        warnings.warn(
            f"'{self.cfg.env_id}' ended an episode without a word on success ({keys} in info), so none is counted; "
            "success_reward=NUMBER counts steps with at least that reward.",
            stacklevel=3,
        )


def _processes(cfg: GymCfg) -> int:
    if cfg.processes is not None:
        return cfg.processes
    if cfg.num_envs == 1:
        return 0
    return own_cores()
