"""Reward of an episode's progress by its own successes: SRPO (arXiv 2511.15605), with state features for a video model.

A success is worth 1. A failed episode is worth the more, the nearer its way has come to that of a success that the same
policy has had before: 0.6 sigmoid(10 (0.5 - d)), where d is its distance from the nearest of them, between 0 and 1 over
the newest failures. Before the first success a failure is worth nothing. All other steps give no reward.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE, BatchedEnv, EnvStep, Observation

FEATURES, KIND = "progress_features", "progress_kind"
"""Extras of a step by which episodes are compared: features (N, k), and the kind of the episode (N,), int64."""
LEAST_SPREAD = 1e-3
"""A feature that hardly varies among successes is divided by no less, in its own unit."""


@dataclass(frozen=True)
class ProgressCfg:
    """Settings of the reward; the numbers of the sigmoid are the paper's."""

    points: int = 8
    """Moments of an episode, evenly spread over its length, at which its features are compared."""
    successes: int = 200
    """Newest successes that are kept."""
    failures: int = 500
    """Newest failures; their distances say what is near and what is far."""
    most: float = 0.6
    """Largest reward of a failure."""
    slope: float = 10.0
    """Steepness of the sigmoid over the distance from 0 to 1."""

    def __post_init__(self) -> None:
        for name in ("points", "successes", "failures"):
            if getattr(self, name) < 1:
                raise GantryError(f"progress.{name} is {getattr(self, name)}, expected at least 1.")
        if not 0.0 <= self.most < 1.0 or not self.slope > 0.0:
            raise GantryError(
                f"progress.most is {self.most} and progress.slope {self.slope}, expected less than 1 and more than 0."
            )


class ProgressEnv:
    """Environments with the progress of their episodes as the reward; everything else is theirs.

    Args:
        env: Environments; features (N, k) are the extra :data:`FEATURES` of their steps, or the observation that a step
            led to. Episodes are compared with successes of their own kind alone, the extra :data:`KIND`, (N,) int64.
        cfg: Settings.
    """

    def __init__(self, env: BatchedEnv, cfg: ProgressCfg | None = None) -> None:
        self.inner, self.rules = env, cfg or ProgressCfg()
        self.num_envs, self.device, self.action_size = env.num_envs, env.device, env.action_size
        self.keep_final_obs = True
        """Of no effect: episodes are compared to their last observation."""
        self.max_episode_steps, self.dt_s, self.obs_shapes = env.max_episode_steps, env.dt_s, env.obs_shapes
        self._ways: list[list[Tensor]] = [[] for _ in range(env.num_envs)]
        self._successes: dict[int, deque[Tensor]] = {}
        self._distances: dict[int, deque[float]] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # While a copy is made there is none yet.
            raise AttributeError(name)
        return getattr(self.inner, name)

    def close(self) -> None:
        """Release the environments."""
        self.inner.close()

    def reset(self) -> Observation:
        """Begin new episodes everywhere; returns their first observations, (N, ...) by key."""
        obs = self.inner.reset()
        self._ways = [[] for _ in self._ways]
        return obs

    def step(self, action: Tensor) -> EnvStep:
        """One step; actions (N, a), dimensionless. The reward is 0 except where an episode ends."""
        step = self.inner.step(action)
        seen, ended = step.extras.get(FEATURES, step.next_obs[STATE]), step.terminated | step.truncated
        kinds = step.extras.get(KIND, torch.zeros(len(ended), dtype=torch.int64))
        reward = torch.zeros_like(step.reward)
        for row, way in enumerate(self._ways):
            way.append(seen[row])
        failed: list[tuple[int, Tensor]] = []
        for row in ended.nonzero().flatten().tolist():
            way, self._ways[row] = self._sampled(self._ways[row]), []
            if bool(step.success[row]):
                reward[row] = 1.0
                self._successes.setdefault(int(kinds[row]), deque(maxlen=self.rules.successes)).append(way)
            else:
                failed.append((row, way))
        for row, way in failed:
            reward[row] = self._progress(int(kinds[row]), way)
        return replace(step, reward=reward)

    def training_state(self) -> dict[str, Any]:
        """State of the environments, and the ways of successes and distances of failures so far."""
        inner = getattr(self.inner, "training_state", dict)()
        return {
            "inner": inner,
            "successes": {kind: torch.stack(list(ways)) for kind, ways in self._successes.items() if ways},
            "distances": {kind: list(values) for kind, values in self._distances.items()},
        }

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Come back to such a state; ways of episodes that were under way begin in their midst."""
        if state["inner"]:
            self.inner.restore_training_state(state["inner"])  # type: ignore[attr-defined]
        self._successes = {kind: deque(ways, self.rules.successes) for kind, ways in state["successes"].items()}
        self._distances = {kind: deque(values, self.rules.failures) for kind, values in state["distances"].items()}
        self._ways = [[] for _ in self._ways]

    def _progress(self, kind: int, way: Tensor) -> float:
        """Reward of a failed episode of a kind, with features (points, k) along its way."""
        cfg, known = self.rules, self._successes.get(kind)
        if not known:
            return 0.0
        ways = torch.stack(list(known))
        spread = ways.flatten(0, 1).std(dim=0, unbiased=False).clamp(min=LEAST_SPREAD)
        distance = float((((ways - way) / spread) ** 2).mean(dim=(1, 2)).sqrt().min())
        seen = self._distances.setdefault(kind, deque(maxlen=cfg.failures))
        seen.append(distance)
        near, far = min(seen), max(seen)
        share = (distance - near) / (far - near) if far > near else 0.5
        return cfg.most / (1.0 + math.exp(-cfg.slope * (0.5 - share)))

    def _sampled(self, way: list[Tensor]) -> Tensor:
        """Features (points, k) at moments that are evenly spread over an episode."""
        places = torch.linspace(0, len(way) - 1, self.rules.points).round().long()
        return torch.stack([way[int(place)] for place in places]).cpu()
