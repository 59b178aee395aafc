"""A planar laser scanner on N cars: exact against wall segments and boxes, marched through a raster on tracks.

The raster holds the signed distance to a track's borders, positive between them. A ray that moves on by the distance it
reads cannot jump over a border (sphere tracing, Hart 1996), whatever the number of segments the border has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_sim.driving.boxes import slab

FloatArray = NDArray[np.float64]

_TILE = 16
_DROP_EVERY = 4


@dataclass(frozen=True)
class LidarConfig:
    """A scanner and where it sits. Defaults are for the small car's."""

    beams: int = 108
    """Number of beams, counter-clockwise from ``angle_min_rad``."""

    angle_min_rad: float = -2.35
    """First beam, in the scanner's frame."""

    angle_max_rad: float = 2.35
    """Last beam."""

    range_max_m: float = 30.0
    """What a beam reports that meets nothing nearer."""

    mount_m: tuple[float, float] = (0.275, 0.0)
    """Scanner in the car's frame (centre of the rear axle), forward and left."""

    mount_yaw_rad: float = 0.0
    """How far the scanner is turned to the left."""

    noise_std_m: float = 0.0
    """Standard deviation of each range."""

    dropout: float = 0.0
    """Chance that a beam reports nothing."""

    def __post_init__(self) -> None:
        if self.beams < 1 or self.range_max_m <= 0.0 or self.angle_max_rad < self.angle_min_rad:
            raise GantryError(
                "A scanner needs beams >= 1, range_max_m > 0 and angle_max_rad >= angle_min_rad, "
                f"not {self.beams=}, {self.range_max_m=}, {self.angle_min_rad=}, {self.angle_max_rad=}."
            )
        if not 0.0 <= self.dropout <= 1.0 or self.noise_std_m < 0.0:
            raise GantryError(f"dropout must be in [0, 1] and noise >= 0, not {self.dropout=}, {self.noise_std_m=}.")


@dataclass(frozen=True)
class DistanceField:
    """Rasters of T tracks, padded to one size."""

    values_m: Tensor
    """Shape (T, H, W), float32: signed distance at cell corners, rows along y; -1 far outside the track."""

    origin_m: Tensor
    """Shape (T, 2), world x and y of the first value."""

    resolution_m: float
    """Distance between values."""


def rays(config: LidarConfig, pose: Tensor) -> tuple[Tensor, Tensor]:
    """Where the beams of N cars begin and where they point.

    Args:
        config: The scanner.
        pose: Shape (N, 3), cars in the world: x, y, yaw.

    Returns:
        Origins (N, 2) and unit directions (N, beams, 2), world.
    """
    cos, sin = torch.cos(pose[:, 2]), torch.sin(pose[:, 2])
    forward, left = config.mount_m
    origin = pose[:, :2] + torch.stack([forward * cos - left * sin, forward * sin + left * cos], dim=-1)
    angles = torch.linspace(config.angle_min_rad, config.angle_max_rad, config.beams, device=pose.device)
    angle = pose[:, 2, None] + config.mount_yaw_rad + angles
    return origin, torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)


def cast_segments(origin: Tensor, direction: Tensor, segments: Tensor, exists: Tensor | None = None) -> Tensor:
    """Distance to the first of S segments.

    Args:
        origin: Shape (N, 2).
        direction: Shape (N, B, 2), of unit length.
        segments: Shape (N, S, 4), x, y of both ends.
        exists: Shape (N, S), bool; None for all.

    Returns:
        Shape (N, B), m; inf where nothing is met.
    """
    gap = segments[..., :2] - origin[:, None]
    way = segments[..., 2:] - segments[..., :2]
    dx, dy = direction[..., 0, None], direction[..., 1, None]
    cross = dx * way[:, None, :, 1] - dy * way[:, None, :, 0]
    safe = torch.where(cross.abs() < 1e-12, torch.full_like(cross, torch.nan), cross)
    distance = (gap[..., 0] * way[..., 1] - gap[..., 1] * way[..., 0])[:, None] / safe
    # Some tolerance at both ends, so that no ray slips through where two segments meet.
    at = (gap[:, None, :, 0] * dy - gap[:, None, :, 1] * dx) / safe
    hit = (distance >= 0.0) & (at >= -1e-5) & (at <= 1.0 + 1e-5)
    if exists is not None:
        hit = hit & exists[:, None]
    return torch.where(hit, distance, torch.inf).amin(-1)


