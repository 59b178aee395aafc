"""Footholds of the scripted policy: the decoder's foothold search on the true ground."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_deploy.footsteps.map_search import FootholdSearch
from gantry_sim.tasks.goal.scripted.ground import Ground
from gantry_sim.tasks.goal.scripted.walk_state import WalkState

ROUGH_M, ROUGH_WIDE_M, EDGE = 0.035, 0.05, 0.05
"""Unevenness within 4 cm that makes a place bad, and within 6 cm that costs this share of it."""
HIGH_M, LOW_M, DEEP_M = 0.42, -0.2, -0.45
"""Heights over the feet: above the first and below the last a place is out of reach, below the second it costs."""
FAR, DOWN, SLOPE = 5.0, 0.274, 0.05
"""Costs of a place out of reach, of one far down, and of a metre of height, in units of a bad place."""
BEGUN = 0.05
"""Share of a swing from which on the last choice counts."""


class ScriptedFootholds:
    """Choice of the feet's places; remembers them, how far they were moved, and how bad the ground is.

    Args:
        ground: The terrain.
        search: Search around places.
        feet_w: (N, f, 3) any places of the feet, m.
        foot_radius_m: Height of a foot over its sole.
    """

    def __init__(self, ground: Ground, search: FootholdSearch, feet_w: Tensor, foot_radius_m: float) -> None:
        self._ground, self._search, self._radius = ground, search, foot_radius_m
        self._places_w = torch.zeros_like(feet_w)
        self.shift_w = torch.zeros_like(feet_w[..., :2])
        """(N, f, 2) how far the feet's places are from where they would be on a plane, m."""
        self.bad = torch.zeros_like(feet_w[:, 0, 0])
        """(N,) running share of the places looked at that are not good to step on."""

    def __call__(self, now: WalkState, vel: Tensor, land: Tensor) -> tuple[Tensor, Tensor]:
        """Offsets (N, f, 2), m in the level frame, to the places chosen for the feet in the air, and the heights of all
        feet's next places over the base (N, f), m.

        Args:
            now: The state.
            vel: (N, 2) velocity of the base in the level frame, m/s.
            land: (N, f, 2) where the feet would land on a plane, m in the level frame.
        """
        body, base_w = now.body, now.pos_w[:, None, :2]
        tried = self._search.candidates(land)
        bad = self._badness(now, base_w[:, None] + now.to_world(tried))
        self.bad = now.kept(self.bad, torch.zeros_like(self.bad))
        self.bad = self.bad + 0.05 * ((bad > 0.5).float().mean((1, 2)) - self.bad)
        towards = now.to_level(self._places_w[..., :2] - base_w)
        progress = body.progress * (body.progress > BEGUN)
        moved = self._search(self._search.costs.lack_m2 * bad, tried, vel, towards, progress)
        moved = moved * body.swings[..., None]
        chosen_w = base_w + now.to_world(land + moved)
        height = self._ground.at(chosen_w, self._ground.height) + self._radius
        swings = body.swings[..., None]
        self.shift_w = now.kept(torch.where(swings, now.to_world(moved), self.shift_w), torch.zeros_like(self.shift_w))
        self._places_w = torch.where(swings, torch.cat((chosen_w, height[..., None]), -1), now.feet_w)
        return moved, self._places_w[..., 2] - now.pos_w[:, 2:]

    def _badness(self, now: WalkState, places: Tensor) -> Tensor:
        """Cost of the ground at places (N, f, k, 2), m in the world: (N, f, k)."""
        ground = self._ground
        rise = ground.at(places, ground.height) - (now.feet_w[..., 2] - self._radius).mean(1)[:, None, None]
        return (
            (ground.at(places, ground.rough) > ROUGH_M).float()
            + EDGE * (ground.at(places, ground.rough_wide) > ROUGH_WIDE_M)
            + FAR * (rise > HIGH_M)
            + DOWN * (rise < LOW_M)
            + FAR * (rise < DEEP_M)
            + SLOPE * rise.abs().clamp(max=1.0)
        )
