"""Held-out episodes of trained runs and of drivers that learned nothing, on the same maps, starts and cars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gantry_hardware.errors import GantryError
from gantry_policies.common.checkpoint import list_checkpoints, load_newest
from gantry_policies.on_policy.trainer import CHECKPOINTS
from gantry_sim.driving.bench.drivers import Act, baseline, lane_width_m
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import COUNTED, ENDS, drive_episodes, scores_of
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.registry import Task, acting
from gantry_sim.training.run_folder import EVALUATION_SEED, RunCfg, git_commit, read_run, write_json
from gantry_sim.training.run_validation import read_run_file
from gantry_sim.training.train import open_trained

Found = dict[str, np.ndarray]
"""Results of E episodes, each (E,), see :func:`gantry_sim.driving.evaluation.drive_episodes`."""
Share = Callable[[float], None]
"""Told the share that is done."""


@dataclass(frozen=True)
class Held:
    """Settings of scoring."""

    episodes: int = 200
    """Held-out episodes of each driver, side by side."""
    full_model: bool = False
    """Cars with tyres instead of the training's."""
    seed: int = EVALUATION_SEED
    """Of the episodes."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise GantryError(f"There are {self.episodes} episodes to score, expected at least 1.")

    @property
    def model(self) -> str:
        """``training`` or ``full``."""
        return "full" if self.full_model else "training"

    def env(self, task: Task, env_cfg: Any, **changes: Any) -> DriveEnv:
        """A fresh environment, the same for every driver that is scored.

        Args:
            task: The task.
            env_cfg: Its configuration in training.
            changes: Of fields of the configuration to evaluate on.

        Raises:
            GantryError: If it is no driving task.
        """
        asked = task.evaluation(env_cfg, num_envs=self.episodes, full_model=self.full_model, **changes)
        env = task.make_env(asked, "cpu", self.seed)
        if not isinstance(env, DriveEnv):
            raise GantryError(f"Task '{task.name}' makes a {type(env).__name__}, expected a driving task.")
        return env


def episodes_of(held: Held, task: Task, env_cfg: Any, policy: Callable[[Any], Any], **changes: Any) -> Found:
    """Held-out episodes of a policy: observations (E, obs) to actions (E, 2)."""
    with torch_threads(1):
        return drive_episodes(held.env(task, env_cfg, **changes), lambda _, obs: policy(obs["state"]))


def episodes_without_learning(held: Held, task: Task, env_cfg: Any, name: str, on_share: Share) -> Found | None:
    """Held-out episodes of a driver of :data:`~gantry_sim.driving.bench.drivers.RACERS`; None if it cannot drive."""
    with torch_threads(1):
        env = held.env(task, env_cfg)
        act: Act | None = baseline(name, env, held.seed)
        return None if act is None else drive_episodes(env, act, on_share)


@dataclass(frozen=True)
class ScoredRun:
    """Held-out episodes of a trained run."""

    folder: Path
    """Run folder."""
    cfg: RunCfg
    """Settings of its training."""
    env_steps: int
    """Decisions that it was trained with."""
    train_wall_s: float
    """Time of the training."""
    found: Found
    """The episodes."""


def score_run(folder: Path, held: Held, on_share: Share = lambda share: None) -> ScoredRun:
    """Score the newest checkpoint of a run, or read what an earlier call left in its folder.

    Scores are taken over if checkpoint, way of scoring and commit of this code are still the same.

    Raises:
        RunError: If the folder holds no run.
        CheckpointError: If it was not trained.
    """
    cfg = read_run(folder)
    path, names = folder / f"episodes_{held.model}.json", list_checkpoints(folder / CHECKPOINTS)
    newest = names[-1].name if names else ""
    key = {"checkpoint": newest, "episodes": held.episodes, "seed": held.seed, "git_commit": git_commit()}
    kept: dict[str, Any] | None = _kept(path, key)
    if kept is None:
        _, trained = open_trained(folder)
        with torch_threads(1):
            env = held.env(cfg.task, cfg.preset.env)
            act = acting(trained.make_policy, env)
            found = drive_episodes(env, lambda _, obs: act(obs), on_share)
        plain = {name: values.tolist() for name, values in found.items()}
        kept = {**key, "env_steps": trained.env_steps, "train_wall_s": trained.wall_s, "found": plain}
        write_json(path, kept)
    found = {name: np.array(values) for name, values in kept["found"].items()}
    return ScoredRun(folder, cfg, kept["env_steps"], kept["train_wall_s"], found)


def _kept(path: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        kept = read_run_file(path)
    except (OSError, ValueError):
        return None
    return kept if all(kept.get(name) == value for name, value in key.items()) else None


def is_trained(folder: Path) -> bool:
    """Whether a run has come to the end of its training."""
    if not list_checkpoints(folder / CHECKPOINTS):
        return False
    return load_newest(folder / CHECKPOINTS)[1]["env_steps"] >= read_run(folder).preset.learner.total_steps


def pooled(found: Sequence[Found]) -> Found:
    """Episodes of several drivers as if of one."""
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def scores(found: Found, width_m: float | None) -> dict[str, Any]:
    """The scores of :func:`~gantry_sim.driving.evaluation.scores_of`, and what tables show beside them.

    Args:
        found: The episodes.
        width_m: Mean width of the lanes; None without lanes.

    Returns:
        Those, ``lateral_std_m`` (between episodes) and ``lateral_nrmse`` (in widths of a lane) where there are lanes,
        and ``ends_per_km`` of what ends an episode without being an infraction.
    """
    result = scores_of(found)
    if width_m is not None:
        result["lateral_std_m"] = float(np.std(found["lateral_rmse_m"]))
        result["lateral_nrmse"] = result["lateral_rmse_m"]["mean"] / width_m
    km = max(float(np.sum(found["driven_m"])) / 1000.0, 1e-9)
    others = [name for name in ENDS if name in found and name not in (*COUNTED, "finished")]
    result["ends_per_km"] = {name: float(np.sum(found[name])) / km for name in others}
    return result


def width_of(held: Held, task: Task, env_cfg: Any) -> float | None:
    """Mean width of the lanes on the held-out maps; None without lanes."""
    return lane_width_m(replace(held, episodes=max(held.episodes, 32)).env(task, env_cfg))
