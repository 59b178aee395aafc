"""Starts of parking episodes: in the aisle, or where a drive out of the slot may have led."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.maps.bank import LotBank
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.scenes.scene import boxes_at, spread
from gantry_sim.driving.sensors.boxes import hits_segments, overlap

TRIES = 12
"""Places in the aisle that are tried."""
STEP_M = 0.2
"""Between two looks at what a drive touches."""
PIECES = 5
"""A drive has so many arcs, forwards or backwards."""


def free(bank: LotBank, lot: Tensor, pose: Tensor, spec: CarSpec, margin_m: float = 0.1) -> Tensor:
    """Whether cars touch nothing, ``(m,)`` bool.

    Args:
        bank: Lots.
        lot: ``(m,)`` which.
        pose: ``(m, 3)`` of ``base_link``.
        spec: The car.
        margin_m: How much longer and wider the car is taken to be.
    """
    box = boxes_at(pose, spec)
    box[:, 3:] += margin_m
    hit = overlap(box, bank.boxes[lot], bank.taken[lot]).any(dim=1)
    return ~(hit | hits_segments(box, bank.walls[lot]).any(dim=1))


def goal_pose(bank: LotBank, lot: Tensor, spec: CarSpec) -> Tensor:
    """``(m, 3)`` where ``base_link`` is when the middle of the box is that of the slot."""
    goal = bank.goal[lot]
    back = spec.center_x_in_base_m * torch.stack((torch.cos(goal[:, 2]), torch.sin(goal[:, 2])), dim=1)
    return torch.cat((goal[:, :2] - back, goal[:, 2:3]), dim=1)


def in_aisle(bank: LotBank, lot: Tensor, spec: CarSpec, generator: torch.Generator) -> Tensor:
    """Poses ``(m, 3)`` along the aisle, either way round, that touch nothing."""
    aisle, count = bank.start[lot], len(lot)
    pose = torch.empty(count, 3, device=lot.device)
    open_ = torch.ones(count, dtype=torch.bool, device=lot.device)
    for last in (False,) * TRIES + (True,):
        # Should all of them touch something, the middle of the aisle is free.
        share = 0.0 if last else 1.0
        x = share * spread(count, 0.5, generator) * (aisle[:, 3] - spec.length_m).clamp(min=0.0)
        y = share * spread(count, 0.5, generator) * (aisle[:, 4] - spec.width_m - 1.2).clamp(min=0.0)
        around = torch.pi * (torch.rand(count, generator=generator, device=lot.device) < 0.5)
        yaw = aisle[:, 2] + around + share * spread(count, 0.2, generator)
        cos, sin = torch.cos(aisle[:, 2]), torch.sin(aisle[:, 2])
        middle = aisle[:, :2] + torch.stack((cos * x - sin * y, sin * x + cos * y), dim=1)
        back = spec.center_x_in_base_m * torch.stack((torch.cos(yaw), torch.sin(yaw)), dim=1)
        tried = torch.cat((middle - back, yaw[:, None]), dim=1)
        pose = torch.where(open_[:, None], tried, pose)
        open_ = open_ & ~free(bank, lot, tried, spec)
    return pose


def driven_out(
    bank: LotBank, lot: Tensor, spec: CarSpec, cfg: ParkCfg, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Poses ``(m, 3)`` that random drives from the goal lead to, each up to where it would touch something, and how
    long the drives were ``(m,)``. A car that drives kinematically can take every one of them backwards."""
    count, device = len(lot), lot.device
    low, high = cfg.near_m
    pose = goal_pose(bank, lot, spec)
    length = low + (high - low) * torch.rand(count, generator=generator, device=device)
    driven = torch.zeros(count, device=device)
    steps = int(high / STEP_M) + 1
    every = max(1, steps // PIECES)
    steering, way = torch.zeros(count, device=device), torch.ones(count, device=device)
    stuck = torch.zeros(count, dtype=torch.bool, device=device)
    for step in range(steps):
        # A car that is stuck turns round, so that drives do not end at the first neighbour.
        anew = stuck if step % every else torch.ones_like(stuck)
        drawn = spread(count, spec.steering_limit_rad, generator)
        steering = torch.where(anew, drawn, steering)
        turned = torch.where(stuck, -way, torch.sign(spread(count, 1.0, generator)))
        way = torch.where(anew, turned, way)
        yaw = pose[:, 2] + way * STEP_M * torch.tan(steering) / spec.wheelbase_m
        middle = 0.5 * (yaw + pose[:, 2])
        shift = (way * STEP_M)[:, None] * torch.stack((torch.cos(middle), torch.sin(middle)), dim=1)
        tried = torch.cat((pose[:, :2] + shift, yaw[:, None]), dim=1)
        fits = free(bank, lot, tried, spec) & (driven < length)
        pose = torch.where(fits[:, None], tried, pose)
        driven, stuck = driven + STEP_M * fits, ~fits & (driven < length)
    return pose, driven
