"""Reward for driving in the form of CaRL (arXiv 2504.17838): progress, multiplied by what was kept.

The reward of a step is the part of the route that was driven in it, in percent, times factors from 0 to 1 that say how
it was driven; a route driven without fault is worth 100 in all. There is nothing to add up, so nothing to be bought
with something else. :class:`AdditiveReward` is another kind, a weighted sum of terms in the manner of Roach
(arXiv 2108.08265), for comparison. Other packages add kinds by the entry-point group :data:`GROUP`, for example
``examples/language_reward``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.plugins import entry_points
from gantry_sim.driving.step_info import COMFORT, Reward, StepInfo

GROUP = "gantry.drive_rewards"
"""Entry-point group of other packages' kinds of reward: name = "module:KIND", a :class:`RewardKind`."""
FACTORS = ("on_route", "speed", "ttc", "comfort", "lane", "steering")
"""Names of the factors of :class:`MultiplicativeReward`."""
TERMS = ("speed", "lane", "heading", "action", "infraction")
"""Names of the terms of :class:`AdditiveReward`."""


@dataclass(frozen=True)
class RewardCfg:
    """Numbers of all kinds of reward."""

    kind: str = "multiplicative"
    """A name of :func:`reward_kinds`."""
    overspeed_m_s: float = 2.23
    """Speed above the limit at which nothing is earned any more."""
    near_collision: float = 0.5
    """Factor after a near collision."""
    discomfort: float = 0.5
    """Share that is lost if every limit of comfort is exceeded."""
    penalty_memory_s: float = 50.0
    """Time for which near collisions and discomfort are remembered; a quarter of an episode if that is less, since in a
    short one they would never be forgotten."""
    lane: bool = True
    """Whether leaving the middle of the lane costs; a task that asks to change lanes does without."""
    steering_smoothness: float = 0.0
    """Share that is lost when the steering action changes by 1; CaRL has none, and its policies were seen to wag."""
    infraction_hint: float = 1.0
    """Cost of a fault (a collision, a red light, leaving the road) beside the rest of the route."""
    lane_weight: float = 0.5
    """Of the additive kind, for each half width of the lane from its middle."""
    heading_weight: float = 1.0
    """Of the additive kind, for each radian from the lane's direction."""
    action_weight: float = 0.1
    """Of the additive kind, for a steering action that changes by more than a hundredth."""
    infraction_weight: float = 1.0
    """Of the additive kind: a fault costs this and as much again for each m/s driven in it."""
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of a kind of another package, by name; empty for the kinds that come along."""

    def __post_init__(self) -> None:
        if self.kind in BUILT_IN and self.options:
            raise GantryError(f"env.reward.options is {self.options}, but kind '{self.kind}' has no options.")
        if self.kind not in BUILT_IN and self.kind not in (known := reward_kinds()):
            raise UnknownNameError("env.reward.kind", self.kind, known)
        for name in ("overspeed_m_s", "penalty_memory_s"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"env.reward.{name} is {getattr(self, name)}, expected more than 0.")
        for name in ("near_collision", "discomfort", "steering_smoothness"):
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
        self.hold_steps = max(1, round(min(cfg.penalty_memory_s, episode_s / 4.0) / dt_s))
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

    def __call__(self, step: StepInfo) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward ``(N,)`` of a step, and its factors ``(N,)`` by name."""
        cfg = self.cfg
        seen = torch.cat((step.near_collision[:, None], step.discomfort), dim=1)
        self._left = torch.where(seen, self.hold_steps, (self._left - 1).clamp(min=0))
        counts = self._left > 0
        over = (step.speed_m_s - step.speed_limit_m_s).clamp(min=0.0)
        lane = 1.0 - step.lane_share.abs().clamp(max=1.0)
        ones = torch.ones_like(step.progress)
        factors = {
            "on_route": (~step.off_route).to(ones.dtype),
            "speed": (1.0 - over / cfg.overspeed_m_s).clamp(min=0.0),
            "ttc": torch.where(counts[:, 0], cfg.near_collision, ones),
            "comfort": 1.0 - cfg.discomfort * counts[:, 1:].to(ones.dtype).mean(dim=1),
            "lane": torch.where(step.in_junction, ones, lane) if cfg.lane else ones,
            "steering": 1.0 - cfg.steering_smoothness * step.steer_change.abs().clamp(max=1.0),
        }
        reward = step.progress
        for factor in factors.values():
            reward = reward * factor
        return reward - cfg.infraction_hint * step.fault.to(ones.dtype), factors

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        return {"left": self._left.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        self._left = state["left"].to(self._left.device)


class AdditiveReward(MultiplicativeReward):
    """A shaped sum for N cars: near the safe speed, in the middle of the lane, along it, steering smoothly."""

    names = TERMS

    def __call__(self, step: StepInfo) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward ``(N,)`` of a step, and its terms ``(N,)`` by name."""
        cfg = self.cfg
        limit = step.speed_limit_m_s.clamp(min=0.1)
        dtype = step.progress.dtype
        terms = {
            "speed": 1.0 - (step.speed_m_s - step.safe_speed_m_s).abs() / limit,
            "lane": -cfg.lane_weight * torch.where(step.in_junction, 0.0, step.lane_share.abs()),
            "heading": -cfg.heading_weight * step.heading_error_rad.abs(),
            "action": -cfg.action_weight * (step.steer_change.abs() > 0.01).to(dtype),
            "infraction": -cfg.infraction_weight * (1.0 + step.speed_m_s.abs()) * step.fault.to(dtype),
        }
        return torch.stack(list(terms.values())).sum(dim=0), terms


@dataclass(frozen=True)
class RewardKind:
    """A kind of reward of a driving task."""

    make: Callable[[RewardCfg, int, float, float, str], Reward]
    """Factory: settings, number of cars, time of a step [s], longest episode [s], device."""
    require: Callable[[RewardCfg], None] = lambda cfg: None
    """Refuse, by a ``GantryError``, options with which no training could begin."""


BUILT_IN = {"multiplicative": RewardKind(MultiplicativeReward), "additive": RewardKind(AdditiveReward)}
"""Kinds that come along."""


def reward_kinds() -> list[str]:
    """Names of all kinds of reward that are installed."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def reward_kind(name: str) -> RewardKind:
    """Look up a kind of reward.

    Raises:
        UnknownNameError: If none of this name is installed.
        GantryError: If its package cannot be loaded.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                return entry.load()
            except (ImportError, AttributeError) as error:
                raise GantryError(f"Reward '{name}' ({entry.value}) cannot be loaded here: {error}.") from error
    raise UnknownNameError("env.reward.kind", name, reward_kinds())


def evaluation_reward(cfg: RewardCfg) -> RewardCfg:
    """Settings without learning: rewards do not matter there, and those of other packages may cost time and weights."""
    return cfg if cfg.kind in BUILT_IN else replace(cfg, kind="multiplicative", options={})


def make_reward(cfg: RewardCfg, num_envs: int, dt_s: float, episode_s: float, device: str = "cpu") -> Reward:
    """Make the reward of N cars, of the kind that the settings name; ``dt_s`` and ``episode_s`` in seconds."""
    return reward_kind(cfg.kind).make(cfg, num_envs, dt_s, episode_s, device)
