"""How the base is held: its nose over the edge that it comes to."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_sim.tasks.goal.rules.cfg import PostureRules
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.moment import Moment

POINTS, SIDES_M = 6, (-0.1, 0.0, 0.1)
"""Where the ground ahead of the nose is looked at: points along, and how far aside."""


def raised(
    now: Moment, ground: Ground, rules: PostureRules, front: Tensor, foot_radius_m: float
) -> tuple[Tensor, Tensor]:
    """By how much the base is to be higher (N,), m, and its nose up (N,), rad, for a step ahead.

    Args:
        now: The state.
        ground: The terrain.
        rules: Parameters.
        front: (f,) bool, which feet are the front ones.
        foot_radius_m: Height of a foot over its sole.
    """
    along = torch.linspace(*rules.ahead_m, POINTS, device=now.yaw.device)[:, None, None]
    aside = torch.tensor(SIDES_M, device=now.yaw.device)[:, None]
    places = now.pos_w[:, None, None, :2] + along * now.ahead[:, None, None] + aside * now.aside[:, None, None]
    edge = ground.at(places, ground.highest).flatten(1).amax(1)
    step = edge - (now.feet_w[:, front, 2].amin(1) - foot_radius_m)
    pitch = ((step - rules.free_m) / rules.nose_m).clamp(0.0, rules.nose_up_rad)
    pitch = torch.where(step < rules.wall_m, pitch, 0.0)  # a wall is gone around
    return rules.height_m_rad * pitch, pitch
