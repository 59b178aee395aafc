"""The reward of VLM-RL (arXiv 2412.15544): language goals say how fast to drive, the lane says how.

What a picture is worth changes slowly and costs much to find out; Found-RL (arXiv 2602.10458) names it the bottleneck.
So the pictures of all cars are drawn and scored in one batch every ``every_s``, those of new episodes at their first
step, and what was found counts until the next look. VLM-RL scores every frame, after each piece of a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.files.structured import from_plain
from gantry_language_reward.cfg import LanguageCfg
from gantry_language_reward.pictures import pictures
from gantry_language_reward.scorer import Scorer, clear_share, make_scorer, require_scorer
from gantry_sim.driving.reward import RewardCfg, RewardKind
from gantry_sim.driving.step_info import StepInfo

LANGUAGE_FACTORS = ("clear", "speed", "lane", "heading", "spread")
"""Factors that :class:`LanguageReward` reports; the reward is the product of all but ``clear``, which ``speed`` is made
of.
"""


class LanguageReward:
    """Reward of N cars by how the road around them looks; between 0 and 1 for a step without fault.

    A car that stands on a clear road earns nothing, and so does one that drives at full speed into an accident. A
    slower car than desired earns less a step, for more steps: what makes it hurry is the discount alone. There is no
    progress in it.

    Args:
        cfg: Its numbers.
        num_envs: N.
        dt_s: Time of a step.
        device: Of all tensors.
        scorer: Compares pictures with sentences; None for the one that ``cfg`` names, which is loaded at the first
        look. A process that only evaluates or exports does without.
    """

    names = LANGUAGE_FACTORS

    def __init__(
        self, cfg: LanguageCfg, num_envs: int, dt_s: float, device: str = "cpu", scorer: Scorer | None = None
    ) -> None:
        self.cfg = cfg
        self.device = device
        self.every_steps = max(1, round(cfg.every_s / dt_s))
        """Steps between two looks."""
        self.clear = torch.ones(num_envs, device=device)
        """``(N,)`` from 0, an accident, to 1, a clear road, as last seen; 1 before the first look."""
        self._scorer = scorer
        self._looked = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self._clock = 0
        self._past = torch.zeros(num_envs, max(2, round(cfg.spread_s / dt_s)), device=device)
        self._kept = torch.zeros(num_envs, dtype=torch.int64, device=device)

    @property
    def scorer(self) -> Scorer:
        """Scorer of pictures.

        Raises:
            GantryError: If it cannot be loaded.
        """
        if self._scorer is None:
            self._scorer = make_scorer(self.cfg, self.device)
        return self._scorer

    @property
    def remembered(self) -> Tensor:
        """``(N, 3)`` from 0 to 1: how clear the road was, time till the next look, and what is lost to swerving.

        A critic has to know, since the reward depends on it.
        """
        wait = torch.full_like(self.clear, 1.0 - self._clock / self.every_steps)
        return torch.stack((self.clear, wait, 1.0 - self._spread()), dim=1)

    def reset(self, env_ids: Tensor) -> None:
        """Forget what cars ``(m,)`` saw and did."""
        self.clear[env_ids] = 1.0
        self._looked[env_ids] = False
        self._kept[env_ids] = 0

    def __call__(self, step: StepInfo) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward ``(N,)`` of a step, and its factors ``(N,)`` by name.

        Raises:
            GantryError: If the step say nothing of the surroundings, or the scorer cannot be loaded.
        """
        cfg, ones = self.cfg, torch.ones_like(step.speed_m_s)
        self._look(step)
        self._remember(step)
        highest = step.speed_limit_m_s.clamp(min=0.1) if cfg.v_max_m_s is None else cfg.v_max_m_s * ones
        off = (step.speed_m_s - self.clear * highest).abs() / highest
        lane = 1.0 - step.lane_share.abs() / cfg.lane_half_widths
        factors = {
            "clear": self.clear.clone(),
            "speed": (1.0 - off).clamp(min=0.0),
            "lane": torch.where(step.in_junction, ones, lane.clamp(min=0.0)),
            "heading": (1.0 - step.heading_error_rad.abs() / cfg.heading_rad).clamp(min=0.0),
            "spread": torch.where(step.in_junction, ones, self._spread()),
        }
        reward = factors["speed"] * factors["lane"] * factors["heading"] * factors["spread"]
        return torch.where(step.fault, -cfg.infraction * ones, reward), factors

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        kept = {name: getattr(self, name).clone() for name in ("clear", "_looked", "_past", "_kept")}
        return kept | {"clock": self._clock}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        for name in ("clear", "_looked", "_past", "_kept"):
            setattr(self, name, state[name].to(self.device, copy=True))
        self._clock = state["clock"]

    def _look(self, step: StepInfo) -> None:
        self._clock = (self._clock + 1) % self.every_steps
        due = torch.ones_like(self._looked) if self._clock == 0 else ~self._looked
        rows = due.nonzero()[:, 0]
        if not len(rows):
            return
        similarity = self.scorer(pictures(step.look, rows, self.cfg.picture))
        margin = self.scorer.margin if self.cfg.margin is None else self.cfg.margin
        self.clear[rows] = clear_share(similarity, margin).to(self.clear.dtype)
        self._looked[rows] = True

    def _remember(self, step: StepInfo) -> None:
        past = torch.cat((self._past[:, 1:], step.lane_share[:, None]), dim=1)
        # Where no lane need be kept, none is.
        self._past = torch.where(step.in_junction[:, None], self._past, past)
        self._kept = torch.where(step.in_junction, self._kept, self._kept + 1).clamp(max=past.shape[1])

    def _spread(self) -> Tensor:
        """``(N,)`` factor for keeping to one place in the lane."""
        length = self._past.shape[1]
        counts = torch.arange(length, device=self.clear.device) >= length - self._kept[:, None]
        number = self._kept.clamp(min=1)
        mean = (self._past * counts).sum(dim=1) / number
        variance = ((self._past - mean[:, None]).square() * counts).sum(dim=1) / number
        return (1.0 - variance.sqrt() / self.cfg.spread_half_widths).clamp(min=0.0)


def _settings(cfg: RewardCfg) -> LanguageCfg:
    return from_plain(LanguageCfg, cfg.options, "env.reward.options")


def _make(cfg: RewardCfg, num_envs: int, dt_s: float, _: float, device: str) -> LanguageReward:
    return LanguageReward(_settings(cfg), num_envs, dt_s, device)


KIND = RewardKind(_make, lambda cfg: require_scorer(_settings(cfg)))
"""The kind ``language``, which the entry point names."""
