"""Reward for driving in the form of CaRL (arXiv 2504.17838): progress, multiplied by what was kept.

The reward of a step is the part of the route that was driven in it, in percent, times factors from 0 to 1 that say how
it was driven; a route driven without fault is worth 100 in all. There is nothing to add up, so nothing to be bought
with something else. :class:`AdditiveReward` is another kind, a weighted sum of terms in the manner of Roach
(arXiv 2108.08265), for comparison, and :mod:`gantry_sim.driving.language` a third one, from language goals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_sim.driving.language.cfg import LanguageCfg
from gantry_sim.driving.language.reward import LanguageReward
from gantry_sim.driving.step_info import COMFORT, Reward
from gantry_sim.driving.step_info import DriveFacts as DriveFacts

FACTORS = ("on_route", "speed", "ttc", "comfort", "lane", "calm")
"""Names of the factors of :class:`MultiplicativeReward`."""
KINDS = ("multiplicative", "additive", "language")
"""Kinds of reward."""
TERMS = ("speed", "lane", "heading", "action", "hint")
"""Names of the terms of :class:`AdditiveReward`."""


@dataclass(frozen=True)
class RewardCfg:
    """Numbers of all kinds of reward."""

    kind: str = "multiplicative"
    """A name of :data:`KINDS`."""
    overspeed_m_s: float = 2.23
    """Speed above the limit at which nothing is earned any more."""
    near_collision: float = 0.5
    """Factor after a near collision."""
    discomfort: float = 0.5
    """Share that is lost if every limit of comfort is exceeded."""
    hold_s: float = 50.0
    """Time for which near collisions and discomfort are remembered; a quarter of an episode if that is less, since in a
    short one they would never be forgotten."""
    lane: bool = True
    """Whether leaving the middle of the lane costs; a task that asks to change lanes does without."""
    calm: float = 0.0
    """Share that is lost when the steering action changes by 1; CaRL has none, and its policies were seen to wag."""
    hint: float = 1.0
    """Cost of a fault (a collision, a red light, leaving the road) beside the rest of the route."""
    lane_weight: float = 0.5
    """Of the additive kind, for each half width of the lane from its middle."""
    heading_weight: float = 1.0
    """Of the additive kind, for each radian from the lane's direction."""
    action_weight: float = 0.1
    """Of the additive kind, for a steering action that changes by more than a hundredth."""
    infraction_weight: float = 1.0
    """Of the additive kind: a fault costs this and as much again for each m/s driven in it."""
    language: LanguageCfg = field(default_factory=LanguageCfg)
    """All of the language kind."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise GantryError(f"env.reward.kind is '{self.kind}', expected {KINDS[0]} or {' or '.join(KINDS[1:])}.")
        if not self.overspeed_m_s > 0.0 or not self.hold_s > 0.0:
            raise GantryError(
                f"env.reward.overspeed_m_s is {self.overspeed_m_s} and env.reward.hold_s {self.hold_s}, expected more "
                "than 0."
            )
        for name in ("near_collision", "discomfort", "calm"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise GantryError(f"env.reward.{name} is {getattr(self, name)}, expected 0 to 1.")


class MultiplicativeReward:
    """CaRL's reward for N cars.

    Args:
        cfg: Its numbers.
        num_envs: N.
        dt_s: Time of a step.
        episode_s: Longest episode.
        device: Of all tensors.
    """

    names = FACTORS

    def __init__(self, cfg: RewardCfg, num_envs: int, dt_s: float, episode_s: float, device: str = "cpu") -> None:
        self.cfg = cfg
        self.hold_steps = max(1, round(min(cfg.hold_s, episode_s / 4.0) / dt_s))
        """Steps for which something is remembered."""
        self._left = torch.zeros(num_envs, 1 + len(COMFORT), dtype=torch.int64, device=device)

    @property
    def remembered(self) -> Tensor:
        """``(N, 7)`` from 0 to 1: time for which a near collision and each discomfort will still count.

        A critic has to know, since the reward depends on it.
        """
        return self._left / self.hold_steps

    def reset(self, env_ids: Tensor) -> None:
        """Forget what cars ``(m,)`` did."""
        self._left[env_ids] = 0

    def __call__(self, facts: DriveFacts) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward ``(N,)`` of a step, and its factors ``(N,)`` by name."""
        cfg = self.cfg
        seen = torch.cat((facts.near_collision[:, None], facts.discomfort), dim=1)
        self._left = torch.where(seen, self.hold_steps, (self._left - 1).clamp(min=0))
        counts = self._left > 0
        over = (facts.speed_m_s - facts.speed_limit_m_s).clamp(min=0.0)
        lane = 1.0 - facts.lane_share.abs().clamp(max=1.0)
        ones = torch.ones_like(facts.progress)
        factors = {
            "on_route": (~facts.off_route).to(ones.dtype),
            "speed": (1.0 - over / cfg.overspeed_m_s).clamp(min=0.0),
            "ttc": torch.where(counts[:, 0], cfg.near_collision, ones),
            "comfort": 1.0 - cfg.discomfort * counts[:, 1:].to(ones.dtype).mean(dim=1),
            "lane": torch.where(facts.in_junction, ones, lane) if cfg.lane else ones,
            "calm": 1.0 - cfg.calm * facts.steer_change.abs().clamp(max=1.0),
        }
        reward = facts.progress
        for factor in factors.values():
            reward = reward * factor
        return reward - cfg.hint * facts.fault.to(ones.dtype), factors

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        return {"left": self._left.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        self._left = state["left"].to(self._left.device)


class AdditiveReward(MultiplicativeReward):
    """A shaped sum for N cars: near the safe speed, in the middle of the lane, along it, steering calmly."""

    names = TERMS

    def __call__(self, facts: DriveFacts) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward ``(N,)`` of a step, and its terms ``(N,)`` by name."""
        cfg = self.cfg
        limit = facts.speed_limit_m_s.clamp(min=0.1)
        dtype = facts.progress.dtype
        terms = {
            "speed": 1.0 - (facts.speed_m_s - facts.safe_speed_m_s).abs() / limit,
            "lane": -cfg.lane_weight * torch.where(facts.in_junction, 0.0, facts.lane_share.abs()),
            "heading": -cfg.heading_weight * facts.heading_error_rad.abs(),
            "action": -cfg.action_weight * (facts.steer_change.abs() > 0.01).to(dtype),
            "hint": -cfg.infraction_weight * (1.0 + facts.speed_m_s.abs()) * facts.fault.to(dtype),
        }
        return torch.stack(list(terms.values())).sum(dim=0), terms


def without_language(cfg: RewardCfg) -> RewardCfg:
    """Settings without learning: rewards do not matter there, and language goals cost time and weights."""
    return replace(cfg, kind=KINDS[0]) if cfg.kind == "language" else cfg


def make_reward(cfg: RewardCfg, num_envs: int, dt_s: float, episode_s: float, device: str = "cpu") -> Reward:
    """The kind that is asked for."""
    if cfg.kind == "language":
        return LanguageReward(cfg.language, num_envs, dt_s, device)
    kind = MultiplicativeReward if cfg.kind == "multiplicative" else AdditiveReward
    return kind(cfg, num_envs, dt_s, episode_s, device)
