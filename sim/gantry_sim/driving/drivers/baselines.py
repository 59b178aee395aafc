"""Drivers that learned nothing, to compare with: by rules, at constant speed, and at random; batched actions (N, 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.maps.projection import Window
from gantry_sim.driving.traffic.idm import idm_accel
from gantry_sim.driving.traffic.traffic import CarView


@dataclass(frozen=True)
class RuleCfg:
    """Settings of the scripted driver."""

    lookahead_s: float = 0.6
    """Pure pursuit aims as far ahead as is driven in this time,"""
    lookahead_m: tuple[float, float] = (4.0, 15.0)
    """but within this range."""
    accel_m_s2: float = 1.5
    """a of the intelligent driver model."""
    brake_m_s2: float = 2.5
    """b of it, and braking ahead of bends and lower limits."""
    headway_s: float = 1.4
    """T of it."""
    standstill_m: float = 2.0
    """s0 of it."""
    lateral_accel_m_s2: float = 2.0
    """Sideways acceleration accepted in bends."""
    line_m: float = 1.0
    """Distance from the stop line at which to stand."""
    yellow_brake_m_s2: float = 3.0
    """If yellow asks for harder braking, it goes on."""
    give_way_m: float = 25.0
    """See above."""

    def __post_init__(self) -> None:
        if not 0.0 < self.lookahead_m[0] <= self.lookahead_m[1]:
            raise GantryError(f"baseline.lookahead_m is {self.lookahead_m}, expected a range above 0.")


@dataclass(frozen=True)
class Manners:
    """Style of drivers that follow a line in one kind of surroundings."""

    rules: RuleCfg
    """Style of the scripted driver; the one at constant speed looks as far ahead."""
    steady_m_s: float
    """Speed of the driver at constant speed."""
    gain_hz: float = 1.0
    """Gain of the speed controller."""


ON_ROADS = Manners(RuleCfg(), 8.0)
ON_TRACKS = Manners(
    RuleCfg(lookahead_s=0.35, lookahead_m=(1.0, 3.0), accel_m_s2=4.0, brake_m_s2=4.0, lateral_accel_m_s2=3.0), 2.0, 4.0
)
"""A car of a tenth of the size, along the middle of its track."""


def pursuit(pose: Tensor, speed_m_s: Tensor, points_m: Tensor, spec: CarSpec, cfg: RuleCfg | None = None) -> Tensor:
    """Steering action ``(N,)`` by pure pursuit (Coulter, CMU-RI-TR-92-01): the circle through a point ahead.

    Args:
        pose: ``(N, 3)`` of ``base_link`` in the world.
        speed_m_s: ``(N,)``.
        points_m: ``(N, P, 2)`` route around the car in the world, in driving direction.
        spec: The car.
        cfg: The driver.
    """
    cfg = cfg or RuleCfg()
    delta = points_m - pose[:, None, :2]
    distance = torch.linalg.vector_norm(delta, dim=-1)
    reach = (cfg.lookahead_s * speed_m_s.abs()).clamp(*cfg.lookahead_m)
    number = torch.arange(points_m.shape[1], device=pose.device)
    ahead = number >= distance.argmin(1, keepdim=True)
    far = ahead & (distance >= reach[:, None])
    # Where the route ends before that, its last point is the aim.
    aim = torch.where(far.any(1), far.to(torch.uint8).argmax(1), points_m.shape[1] - 1)
    goal = delta.gather(1, aim[:, None, None].expand(-1, 1, 2))[:, 0]
    left = torch.cos(pose[:, 2]) * goal[:, 1] - torch.sin(pose[:, 2]) * goal[:, 0]
    curvature = 2.0 * left / (goal * goal).sum(-1).clamp(min=1.0)
    return (torch.atan(spec.wheelbase_m * curvature) / spec.steering_limit_rad).clamp(-1.0, 1.0)


def pedals(accel_m_s2: Tensor, spec: CarSpec) -> Tensor:
    """Acceleration action ``(N,)``, a share of the largest acceleration or of the hardest braking."""
    limit = torch.where(accel_m_s2 > 0.0, spec.accel_limit_m_s2, spec.brake_limit_m_s2)
    return (accel_m_s2 / limit).clamp(-1.0, 1.0)


def route_speed(pose: Tensor, window: Window, brake_m_s2: float, lateral_m_s2: float) -> Tensor:
    """Speed ``(N,)``, m/s, from which limits and bends within the window are reached with ``brake_m_s2`` at most.

    Args:
        pose: ``(N, 3)``: x, y in m and heading in rad of ``base_link`` in the world frame.
        window: Route around the cars, in the world frame.
        brake_m_s2: Largest braking.
        lateral_m_s2: Largest lateral acceleration in bends.
    """
    gap = torch.linalg.vector_norm(window.points - pose[:, None, :2], dim=-1)
    nearest = gap.argmin(1, keepdim=True)
    steps = torch.linalg.vector_norm(window.points.diff(dim=1), dim=-1).cumsum(1)
    s = torch.nn.functional.pad(steps, (1, 0))
    way = s - s.gather(1, nearest)
    bend = (lateral_m_s2 / window.curvature.abs().clamp(min=1e-4)).sqrt()
    there = torch.minimum(window.speed_limit_m_s, bend)
    allowed = (there * there + 2.0 * brake_m_s2 * way.clamp(min=0.0)).sqrt()
    return allowed.masked_fill(way < 0.0, torch.inf).amin(1)


def rule_based(
    pose: Tensor, speed_m_s: Tensor, window: Window, car: CarView | None, spec: CarSpec, cfg: RuleCfg | None = None
) -> Tensor:
    """Pure pursuit, the intelligent driver model behind the vehicle ahead, and stops at red; actions ``(N, 2)``.

    Args:
        pose: ``(N, 3)`` of ``base_link`` in the world.
        speed_m_s: ``(N,)``.
        window: Route around the cars, enough of it ahead to brake for bends.
        car: What traffic leaves to the cars, None without traffic.
        spec: The car.
        cfg: The driver.
    """
    cfg = cfg or RuleCfg()
    wanted = route_speed(pose, window, 0.6 * cfg.brake_m_s2, cfg.lateral_accel_m_s2)
    free = torch.full_like(speed_m_s, torch.inf), torch.zeros_like(speed_m_s)

    def idm(gap: Tensor, leader: Tensor) -> Tensor:
        return idm_accel(
            speed_m_s,
            wanted,
            gap,
            leader,
            accel_m_s2=cfg.accel_m_s2,
            brake_m_s2=cfg.brake_m_s2,
            headway_s=cfg.headway_s,
            standstill_m=cfg.standstill_m,
        )

    accel = idm(*free) if car is None else idm(car.gap_m, car.leader_m_s)
    if car is not None:
        needed = speed_m_s * speed_m_s / (2.0 * car.stop_m.clamp(min=0.1))
        red = (car.light > 0.75) & (needed < spec.brake_limit_m_s2)
        yellow = (car.light > 0.25) & (needed < cfg.yellow_brake_m_s2)
        way = car.give_way & (car.stop_m < cfg.give_way_m) & (needed < cfg.yellow_brake_m_s2)
        stops = red | yellow | way
        line = torch.where(stops, car.stop_m + cfg.standstill_m - cfg.line_m, torch.inf)
        accel = torch.minimum(accel, idm(line, torch.zeros_like(line)))
    return torch.stack((pursuit(pose, speed_m_s, window.points, spec, cfg), pedals(accel, spec)), dim=-1)


def constant_speed(
    pose: Tensor,
    speed_m_s: Tensor,
    window: Window,
    spec: CarSpec,
    target_m_s: float = 8.0,
    gain_hz: float = 1.0,
    cfg: RuleCfg | None = None,
) -> Tensor:
    """Pure pursuit at one speed, without regard to obstacles; actions ``(N, 2)``, dimensionless.

    Args:
        pose: ``(N, 3)``: x, y in m and heading in rad of ``base_link`` in the world frame.
        speed_m_s: ``(N,)``.
        window: Route around the cars, in the world frame.
        spec: Limits of the cars.
        target_m_s: Speed to keep.
        gain_hz: Acceleration per m/s of speed error.
        cfg: Settings of pure pursuit.
    """
    accel = gain_hz * (target_m_s - speed_m_s)
    return torch.stack((pursuit(pose, speed_m_s, window.points, spec, cfg), pedals(accel, spec)), dim=-1)


def random_actions(count: int, generator: torch.Generator) -> Tensor:
    """Actions ``(N, 2)``, uniform in [-1, 1)."""
    return 2.0 * torch.rand(count, 2, generator=generator, device=generator.device) - 1.0
