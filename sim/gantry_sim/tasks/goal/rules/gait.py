"""Which feet are in the air, and how far they have come."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_deploy.contract import GaitSpec
from gantry_deploy.gait import foot_phase
from gantry_sim.tasks.goal.rules.moment import Moment


@dataclass(frozen=True)
class Phases:
    """N environments, f feet."""

    swings: Tensor
    """(N, f) bool, which feet are to be in the air."""
    progress: Tensor
    """(N, f) share of the swing that is over, 0 to 1; 0 on the ground."""
    left_s: Tensor
    """(N, f) time to the landing; 0 on the ground."""
    lifted_w: Tensor
    """(N, f, 3) where each foot was when it was lifted last, m."""


class Gait:
    """Remembers which feet swing, and where they left the ground.

    Args:
        like: (N, f), any tensor of that shape on the device.
        clock: The policy's own.
    """

    def __init__(self, like: Tensor, clock: GaitSpec) -> None:
        self._clock = clock
        self._offsets = torch.tensor(clock.foot_offset, device=like.device)
        self._swings = torch.zeros_like(like, dtype=torch.bool)
        self._lifted = torch.zeros(*like.shape, 3, device=like.device)
        self.period_s = 1.0 / clock.frequency_hz
        """Of a stride."""
        self.stance_s = clock.duty * self.period_s
        """Time of a stride on the ground."""
        self.swing_s = (1.0 - clock.duty) * self.period_s
        """Time of a stride in the air."""

    def __call__(self, now: Moment, rest: Tensor) -> Phases:
        """The phases; who is to rest, (N,) bool, finishes a swing and begins none."""
        duty = self._clock.duty
        phase = foot_phase(self._clock, now.clock_s, self._offsets)
        progress = ((phase - duty) / (1.0 - duty)).clamp(0.0, 1.0)
        may_begin = (progress < 0.2) & ~rest[:, None]
        before = self._swings & ~now.new[:, None]
        swings = (phase >= duty) & (before | may_begin)
        self._lifted = torch.where((swings & ~before)[..., None], now.feet_w, self._lifted)
        self._swings = swings
        return Phases(swings, progress, torch.where(swings, (1.0 - phase) * self.period_s, 0.0), self._lifted)
