"""A planar laser scanner on N cars, exact against wall segments and boxes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_hardware.errors import GantryError
from gantry_sim.driving.sensors.boxes import slab


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
    """Range of a beam that meets nothing nearer."""

    mount_m: tuple[float, float] = (0.275, 0.0)
    """Scanner in the car's frame (centre of the rear axle), forward and left."""

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


def scanner_of(layout: LidarLayout, rays_per_beam: int) -> LidarConfig:
    """A scanner whose rays are the middles of equal shares of a layout's angles, several to a beam."""
    count = layout.beams * rays_per_beam
    half = 0.5 * (layout.angle_max_rad - layout.angle_min_rad) / count
    low, high = layout.angle_min_rad + half, layout.angle_max_rad - half
    return LidarConfig(count, low, high, layout.range_max_m, (layout.pos_x_in_base_m, 0.0))


def rays(config: LidarConfig, pose: Tensor) -> tuple[Tensor, Tensor]:
    """Origins and directions of the beams of N cars.

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
    angle = pose[:, 2, None] + angles
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


def finish(config: LidarConfig, distance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Readings of the scanner for true distances (N, beams), of which inf means none: noise, range, dropout.

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
