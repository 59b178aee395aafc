"""Depth images of height rasters, cheap enough for every environment of a training at every frame.

A ray over a height raster that starts above ground first meets it where the running maximum of the slope
(height - camera height) / range along its azimuth reaches the ray's own slope. So one profile per azimuth serves all
pixels that look that way: some 64 azimuths x 96 ranges per camera instead of 1296 pixels x 96 steps. The azimuth of a
pixel is rounded to the nearest profile, and inside the interval of the crossing the ground is taken as straight;
:mod:`gantry_mapping.learn.march` is exact and slower.
"""

from __future__ import annotations

import math

import torch

from gantry_mapping.learn.rays import as_stack, camera_rays
from gantry_mapping.sensing.camera import DepthCamera

CHUNK_CAMERAS = 16
"""Cameras at a time on a CPU, so that their profiles stay in its cache (about 0.4 MB)."""
_HALF_TURN = math.pi


def render_depth(
    raster_m: torch.Tensor,
    resolution_m: float,
    corner_m: torch.Tensor | tuple[float, float],
    camera: DepthCamera,
    pos_base_in_world: torch.Tensor,
    quat_base_to_world_wxyz: torch.Tensor,
    *,
    raster_index: torch.Tensor | None = None,
    azimuths: int = 64,
    ranges: int = 96,
    max_range_m: float | None = None,
    finite: bool = False,
) -> torch.Tensor:
    """Depth images over ground made of columns: flat tops of one cell each, vertical walls between them.

    Args:
        raster_m: (H, W) or (R, H, W) heights, m in the world; row i grows along +x, column j along +y; -inf or NaN for
            no ground. Beyond its border the outermost cells go on.
        resolution_m: Edge of a cell.
        corner_m: (2,) or (N, 2): x and y of the outer corner of cell (0, 0), m in the world.
        camera: Intrinsics, mounting and range.
        pos_base_in_world: (N, 3) m.
        quat_base_to_world_wxyz: (N, 4).
        raster_index: (N,) which raster each camera stands on, for a stack.
        azimuths: Profiles per camera, spread evenly over what it sees.
        ranges: Samples per profile, evenly spaced; walls are found within ``max_range_m / ranges``.
        max_range_m: Horizontal reach of the profiles; the camera's own range where None.
        finite: The raster is known to hold no -inf and NaN; looking for them in a large one takes longer than a frame.

    Returns:
        (N, height, width) depth along the optical axis, m; 0 where a ray hits nothing within the camera's range.

    Raises:
        RasterError: If shapes do not fit each other.
    """
    count = len(pos_base_in_world)
    stack, index, corner = as_stack(raster_m, raster_index, corner_m, count, finite=finite)
    rays = camera_rays(camera, pos_base_in_world, quat_base_to_world_wxyz)
    reach = camera.max_range_m if max_range_m is None else max_range_m
    steps = torch.linspace(reach / ranges, reach, ranges, device=stack.device, dtype=stack.dtype)
    chunk = CHUNK_CAMERAS if stack.device.type == "cpu" else count
    parts = [
        _render_chunk(
            stack,
            index[start : start + chunk],
            (rays.origin_in_world[start : start + chunk, :2] - corner[start : start + chunk]) / resolution_m,
            rays.origin_in_world[start : start + chunk, 2],
            rays.direction_in_world[start : start + chunk],
            steps,
            azimuths,
            resolution_m,
        )
        for start in range(0, count, max(chunk, 1))
    ]
    depth = torch.cat(parts) if parts else stack.new_zeros(0, camera.height * camera.width)
    hit = (depth >= camera.min_range_m) & (depth <= camera.max_range_m)
    return torch.where(hit, depth, 0.0).unflatten(1, (camera.height, camera.width))


