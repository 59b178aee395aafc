"""How feet in the air get to their places: over what lies between, by inverse kinematics."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gantry_sim.driving.maps.projection import wrapped
from gantry_sim.tasks.goal.rules.cfg import SwingRules
from gantry_sim.tasks.goal.rules.forces import skew
from gantry_sim.tasks.goal.rules.gait import Phases
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.legs import Legs
from gantry_sim.tasks.goal.rules.moment import Moment

DIFFERENCE_S = 0.01
"""Of the differences that velocities are taken from."""
FASTEST_RAD_S = 20.0
"""Most that joints are thought to move."""
HIGHEST_M = 0.25
"""Ground on the way counts up to this height over the places at either end."""


class Swing:
    """Joint targets of feet in the air.

    Args:
        legs: The robot's legs.
        ground: The terrain.
        rules: Parameters.
        damping_s: (3 f,) damping of the joints' controllers over their stiffness, s.
        dt_s: Control step.
        foot_radius_m: Height of a foot over its sole.
    """

    def __init__(
        self, legs: Legs, ground: Ground, rules: SwingRules, damping_s: Tensor, dt_s: float, foot_radius_m: float
    ) -> None:
        self._legs, self._ground, self._rules = legs, ground, rules
        self._damping_s, self._dt_s, self._radius = damping_s, dt_s, foot_radius_m

    def __call__(self, now: Moment, phases: Phases, places_w: Tensor, swing_s: float) -> Tensor:
        """Targets of all joints as if all feet were in the air, (N, 3 f), rad; ``places_w`` (N, f, 3), m."""
        path = self._path(phases, places_w)
        lead_s = self._rules.lead_steps * self._dt_s
        place = path(phases.progress + lead_s / swing_s)
        later = path(phases.progress + (lead_s + DIFFERENCE_S) / swing_s)
        vel = (later - place) / DIFFERENCE_S - now.vel_w[:, None]
        pos, rotation = self.ahead(now)
        place_b = torch.einsum("nji,nkj->nki", rotation, place - pos[:, None])
        turning = now.ang_vel_b[:, None].expand_as(place_b)
        vel_b = torch.einsum("nji,nkj->nki", rotation, vel) - torch.linalg.cross(turning, place_b)
        joints = self._legs.joints(place_b)
        speed = wrapped(self._legs.joints(place_b + DIFFERENCE_S * vel_b) - joints) / DIFFERENCE_S
        speed = speed.clamp(-FASTEST_RAD_S, FASTEST_RAD_S)
        return joints + self._rules.damping_share * self._damping_s * speed

    def ahead(self, now: Moment) -> tuple[Tensor, Tensor]:
        """Where the base will be when the joints are where they are sent: position (N, 3), m, and rotation to the world
        (N, 3, 3)."""
        pos = now.pos_w + now.vel_w * (self._rules.base_lead_steps * self._dt_s)
        turn = now.rotation @ skew(now.ang_vel_b)
        return pos, now.rotation + self._rules.lead_steps * self._dt_s * turn

    def _path(self, phases: Phases, places_w: Tensor) -> Callable[[Tensor], Tensor]:
        """Share of the swing (N, f) -> place of the feet in the world (N, f, 3), m."""
        rules, start = self._rules, phases.lifted_w
        along = torch.linspace(0.0, 1.0, 8, device=start.device)[:, None]
        between = start[:, :, None, :2] + along * (places_w - start)[:, :, None, :2]
        ends = torch.maximum(start[..., 2], places_w[..., 2]) - self._radius
        crest = self._ground.at(between, self._ground.highest).amax(-1).minimum(ends + HIGHEST_M)
        apex = torch.maximum(ends, crest) + rules.clearance_m + self._radius
        end = places_w[..., 2] - rules.press_m

        def path(share: Tensor) -> Tensor:
            share = share.clamp(0.0, 1.0)
            ease = 0.5 - 0.5 * torch.cos(math.pi * ((share - 0.08) / (rules.arrive - 0.08)).clamp(0.0, 1.0))
            flat = start[..., :2] + ease[..., None] * (places_w - start)[..., :2]
            up = torch.sin(0.5 * math.pi * (share / 0.4).clamp(0.0, 1.0))
            down = 0.5 + 0.5 * torch.cos(math.pi * ((share - 0.5) / 0.5).clamp(0.0, 1.0))
            rises, falls = start[..., 2] + up * (apex - start[..., 2]), end + down * (apex - end)
            return torch.cat((flat, torch.where(share < 0.5, rises, falls)[..., None]), -1)

        return path
