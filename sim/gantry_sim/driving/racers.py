"""Drivers on tracks that learned nothing, to compare with: by the map and by the scan; batched actions (N, 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_deploy.drive_spec import LidarLayout
from gantry_hardware.cars import CarSpec
from gantry_sim.driving.baselines import RuleCfg, pedals, pursuit, route_speed
from gantry_sim.driving.maps.projection import Window

SPEED_GAIN_HZ = 4.0
"""Acceleration for each m/s that is missing."""


@dataclass(frozen=True)
class MiddleCfg:
    """A driver who knows the middle of the track and where the car is."""

    lookahead_s: float = 0.35
    """Pure pursuit aims as far ahead as is driven in this time,"""
    lookahead_m: tuple[float, float] = (0.8, 2.0)
    """but within this range."""
    speed_m_s: float = 5.0
    """Highest speed."""
    lateral_accel_m_s2: float = 4.0
    """Sideways acceleration accepted in bends; infinity for one speed everywhere."""
    brake_m_s2: float = 1.5
    """Braking ahead of them."""


@dataclass(frozen=True)
class GapCfg:
    """A driver who sees a scan and nothing else."""

    clearance_m: float = 0.35
    """Half width of the way that must be free, so that no corner is cut."""
    horizon_m: float = 4.0
    """What is farther away counts as this."""
    steer_gain: float = 1.0
    """Steering angle for each radian to where the way is free longest."""
    slowest_m_s: float = 1.0
    """Speed before a wall."""
    speed_m_s: float = 5.0
    """Highest speed."""
    brake_m_s2: float = 1.0
    """The speed is what can be braked within the free way ahead at this."""


def middle_driver(
    pose: Tensor, speed_m_s: Tensor, window: Window, spec: CarSpec, cfg: MiddleCfg | None = None
) -> Tensor:
    """Pure pursuit of the middle line, slower in bends; actions ``(N, 2)``.

    Args:
        pose: ``(N, 3)`` of ``base_link`` in the world.
        speed_m_s: ``(N,)``.
        window: Track around the cars, enough of it ahead to brake for bends.
        spec: The car as far as its driver may use it.
        cfg: The driver.
    """
    cfg = cfg or MiddleCfg()
    aim = RuleCfg(lookahead_s=cfg.lookahead_s, lookahead_m=cfg.lookahead_m)
    wanted = torch.full_like(speed_m_s, cfg.speed_m_s)
    if math.isfinite(cfg.lateral_accel_m_s2):
        wanted = wanted.minimum(route_speed(pose, window, cfg.brake_m_s2, cfg.lateral_accel_m_s2))
    accel = SPEED_GAIN_HZ * (wanted - speed_m_s)
    return torch.stack((pursuit(pose, speed_m_s, window.points, spec, aim), pedals(accel, spec)), dim=-1)


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
