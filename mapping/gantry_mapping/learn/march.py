"""Depth images of height rasters without approximation: each ray visits every cell that it crosses.

The oracle for :mod:`gantry_mapping.learn.depth`, and the renderer of training data, since it also knows things that
float above the ground.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gantry_mapping.learn.rays import as_stack, camera_rays
from gantry_mapping.sensing.camera import DepthCamera

_NEVER = float("inf")
_COMPACT_EVERY = 4


@dataclass
class _March:
    """Rays under way, M of them; times are depths in m, places in cells."""

    ray: torch.Tensor
    """(M,) which ray of all."""
    start: torch.Tensor
    """(M,) where the raster begins in the flat stack."""
    cell: torch.Tensor
    """(M, 2) cell that the ray is in; may lie outside the raster."""
    sign: torch.Tensor
    """(M, 2) which way the next cells lie."""
    leave: torch.Tensor
    """(M, 2) when the ray crosses its cell's border in x and in y."""
    delta: torch.Tensor
    """(M, 2) time from border to border."""
    entered: torch.Tensor
    """(M,) when the ray entered its cell."""
    height: torch.Tensor
    """(M,) height at time 0, m."""
    rise: torch.Tensor
    """(M,) height gained per unit of time."""

    def keep(self, mask: torch.Tensor) -> _March:
        """The rays of a mask."""
        return _March(**{name: value[mask] for name, value in vars(self).items()})


def march_depth(
    raster_m: torch.Tensor,
    resolution_m: float,
    corner_m: torch.Tensor | tuple[float, float],
    camera: DepthCamera,
    pos_base_in_world: torch.Tensor,
    quat_base_to_world_wxyz: torch.Tensor,
    *,
    raster_index: torch.Tensor | None = None,
    floating_m: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Exact depth images; arguments, result and errors as of :func:`gantry_mapping.learn.depth.render_depth`.

    Args:
        raster_m: (H, W) or (R, H, W) heights, m in the world.
        resolution_m: Edge of a cell.
        corner_m: (2,) or (N, 2): x and y of the outer corner of cell (0, 0), m in the world.
        camera: Intrinsics, mounting and range.
        pos_base_in_world: (N, 3) m.
        quat_base_to_world_wxyz: (N, 4).
        raster_index: (N,) which raster each camera stands on, for a stack.
        floating_m: Undersides and tops of things above the ground, shaped as ``raster_m``; NaN where there are none.

    Returns:
        (N, height, width) depth along the optical axis, m; 0 where a ray hits nothing within the camera's range.
    """
    count = len(pos_base_in_world)
    rays = camera_rays(camera, pos_base_in_world, quat_base_to_world_wxyz)
    depth = first_hits(
        raster_m,
        resolution_m,
        corner_m,
        rays.origin_in_world,
        rays.direction_in_world,
        camera.max_range_m,
        raster_index=raster_index,
        floating_m=floating_m,
    )
    hit = (depth >= camera.min_range_m) & (depth <= camera.max_range_m)
    return torch.where(hit, depth, 0.0).view(count, camera.height, camera.width)


def first_hits(
    raster_m: torch.Tensor,
    resolution_m: float,
    corner_m: torch.Tensor | tuple[float, float],
    origin_in_world: torch.Tensor,
    direction_in_world: torch.Tensor,
    max_time: float,
    *,
    raster_index: torch.Tensor | None = None,
    floating_m: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Times at which rays first meet something: at ``origin + time * direction``.

    Args:
        raster_m: (H, W) or (R, H, W) heights, m in the world.
        resolution_m: Edge of a cell.
        corner_m: (2,) or (N, 2): x and y of the outer corner of cell (0, 0), m in the world.
        origin_in_world: (N, 3) m, one for the P rays of each row.
        direction_in_world: (N, P, 3) m per unit of time, of any length.
        max_time: Rays are given up then.
        raster_index: (N,) which raster each row is over, for a stack.
        floating_m: As of :func:`march_depth`.

    Returns:
        (N, P) times, inf for none; a ray that begins below ground hits at 0.
    """
    count, width = direction_in_world.shape[:2]
    stack, index, corner = as_stack(raster_m, raster_index, corner_m, count)
    place = ((origin_in_world[:, :2] - corner) / resolution_m).repeat_interleave(width, 0)
    direction = direction_in_world.reshape(-1, 3)
    speed = direction[:, :2] / resolution_m
    cell = place.floor()
    ahead = speed > 0
    march = _March(
        ray=torch.arange(len(place), device=place.device),
        start=(index * stack[0].numel()).repeat_interleave(width),
        cell=cell.long(),
        sign=torch.where(ahead, 1, -1),
        leave=torch.where(speed == 0, _NEVER, (cell + ahead - place) / speed),
        delta=torch.where(speed == 0, _NEVER, 1.0 / speed.abs()),
        entered=torch.zeros_like(place[:, 0]),
        height=origin_in_world[:, 2].repeat_interleave(width),
        rise=direction[:, 2].contiguous(),
    )
    layers = [stack.flatten()]
    if floating_m is not None:
        # A NaN compares as false, so that nothing is hit where nothing floats.
        layers += [layer.reshape(stack.shape).flatten() for layer in floating_m]
    return _run(march, layers, stack.shape[1:], max_time, len(place)).view(count, width)


def _run(march: _March, layers: list[torch.Tensor], shape: torch.Size, max_time: float, total: int) -> torch.Tensor:
    """(total,) first hits of rays, inf for none."""
    depth = torch.full((total,), _NEVER, device=march.height.device, dtype=march.height.dtype)
    rows, columns = shape
    step = 0
    while len(march.ray):
        inside = march.cell[:, 0].clamp(0, rows - 1) * columns + march.cell[:, 1].clamp(0, columns - 1) + march.start
        left = march.leave.amin(dim=1)
        hit = _hits(march, [layer[inside] for layer in layers], left)
        depth[march.ray] = torch.minimum(depth[march.ray], hit)
        axis_is_x = march.leave[:, 0] <= march.leave[:, 1]
        axis = torch.stack((axis_is_x, ~axis_is_x), dim=1)
        march.cell += axis * march.sign
        march.leave += torch.where(axis, march.delta, 0.0)
        march.entered = left
        step += 1
        if step % _COMPACT_EVERY == 0:
            march = march.keep((depth[march.ray] == _NEVER) & (march.entered <= max_time))
    return depth


def _hits(march: _March, ground: list[torch.Tensor], left: torch.Tensor) -> torch.Tensor:
    """(M,) when rays hit something in their cell, inf if they do not.

    Args:
        march: The rays.
        ground: (M,) ground below them, m; and undersides and tops of what floats, if anything does.
        left: (M,) when they leave the cell.
    """
    height_in = march.height + march.rise * march.entered
    height_out = march.height + march.rise * left
    top = ground[0]
    falls = march.rise < 0
    safe_rise = torch.where(march.rise == 0, 1.0, march.rise)
    hit = torch.where(falls & (height_out <= top), (top - march.height) / safe_rise, _NEVER)
    hit = torch.where(height_in <= top, march.entered, hit)
    if len(ground) == 3:
        bottom, roof = ground[1:]
        inside = (height_in >= bottom) & (height_in <= roof)
        onto = falls & (height_in > roof) & (height_out <= roof)
        under = (march.rise > 0) & (height_in < bottom) & (height_out >= bottom)
        surface = torch.where(onto, roof, bottom)
        other = torch.where(onto | under, (surface - march.height) / safe_rise, _NEVER)
        hit = torch.minimum(hit, torch.where(inside, march.entered, other))
    return hit
