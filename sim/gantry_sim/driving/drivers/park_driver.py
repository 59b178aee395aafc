"""A driver that parks by rules: along the shortest way, slowly, with the wheels turned before it rolls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gantry_sim.driving.drivers.baselines import pedals
from gantry_sim.driving.drivers.cost_to_go import CostToGo, driven
from gantry_sim.driving.maps.bank import LotBank
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.scenes.lot_starts import free
from gantry_sim.driving.vehicle.cars import BatchedCars

LOOKS = 8
"""Places ahead at which it looks whether it would touch something."""


@dataclass(frozen=True)
class ParkRules:
    """Settings of the scripted driver."""

    speed_m_s: float = 1.0
    """Fastest, either way."""
    creep_m_s: float = 0.2
    """Slowest while there is way to go, where it is about to turn round or to arrive."""
    slow_m: float = 1.0
    """So far before that it begins to slow down."""
    gain_hz: float = 2.0
    """Gain of the speed controller."""
    turning_rad: float = 0.15
    """With wheels off by more than this it waits for them,"""
    rolling_m_s: float = 0.1
    """and it stands when it is no faster than this."""
    ahead_s: float = 0.6
    """It brakes if in this time,"""
    stop_m: float = 0.15
    """and so much farther on, it would touch something."""
    arc_m: tuple[float, float] = (0.2, 0.6)
    """Range of the length of the arcs that it chooses from: half the way to go."""


class Parking(NamedTuple):
    """Lots of N cars, and how far their cars are from where they shall stand."""

    ways: CostToGo
    """The ways to the goals."""
    lots: LotBank
    """All lots."""
    lot: Tensor
    """``(N,)`` int64, which lot."""
    cfg: ParkCfg
    """The task."""
    position_m: Tensor
    """``(N,)`` distance from the middle of the slot."""
    heading_rad: Tensor
    """``(N,)`` heading error."""


def park_actions(cars: BatchedCars, where: Parking, rules: ParkRules | None = None) -> Tensor:
    """Actions of the scripted driver, ``(N, 2)`` in [-1, 1]; it knows what the simulator knows, without a memory."""
    rules, (ways, _, lot, cfg, position, heading) = rules or ParkRules(), where
    pose, speed, spec = cars.pose, cars.speed_m_s, cfg.driver
    rolling = torch.sign(speed) * (speed.abs() > rules.rolling_m_s)
    left = ways.distance_to_go_m(pose, lot)
    steering, way = ways.toward(pose, lot, rolling, (0.5 * left).clamp(*rules.arc_m))
    room = _room(ways, pose, lot, steering, way, rules).minimum(position)
    share = (room / rules.slow_m).clamp(0.0, 1.0)
    wanted = rules.creep_m_s + (rules.speed_m_s - rules.creep_m_s) * share
    off = (steering - cars.steering_rad).abs() / rules.turning_rad
    wanted = way * wanted * (2.0 - off).clamp(0.0, 1.0)
    there = (position <= 0.9 * cfg.position_m) & (heading.abs() <= 0.9 * cfg.heading_rad)
    wanted = torch.where(there, 0.0, wanted)
    accel = rules.gain_hz * (wanted - speed)
    # Whatever it wants, it stops before it touches something.
    clear = _clear(where, pose, cars.steering_rad, torch.where(rolling == 0.0, way, rolling), rules)
    stops = (clear < rules.stop_m + rules.ahead_s * speed.abs()) & (wanted * speed >= 0.0)
    accel = torch.where(stops, -speed / cfg.dt_s, accel)
    return torch.stack(((steering / spec.steering_limit_rad).clamp(-1.0, 1.0), pedals(accel, spec)), dim=-1)


def _room(ways: CostToGo, pose: Tensor, lot: Tensor, steering: Tensor, way: Tensor, rules: ParkRules) -> Tensor:
    """Distance ``(N,)`` that it may go on before it is to turn round, looked for up to ``slow_m`` ahead."""
    curvature = torch.tan(steering) / ways.spec.wheelbase_m
    found = torch.full_like(way, rules.slow_m)
    for share in (0.75, 0.5, 0.25):
        length = share * rules.slow_m
        ahead = ways.both_ways(driven(pose, curvature, way * length), lot)
        extra = torch.where(way > 0.0, ahead[:, 0] - ahead[:, 1], ahead[:, 1] - ahead[:, 0])
        found = torch.where(extra > 0.8 * ways.cfg.change_m, length, found)
    return found


def _clear(where: Parking, pose: Tensor, steering: Tensor, way: Tensor, rules: ParkRules) -> Tensor:
    """Distance ``(N,)`` that it may go on with its wheels as they stand, looked for up to ``slow_m`` ahead."""
    curvature = torch.tan(steering) / where.cfg.driver.wheelbase_m
    found = torch.full_like(way, rules.slow_m)
    for step in range(LOOKS, 0, -1):
        length = rules.slow_m * step / LOOKS
        free_ = free(where.lots, where.lot, driven(pose, curvature, way * length), where.cfg.driver)
        found = torch.where(free_, found, length - rules.slow_m / LOOKS)
    return found
