"""A driver on tracks that learned nothing and sees what a racing policy sees: the scan."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.drivers.baselines import pedals

SPEED_GAIN_HZ = 4.0
"""Acceleration for each m/s that is missing."""


@dataclass(frozen=True)
class GapCfg:
    """A driver that sees a scan and nothing else."""

    clearance_m: float = 0.35
    """Half width of the way that must be free, so that no corner is cut."""
    horizon_m: float = 4.0
    """Range to which greater ones are cut."""
    steer_gain: float = 1.0
    """Steering angle for each radian to where the way is free longest."""
    slowest_m_s: float = 1.0
    """Speed before a wall."""
    speed_m_s: float = 5.0
    """Highest speed."""
    brake_m_s2: float = 1.0
    """The speed is what can be braked within the free way ahead at this."""


def gap_driver(
    ranges_m: Tensor, speed_m_s: Tensor, layout: LidarLayout, spec: CarSpec, cfg: GapCfg | None = None
) -> Tensor:
    """Steers where the way is free longest (follow the gap: Sezer and Gokasan 2012); actions ``(N, 2)``.

    Args:
        ranges_m: ``(N, beams)``.
        speed_m_s: ``(N,)``.
        layout: Of the scan.
        spec: The car as far as its driver may use it.
        cfg: The driver.
    """
    cfg = cfg or GapCfg()
    step = (layout.angle_max_rad - layout.angle_min_rad) / layout.beams
    angle = layout.angle_min_rad + step * (torch.arange(layout.beams, device=ranges_m.device) + 0.5)
    ahead = angle.abs() <= 0.5 * math.pi
    angle, ranges = angle[ahead], ranges_m[:, ahead].clamp(max=cfg.horizon_m)
    # Along a direction the way is free up to the first return that lies in a strip of the car's width, and more.
    turn = angle[:, None] - angle[None]
    along = ranges[:, None, :] * torch.cos(turn)
    across = ranges[:, None, :] * torch.sin(turn).abs()
    blocks = (across < cfg.clearance_m) & (along > 0.0) & (ranges < cfg.horizon_m)[:, None]
    free = torch.where(blocks, along, cfg.horizon_m).amin(dim=-1)
    # Of directions that are free as long, their mean; those that are nearly so count less.
    weight = torch.softmax(10.0 * free, dim=1)
    aim = (weight * angle).sum(dim=1)
    way = (weight * free).sum(dim=1)
    steering = (cfg.steer_gain * aim / spec.steering_limit_rad).clamp(-1.0, 1.0)
    wanted = (2.0 * cfg.brake_m_s2 * way).sqrt().clamp(cfg.slowest_m_s, cfg.speed_m_s)
    return torch.stack((steering, pedals(SPEED_GAIN_HZ * (wanted - speed_m_s), spec)), dim=-1)