def _render_chunk(
    stack: torch.Tensor,
    index: torch.Tensor,
    place: torch.Tensor,
    height: torch.Tensor,
    direction: torch.Tensor,
    steps: torch.Tensor,
    azimuths: int,
    resolution_m: float,
) -> torch.Tensor:
    """(n, P) depth of n cameras at ``place`` (n, 2), in cells from the corner, and ``height`` (n,), m."""
    heading = direction.sum(dim=1)  # the mean ray; where it points straight down any azimuth will do
    cos, sin = torch.nn.functional.normalize(heading[:, :2], dim=1, eps=1e-6).unbind(1)
    dx, dy, dz = direction.unbind(-1)
    horizontal = torch.rsqrt(dx * dx + dy * dy + 1e-12)
    slope = dz * horizontal
    ahead, aside = dx * cos[:, None] + dy * sin[:, None], dy * cos[:, None] - dx * sin[:, None]
    angle = torch.atan2(aside, ahead)
    half = angle.abs().amax(dim=1).clamp(min=1e-3, max=_HALF_TURN)  # (n,): what the image spans, to either side
    spread = torch.linspace(-1.0, 1.0, azimuths, device=angle.device, dtype=angle.dtype)
    fan = half[:, None] * spread + torch.atan2(sin, cos)[:, None]
    profile, horizon = _profiles(stack, index, place, height, fan, steps / resolution_m, steps)
    which = torch.round((angle / half[:, None] + 1.0) * (0.5 * (azimuths - 1))).long()
    rows = which + (torch.arange(len(index), device=which.device) * azimuths)[:, None]
    distance = _first_crossing(profile, horizon, rows.flatten(), slope.flatten(), steps, len(index) * azimuths)
    return distance.view_as(slope) * horizontal


def _profiles(
    stack: torch.Tensor,
    index: torch.Tensor,
    place: torch.Tensor,
    height: torch.Tensor,
    fan: torch.Tensor,
    cells: torch.Tensor,
    steps: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes to the ground along azimuths.

    Args:
        stack: (R, H, W) heights.
        index: (n,) raster of each camera.
        place: (n, 2) cameras, in cells.
        height: (n,) of the cameras, m.
        fan: (n, A) azimuths in the world, rad.
        cells: (K,) ranges in cells.
        steps: (K,) ranges in m.

    Returns:
        (K, n * A) slopes, and the same as a running maximum.
    """
    _, rows, columns = stack.shape
    x = place[:, :1] + torch.cos(fan) * cells[:, None, None]  # (K, n, A)
    y = place[:, 1:] + torch.sin(fan) * cells[:, None, None]
    cell = x.clamp_(0, rows - 1).long().mul_(columns).add_(y.clamp_(0, columns - 1).long())
    cell += (index * (rows * columns))[:, None]
    ground = stack.flatten().index_select(0, cell.flatten()).view_as(x)
    slope = ground.sub_(height[:, None]).div_(steps[:, None, None]).flatten(1)
    horizon = slope.clone()
    for k in range(1, len(steps)):
        torch.maximum(horizon[k - 1], horizon[k], out=horizon[k])
    return slope, horizon


def _first_crossing(
    profile: torch.Tensor,
    horizon: torch.Tensor,
    rows: torch.Tensor,
    slope: torch.Tensor,
    steps: torch.Tensor,
    width: int,
) -> torch.Tensor:
    """(M,) horizontal distance, m, at which rays of ``slope`` (M,) in profiles ``rows`` (M,) meet the ground; or inf.

    A bisection over each ray's column of ``horizon``, whose values never fall.
    """
    last = len(steps)
    flat = horizon.flatten()
    found = rows - width  # one before the first sample; grows to the last sample that the ray passes above
    stride = 1 << (last.bit_length() - 1)
    end = rows + (last - 1) * width
    while stride:
        probe = found + stride * width
        passed = flat.index_select(0, torch.minimum(probe, end)) < slope
        passed &= probe <= end
        found = torch.where(passed, probe, found)
        stride >>= 1
    after = torch.minimum(found + width, end)
    first = found < rows
    before = torch.where(first, after, found)  # before the first sample the ground is as high as there
    step = steps[0]
    near = torch.div(found - rows, width, rounding_mode="floor").to(slope.dtype).add_(1.0).mul_(step)
    flat = profile.flatten()
    at_after = flat.index_select(0, after).mul_(near + step)  # heights over the camera
    at_before = flat.index_select(0, before).mul_(torch.where(first, near + step, near))
    above = slope * near - at_before
    share = above / (at_after - at_before - slope * step)
    distance = near + share.nan_to_num_(0.5).clamp_(0.0, 1.0) * step
    return torch.where(found >= end, float("inf"), distance)