def cast_boxes(origin: Tensor, direction: Tensor, boxes: Tensor, taken: Tensor | None = None) -> Tensor:
    """Distance to the first of K boxes; 0 from inside one.

    Args:
        origin: Shape (N, 2).
        direction: Shape (N, B, 2), of unit length.
        boxes: Shape (N, K, 5): centre x, y, yaw, length, width.
        taken: Shape (N, K), bool; None for all.

    Returns:
        Shape (N, B), m; inf where nothing is met.
    """
    cos, sin = torch.cos(boxes[..., 2]), torch.sin(boxes[..., 2])
    gap = origin[:, None] - boxes[..., :2]
    start = (cos * gap[..., 0] + sin * gap[..., 1])[:, None], (cos * gap[..., 1] - sin * gap[..., 0])[:, None]
    dx, dy = direction[..., 0, None], direction[..., 1, None]
    cos, sin, half = cos[:, None], sin[:, None], 0.5 * boxes[:, None, :, 3:5]
    enter, leave = slab(start[0], cos * dx + sin * dy, half[..., 0])
    enter2, leave2 = slab(start[1], cos * dy - sin * dx, half[..., 1])
    enter, leave = torch.maximum(enter, enter2), torch.minimum(leave, leave2)
    hit = (leave >= 0.0) & (enter <= leave)
    if taken is not None:
        hit = hit & taken[:, None]
    return torch.where(hit, enter.clamp(min=0.0), torch.inf).amin(-1)


def distance_field(
    borders: Sequence[FloatArray], resolution_m: float = 0.1, device: str | torch.device = "cpu"
) -> DistanceField:
    """Rasters of tracks.

    Args:
        borders: For each track its closed borders as segments (S, 4), as ``maps.lines.borders`` gives them.
        resolution_m: Distance between values.
        device: Where the tensors shall be.

    Raises:
        GantryError: No track.
    """
    if not borders:
        raise GantryError("A distance field needs the borders of at least one track.")
    fields = [_raster(segments, resolution_m) for segments in borders]
    rows, columns = (max(field.shape[axis] for field, _ in fields) for axis in (0, 1))
    values = np.full((len(fields), rows, columns), -1.0, dtype=np.float32)
    for index, (field, _) in enumerate(fields):
        values[index, : field.shape[0], : field.shape[1]] = field
    origins = np.array([origin for _, origin in fields])
    return DistanceField(
        torch.as_tensor(values, device=device),
        torch.as_tensor(origins, dtype=torch.float32, device=device),
        resolution_m,
    )


def _raster(segments: FloatArray, resolution_m: float) -> tuple[FloatArray, FloatArray]:
    """Signed distance to segments on a grid, exact at its points but for those far outside, and the grid's origin."""
    ends = segments.reshape(-1, 2)
    origin = ends.min(axis=0) - 3 * resolution_m
    columns, rows = (np.ceil((ends.max(axis=0) - origin) / resolution_m).astype(int) + 4).tolist()
    x, y = origin[0] + resolution_m * np.arange(columns), origin[1] + resolution_m * np.arange(rows)
    field, inside = np.empty((rows, columns)), _inside(x, y, segments)
    half = 0.5 * resolution_m * (_TILE - 1) * math.sqrt(2.0)
    for i in range(0, rows, _TILE):
        for j in range(0, columns, _TILE):
            ys, xs = y[i : i + _TILE], x[j : j + _TILE]
            centre = np.array([[0.5 * (xs[0] + xs[-1]), 0.5 * (ys[0] + ys[-1])]])
            far = _segment_distance(centre, segments)[0]
            if far.min() > half + 3 * resolution_m and not inside[i : i + _TILE, j : j + _TILE].any():
                field[i : i + _TILE, j : j + _TILE] = 1.0  # No ray gets here.
                continue
            # No segment can be nearest to a point of the tile that is farther from its centre than this.
            near = segments[far <= far.min() + 2 * half + 1e-9]
            points = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
            field[i : i + _TILE, j : j + _TILE] = _segment_distance(points, near).min(1).reshape(len(ys), len(xs))
    return np.where(inside, field, -field), origin


def _segment_distance(points: FloatArray, segments: FloatArray) -> FloatArray:
    """Distances (n, s) of points (n, 2) to segments (s, 4)."""
    way = segments[:, 2:] - segments[:, :2]
    gap = points[:, None] - segments[None, :, :2]
    t = np.clip((gap * way).sum(-1) / np.maximum((way**2).sum(-1), 1e-12), 0.0, 1.0)
    return np.hypot(gap[..., 0] - t * way[:, 0], gap[..., 1] - t * way[:, 1])


