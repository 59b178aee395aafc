"""How the base is held: its nose over the edge that it comes to, its belly over the one that it is on."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_sim.tasks.goal.rules.cfg import PostureRules
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.moment import Moment

BELLY_M, BELLY_POINTS, SOON_M = (-0.25, 0.25), 9, 0.03
"""From where to where below the base, and at how many points, the ground is looked at; a little ahead of now."""
POINTS, SIDES_M = 6, (-0.1, 0.0, 0.1)
"""Where the ground ahead of the nose is looked at: points along, and how far aside."""


def raised(
    now: Moment, ground: Ground, rules: PostureRules, front: Tensor, foot_radius_m: float, pose: Tensor
) -> tuple[Tensor, Tensor]:
    """By how much the base is to be higher (N,), m, and its nose up (N,), rad, for a step ahead.

    Args:
        now: The state.
        ground: The terrain.
        rules: Parameters.
        front: (f,) bool, which feet are the front ones.
        foot_radius_m: Height of a foot over its sole.
        pose: (N, 3) height over the present one, pitch and roll that the soles ask for.
    """
    along = torch.linspace(*rules.ahead_m, POINTS, device=now.yaw.device)[:, None, None]
    aside = torch.tensor(SIDES_M, device=now.yaw.device)[:, None]
    places = now.pos_w[:, None, None, :2] + along * now.ahead[:, None, None] + aside * now.aside[:, None, None]
    edge = ground.at(places, ground.highest).flatten(1).amax(1)
    step = edge - (now.feet_w[:, front, 2].amin(1) - foot_radius_m)
    pitch = ((step - rules.free_m) / rules.nose_m).clamp(0.0, rules.nose_up_rad)
    pitch = torch.where(step < rules.wall_m, pitch, 0.0)  # a wall is gone around
    along = torch.linspace(*BELLY_M, BELLY_POINTS, device=now.yaw.device)
    under = ground.at(now.pos_w[:, None, :2] + (along + SOON_M)[:, None] * now.ahead[:, None], ground.height)
    rises = torch.tan((pitch - pose[:, 1]).clamp(-1.0, 1.0))[:, None] * along
    lacks = (under + rules.belly_m - rises).amax(1) - (now.pos_w[:, 2] + pose[:, 0])
    return torch.maximum(rules.height_m_rad * pitch, lacks.clamp(0.0, rules.belly_up_m)), pitch
