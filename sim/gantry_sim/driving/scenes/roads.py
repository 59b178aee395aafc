"""Roads that a task drives on: procedural maps of one split, the routes through them and the paths of others."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gantry_sim.driving.maps.bank import LineBank, line_bank
from gantry_sim.driving.maps.generate import MapConfig, lane_map, split_seeds
from gantry_sim.driving.maps.graph import LaneMap
from gantry_sim.driving.maps.routes import random_route
from gantry_sim.driving.traffic.paths import TrafficMaps, traffic_maps


@dataclass(frozen=True)
class RoadsCfg:
    """Settings of roads."""

    maps: MapConfig
    """Settings of the maps."""
    split: str
    """Split of their seeds."""
    count: int
    """Number of maps."""
    routes_per_map: int
    """Routes through each."""
    route_m: float
    """Length of a route."""
    traffic: bool
    """Whether others need paths too."""

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class Roads:
    """Maps and routes."""

    maps: tuple[LaneMap, ...]
    """The maps."""
    lines: LineBank
    """Routes of cars and, with traffic, paths of others."""
    rows: Tensor
    """``(R,)`` the rows of ``lines`` that are routes of cars."""
    per_map: int
    """Rows of each map."""
    traffic: TrafficMaps | None
    """Paths of others, if there are any."""


@functools.lru_cache(maxsize=4)
def roads(cfg: RoadsCfg, device: str) -> Roads:
    """Draw them; the same for the same configuration. It takes seconds, and several environments in turn want the
    same ones, so that the last few are kept."""
    maps, routes = [], []
    for seed in split_seeds(cfg.split, cfg.count):
        drawn = lane_map(seed, cfg.maps)
        rng = np.random.default_rng((seed, 1))
        maps.append(drawn)
        routes.append([random_route(drawn, rng, cfg.route_m) for _ in range(cfg.routes_per_map)])
    if not cfg.traffic:
        lines = line_bank([route for own in routes for route in own], device)
        rows = torch.arange(len(lines), device=device)
        return Roads(tuple(maps), lines, rows, cfg.routes_per_map, None)
    paths = traffic_maps(maps, routes, device=device)
    first = paths.per_map * torch.arange(cfg.count, device=device)
    rows = (first[:, None] + torch.arange(cfg.routes_per_map, device=device)).flatten()
    return Roads(tuple(maps), paths.lines, rows, paths.per_map, paths)