def _inside(x: FloatArray, y: FloatArray, segments: FloatArray) -> NDArray[np.bool_]:
    """Whether grid points lie inside closed borders: a ray to the left crosses them an odd number of times."""
    inside = np.zeros((len(y), len(x)), dtype=bool)
    ax, ay, bx, by = segments.T
    for row, level in enumerate(y):
        crossed = (ay <= level) != (by <= level)
        at = ax[crossed] + (level - ay[crossed]) / (by[crossed] - ay[crossed]) * (bx[crossed] - ax[crossed])
        inside[row] = np.searchsorted(np.sort(at), x) % 2 == 1
    return inside


def lookup(field: DistanceField, track: Tensor, points_m: Tensor) -> Tensor:
    """Signed distance at world points (N, B, 2) on tracks (N,), bilinear between values; shape (N, B), m."""
    place = (points_m - field.origin_m[track][:, None]) / field.resolution_m
    return _bilinear(field, track[:, None] * field.values_m[0].numel(), place[..., 0], place[..., 1])


def _bilinear(field: DistanceField, base: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Values at places counted in cells, of rasters that begin at ``base`` in the flat values."""
    rows, columns = field.values_m.shape[1:]
    x, y = x.clamp(0.0, columns - 1.001), y.clamp(0.0, rows - 1.001)
    j, i = x.long(), y.long()
    u, v = x - j, y - i
    flat, at = field.values_m.view(-1), base + i * columns + j
    low = torch.lerp(flat[at], flat[at + 1], u)
    high = torch.lerp(flat[at + columns], flat[at + columns + 1], u)
    return torch.lerp(low, high, v)


def cast_field(
    origin: Tensor, direction: Tensor, field: DistanceField, track: Tensor, range_max_m: float, *, steps: int = 96
) -> Tensor:
    """Distance to a track's borders by marching.

    Args:
        origin: Shape (N, 2).
        direction: Shape (N, B, 2), of unit length.
        field: Rasters.
        track: Shape (N,), which track each car is on.
        range_max_m: Where rays end.
        steps: At most so many; rays that graze a border need most.

    Returns:
        Shape (N, B), m, at most ``range_max_m``; 0 from outside the track.
    """
    shortest = 0.5 * field.resolution_m
    count, beams = direction.shape[:2]
    place = ((origin - field.origin_m[track]) / field.resolution_m).repeat_interleave(beams, 0)
    way = direction.reshape(-1, 2) / field.resolution_m
    base = (track * field.values_m[0].numel()).repeat_interleave(beams)
    result = torch.full((count * beams,), range_max_m, device=origin.device)
    ray, distance = torch.arange(count * beams, device=origin.device), torch.zeros_like(result)
    value = _bilinear(field, base, place[:, 0], place[:, 1])
    result = torch.where(value <= 0.0, 0.0, result)
    arrived = value <= 0.0
    for step in range(steps):
        # Rays that have arrived are dropped now and then: most do soon, and a few go on for long.
        if step % _DROP_EVERY == 0:
            on = (~arrived & (distance < range_max_m)).nonzero()[:, 0]
            ray, distance, value, place, way, base = (a[on] for a in (ray, distance, value, place, way, base))
            arrived = arrived[on]
            if len(ray) == 0:
                break
        move = value.clamp(min=shortest)
        ahead = distance + move
        after = _bilinear(field, base, place[:, 0] + ahead * way[:, 0], place[:, 1] + ahead * way[:, 1])
        # Between the last place inside and the first one outside the border is where the line through both is 0.
        crossing = distance + move * (value / (value - after).clamp(min=1e-9)).clamp(0.0, 1.0)
        hit = (after <= 0.0) & ~arrived
        result[ray[hit]] = crossing[hit]
        arrived = arrived | hit
        distance, value = ahead, after
    # What has not arrived is still on its way along a border, at least this far.
    result[ray[~arrived]] = distance[~arrived]
    return result.clamp(max=range_max_m).view(count, beams)


def finish(config: LidarConfig, distance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """What the scanner reports for true distances (N, beams), of which inf means none: noise, range, dropout.

    Args:
        config: The scanner.
        distance: Shape (N, beams), m; the minimum over all that was cast.
        generator: Draws noise and dropout; on the device of ``distance``.
    """
    ranges = distance.clamp(max=config.range_max_m)
    if config.noise_std_m > 0.0:
        noise = torch.randn(ranges.shape, generator=generator, device=ranges.device)
        noisy = (ranges + config.noise_std_m * noise).clamp(0.0, config.range_max_m)
        ranges = torch.where(distance < config.range_max_m, noisy, ranges)
    if config.dropout > 0.0:
        lost = torch.rand(ranges.shape, generator=generator, device=ranges.device) < config.dropout
        ranges = ranges.masked_fill(lost, config.range_max_m)
    return ranges
