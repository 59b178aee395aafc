"""A planar laser scanner before walls that are chains of points, by sorting walls into beams and not beams into walls.

Seen from the scanner a wall segment covers the beams between the directions of its ends, mostly one or none, so that
few pairs of beam and segment need to be looked at: of 256 cars between walls of 220 segments each, 29 thousand instead
of six million. That is exact, as :func:`gantry_sim.driving.sensors.lidar.cast_segments`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gantry_sim.driving.sensors.lidar import LidarConfig

SLACK = 1e-4
"""Share of a beam by which segments reach beyond their ends, so that no beam slips through where two of them meet."""
TINY_M = 1e-9
"""Smaller divisors count as this."""


def cast_chains(config: LidarConfig, pose: Tensor, chains: Tensor) -> Tensor:
    """Distance to the nearest wall along each beam.

    Args:
        config: The scanner; its noise and dropout are left to :func:`gantry_sim.driving.sensors.lidar.finish`.
        pose: Shape (N, 3), cars in the world: x, y, yaw.
        chains: Shape (N, C, P, 2), the points of C walls around each car in the world, each joined to the next one.

    Returns:
        Shape (N, beams), m, at most ``config.range_max_m``, which also means that nothing is met.
    """
    cars, _, points = chains.shape[:3]
    x, y = _seen_from(config, pose, chains)
    angle, reach = torch.atan2(y, x), torch.hypot(x, y)
    # One row for each segment: its first end, and the way to the other one.
    x, y, way_x, way_y = (part.flatten() for part in (x[..., :-1], y[..., :-1], x.diff(), y.diff()))
    farther = torch.maximum(reach[..., :-1], reach[..., 1:]).flatten()
    first, count = _covered(config, angle)
    pair = torch.repeat_interleave(torch.arange(len(count), device=pose.device), count)
    number = torch.arange(len(pair), device=pose.device) - (count.cumsum(0) - count)[pair]
    beam, segment = first[pair] + number, pair % len(x)
    x, y, way_x, way_y, farther = (part[segment] for part in (x, y, way_x, way_y, farther))
    along = torch.linspace(config.angle_min_rad, config.angle_max_rad, config.beams, device=pose.device)[beam]
    across = (torch.cos(along) * way_y - torch.sin(along) * way_x).abs()
    distance = (x * way_y - y * way_x).abs() / across.clamp(min=TINY_M)
    # A wall that is seen end on has no one distance; what counts is that of its nearest point.
    share = -(x * way_x + y * way_y) / (way_x**2 + way_y**2).clamp(min=TINY_M**2)
    share = share.clamp(0.0, 1.0)
    distance = torch.minimum(distance.maximum(torch.hypot(x + share * way_x, y + share * way_y)), farther)
    walls = chains.shape[1] * (points - 1)
    car = torch.div(segment, walls, rounding_mode="floor")
    found = torch.full((cars * config.beams,), config.range_max_m, device=pose.device, dtype=distance.dtype)
    return found.scatter_reduce_(0, car * config.beams + beam, distance, "amin").view(cars, config.beams)


def _seen_from(config: LidarConfig, pose: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """x and y of world points (N, C, P, 2) in the scanners' frames, each (N, C, P)."""
    cos, sin = torch.cos(pose[:, 2]), torch.sin(pose[:, 2])
    ahead, left = config.mount_m
    origin_x, origin_y = pose[:, 0] + ahead * cos - left * sin, pose[:, 1] + ahead * sin + left * cos
    gap_x, gap_y = points[..., 0] - origin_x[:, None, None], points[..., 1] - origin_y[:, None, None]
    cos, sin = cos[:, None, None], sin[:, None, None]
    return cos * gap_x + sin * gap_y, cos * gap_y - sin * gap_x


def _covered(config: LidarConfig, angle: Tensor) -> tuple[Tensor, Tensor]:
    """First beam that each segment covers, and how many of them.

    Args:
        config: The scanner.
        angle: (N, C, P) directions of the points.

    Returns:
        Two int64 tensors of 2 N C (P - 1) rows. All segments come twice: once with their beams from the first one on,
        and once, a whole turn less, for those that begin before the first beam.
    """
    step = max(config.angle_max_rad - config.angle_min_rad, 1e-6) / max(1, config.beams - 1)
    turn = 2.0 * math.pi / step
    way = angle.diff() / step
    # The shorter way round; counted in beams from here on.
    way = way - turn * torch.round(way / turn)
    begin = torch.remainder((angle[..., :-1] - config.angle_min_rad) / step + way.clamp(max=0.0), turn)
    begin = torch.stack((begin, begin - turn)).flatten()
    end = begin + way.abs().repeat(2, 1, 1, 1).flatten()
    first = torch.ceil(begin - SLACK).clamp(min=0.0)
    last = torch.floor(end + SLACK).clamp(max=config.beams - 1)
    return first.long(), (last - first + 1.0).clamp(min=0.0).long()
