"""Foothold search: places as on a plane, moved to ground that can be stepped on."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_sim.tasks.goal.rules.cfg import FootholdRules
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.route import Wish
from gantry_sim.tasks.goal.rules.rule_state import RuleState

GRID_M = 0.04
"""Distance of the places that are looked at."""
SHIFT_COST = 1.0 / 0.16
"""Of a shift, per m^2."""
MATES = (3, 2, 1, 0)
"""The foot that lands together with each: diagonal ones of FR, FL, RR, RL."""


class Footholds:
    """Remembers the places, how far they were moved, and how bad the ground is.

    Args:
        ground: The terrain.
        rules: Parameters.
        num_envs: Environments.
        side: (f,) 1 for feet on the left, -1 for those on the right.
        foot_radius_m: Height of a foot over its sole.
    """

    def __init__(self, ground: Ground, rules: FootholdRules, num_envs: int, side: Tensor, foot_radius_m: float) -> None:
        self._ground, self._rules, self._radius, self._sign = ground, rules, foot_radius_m, side
        device, feet = side.device, len(side)
        cells = round(rules.search_m / GRID_M)
        line = torch.arange(-cells, cells + 1, device=device) * GRID_M
        shifts = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
        self._shifts = shifts[shifts.norm(dim=-1) <= rules.search_m + 1e-6]
        self.places_w = torch.zeros(num_envs, feet, 3, device=device)
        """(N, f, 3) where the feet's sites are to come down, m."""
        self.shift_w = torch.zeros(num_envs, feet, 2, device=device)
        """(N, f, 2) how far that is from where it would be on a plane."""
        self.bad = torch.zeros(num_envs, device=device)
        """(N,) running share of the places looked at that are not good to step on."""

    def __call__(self, now: RuleState, wish: Wish, land: Tensor) -> Tensor:
        """Choose the places of the feet in the air, :attr:`places_w`.

        Args:
            now: The state.
            wish: Where the base goes.
            land: (N, f, 2) where the feet would land on a plane, m in the world.
        """
        body = now.body
        places = land[:, :, None] + self._shifts
        bad = self._badness(now, places)
        self.bad = now.kept(self.bad, torch.zeros_like(self.bad))
        self.bad = self.bad + 0.05 * ((bad > 0.5).float().mean((1, 2)) - self.bad)
        pick = self._agreed(land, bad + self._shift_costs(now, wish, places))
        chosen = places.gather(2, pick[..., None, None].expand(-1, -1, 1, 2))[:, :, 0]
        height = self._ground.at(chosen, self._ground.height) + self._radius
        swings = body.swings[..., None]
        self.shift_w = now.kept(torch.where(swings, chosen - land, self.shift_w), torch.zeros_like(self.shift_w))
        self.places_w = torch.where(swings, torch.cat((chosen, height[..., None]), -1), now.feet_w)
        return self.places_w

    def _badness(self, now: RuleState, places: Tensor) -> Tensor:
        """Cost of the ground at places (N, f, k, 2): (N, f, k)."""
        rules, ground = self._rules, self._ground
        rise = ground.at(places, ground.height) - (now.feet_w[..., 2] - self._radius).mean(1)[:, None, None]
        return (
            (ground.at(places, ground.rough) > 0.035).float()
            + rules.edge * (ground.at(places, ground.rough_wide) > 0.05)
            + 5.0 * (rise > 0.42)
            + rules.down * (rise < -0.2)
            + 5.0 * (rise < -rules.deep_m)
            + 0.05 * rise.abs().clamp(max=1.0)
        )

    def _shift_costs(self, now: RuleState, wish: Wish, places: Tensor) -> Tensor:
        """Cost of moving the feet to places (N, f, k, 2): (N, f, k)."""
        rules = self._rules
        along = wish.vel_w @ self._shifts.T
        inward = -(now.aside @ self._shifts.T)[:, None] * self._sign[:, None]
        moved = (places - self.places_w[:, :, None, :2]).square().sum(-1).clamp(max=0.04)
        body = now.body
        begun = body.swings & (body.progress > 0.05)
        keep = torch.where(begun, rules.keep * body.progress, 0.0)
        return (
            SHIFT_COST * self._shifts.square().sum(-1)
            - rules.forward * along[:, None]
            + rules.inward * (inward - 0.04).clamp(min=0.0) / 0.1
            + SHIFT_COST * keep[..., None] * moved
        )

    def _agreed(self, land: Tensor, cost: Tensor) -> Tensor:
        """Cheapest places (N, f), numbers, such that the line of two feet that land together moves little across."""
        pick = cost.argmin(-1)
        if self._rules.pair == 0.0:
            return pick
        line = land - land[:, list(MATES)]
        line = line / line.norm(dim=-1, keepdim=True).clamp(min=1e-3)
        across = torch.stack((-line[..., 1], line[..., 0]), -1)
        shift = torch.einsum("kj,nfj->nfk", self._shifts, across)
        for feet in ([0, 1], [3, 2], [0, 1]):  # one of each pair, then its mate
            others = self._shifts[pick[:, [MATES[foot] for foot in feet]]]
            theirs = (others * across[:, feet]).sum(-1)
            moved = (0.5 * (shift[:, feet] + theirs[..., None])).square()
            pick[:, feet] = (cost[:, feet] + self._rules.pair * SHIFT_COST * moved).argmin(-1)
        return pick
