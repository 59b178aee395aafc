"""Geometry that both depth renderers share: the rays of a camera's pixels in the world, and places of raster cells."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.frames import rotation_matrix

VOID_M = -20.0
"""Height that stands for "no ground at all" (-inf or NaN in a raster) while rays are traced; m in the world."""


class RasterError(MappingError):
    """A height raster, or where it is placed, makes no sense."""


@dataclass(frozen=True)
class Rays:
    """The pixels of N cameras as rays, P = height x width each, row-major."""

    origin_in_world: torch.Tensor
    """(N, 3) m; where the cameras are."""
    direction_in_world: torch.Tensor
    """(N, P, 3), scaled so that a step of 1 along it goes 1 m along the optical axis; the parameter is the depth."""


def camera_rays(camera: DepthCamera, pos_base_in_world: torch.Tensor, quat_base_to_world_wxyz: torch.Tensor) -> Rays:
    """Rays of one camera model on N bases, in the world frame.

    Args:
        camera: Intrinsics and where the camera sits on the base.
        pos_base_in_world: (N, 3) m.
        quat_base_to_world_wxyz: (N, 4).
    """
    base_to_world = rotation_matrix(quat_base_to_world_wxyz)
    rays, offset = _rays_in_base(camera, pos_base_in_world.dtype, pos_base_in_world.device)
    return Rays(pos_base_in_world + base_to_world @ offset, rays @ base_to_world.transpose(1, 2))


@functools.lru_cache(maxsize=64)
def _rays_in_base(camera: DepthCamera, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """As of :meth:`DepthCamera.rays_in_base`, made once and kept: a GPU would be waited for at every frame."""
    with torch.inference_mode(False):
        return camera.rays_in_base(torch.zeros(0, dtype=dtype, device=device))


def as_stack(
    raster_m: torch.Tensor,
    raster_index: torch.Tensor | None,
    corner_m: torch.Tensor | tuple[float, float],
    count: int,
    *,
    finite: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One raster or a stack of equally large ones, as a stack with an index and a corner per camera.

    Args:
        raster_m: (H, W) or (R, H, W) heights, m in the world; -inf or NaN for no ground.
        raster_index: (N,) which raster each camera stands on; None where there is one.
        corner_m: (2,) or (N, 2): x and y of the outer corner of cell (0, 0), m in the world.
        count: N.
        finite: The raster is known to hold no -inf and NaN.

    Returns:
        (R, H, W) heights without -inf and NaN, (N,) int64 index, (N, 2) corners.

    Raises:
        RasterError: If shapes do not fit each other.
    """
    stack = raster_m if raster_m.ndim == 3 else raster_m.unsqueeze(0)
    if stack.ndim != 3 or stack.shape[1] < 2 or stack.shape[2] < 2:
        raise RasterError(f"Rasters have shape {tuple(raster_m.shape)}, expected (H, W) or (R, H, W), H and W >= 2.")
    if raster_index is None:
        if len(stack) != 1:
            raise RasterError(f"{len(stack)} rasters were given, but no raster_index that says which is whose.")
        raster_index = torch.zeros(count, dtype=torch.long, device=stack.device)
    if raster_index.shape != (count,):
        raise RasterError(f"raster_index has shape {tuple(raster_index.shape)}, expected ({count},).")
    corner = torch.as_tensor(corner_m, dtype=stack.dtype).to(stack.device)
    if corner.shape not in ((2,), (count, 2)):
        raise RasterError(f"corner_m has shape {tuple(corner.shape)}, expected (2,) or ({count}, 2).")
    if not finite and not bool(torch.isfinite(stack).all()):
        stack = torch.nan_to_num(stack, nan=VOID_M, posinf=VOID_M, neginf=VOID_M)
    return stack, raster_index.long(), corner.expand(count, 2)
