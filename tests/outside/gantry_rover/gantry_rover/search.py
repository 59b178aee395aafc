"""The cross-entropy method on a linear policy: one candidate in each environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gantry_hardware.training.trainer import CHECKPOINTS, Report, Trainer
from gantry_policies.common.batched_env import STATE, BatchedEnv
from gantry_policies.common.checkpoint import all_finite, load_newest, save_checkpoint
from gantry_policies.common.export import export_bundle
from gantry_sim.tasks.registry import Preset, Task, from_flat
from gantry_sim.training.algorithms.registry import Algorithm, TrainedPolicy
from gantry_sim.training.run_cfg import RunCfg


@dataclass(frozen=True)
class SearchCfg:
    """Settings of the search."""

    total_steps: int = 1_000_000
    """Control steps of all environments."""
    spread: float = 1.0
    """Standard deviation of the first candidates."""
    elite: float = 0.2
    """Share of the candidates that the next ones are drawn around."""
    episodes: int = 5
    """Episodes of each candidate, which have different commands."""
    save_every_s: float = 60.0
    """Time between two checkpoints."""


class SearchTrainer(Trainer):
    """Generations of candidates, each judged by its return over some episodes."""

    unit = "step"

    def __init__(self, env: BatchedEnv, cfg: SearchCfg, run_dir: Path | None, seed: int) -> None:
        super().__init__(run_dir, cfg.save_every_s)
        self.env, self.cfg, self.steps = env, cfg, 0
        shape = (env.action_size, env.obs_shapes[STATE][0])
        self.mean, self.std = torch.zeros(shape), torch.full(shape, cfg.spread)
        self._random = torch.Generator().manual_seed(seed)

    done = property(lambda self: self.steps)
    env_steps = property(lambda self: self.steps)
    total = property(lambda self: self.cfg.total_steps)

    def work(self) -> Iterator[Report | None]:
        """One generation after the other."""
        while not self.is_complete and not self.is_stopping:
            yield Report("search", {"mean_return": self._generation()})

    def _generation(self) -> float:
        noise = torch.randn(self.env.num_envs, *self.mean.shape, generator=self._random)
        candidates, total = self.mean + self.std * noise, torch.zeros(self.env.num_envs)
        state = self.env.reset()[STATE]
        steps = self.cfg.episodes * self.env.max_episode_steps
        for _ in range(steps):
            step = self.env.step(torch.einsum("nao,no->na", candidates, state).clamp(-1.0, 1.0))
            state, total = step.obs[STATE], total + step.reward
        best = candidates[total.topk(max(2, int(self.cfg.elite * len(total)))).indices]
        self.mean, self.std = best.mean(dim=0), best.std(dim=0) + 0.01
        self.steps += self.env.num_envs * steps
        return float(total.mean())

    def save_checkpoint(self) -> Path | None:
        """Write the distribution of the candidates."""
        if self.run_dir is None:
            return None
        state = {"mean": self.mean, "std": self.std, "steps": self.steps, "wall_s": self.wall_s, "rows": self.rows}
        return save_checkpoint(self.run_dir / CHECKPOINTS, self.steps, {**state, "random": self._random.get_state()})

    def save_after_error(self) -> Path | None:
        """Save what is finite."""
        return self.save_checkpoint() if self.steps and all_finite([self.mean, self.std]) else None

    def resume(self) -> Path:
        """Continue from the newest checkpoint."""
        assert self.run_dir is not None
        path, state = load_newest(self.run_dir / CHECKPOINTS)
        self.mean, self.std, self.steps = state["mean"], state["std"], state["steps"]
        self.wall_s, self.rows = state["wall_s"], state["rows"]
        self._random.set_state(state["random"])
        return path


class LinearPolicy(torch.nn.Module):
    """Observations (N, obs) times the weights, within [-1, 1]."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, observation: Tensor) -> Tensor:
        return torch.clamp(observation @ self.weight.T, -1.0, 1.0)


def make_trainer(run: RunCfg, folder: Path | None) -> SearchTrainer:
    """Environments and search of a run."""
    env = run.task.make_env(run.preset.env, run.device, run.seed)
    return SearchTrainer(env, run.preset.learner, folder, run.seed)


def open_policy(run: RunCfg, folder: Path, trainer: Trainer | None = None) -> TrainedPolicy:
    """The mean of the candidates in the newest checkpoint."""
    _, state = load_newest(folder / CHECKPOINTS)
    policy, steps = LinearPolicy(state["mean"]), int(state["steps"])
    return TrainedPolicy(from_flat(policy), partial(export_bundle, policy), steps, steps, state["wall_s"])


def preset(task: Task) -> Preset:
    """The task's usual environments."""
    return Preset(replace(task.usual_env(), num_envs=64), SearchCfg(), "search")


SEARCH = Algorithm(
    name="search",
    summary="cross-entropy method on a linear policy",
    cfg_type=SearchCfg,
    preset=preset,
    make_trainer=make_trainer,
    open=open_policy,
    may_grow=("total_steps",),
)
"""Registered as ``search``."""
