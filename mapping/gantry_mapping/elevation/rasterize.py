"""Points to a robot-centric grid of heights, the input of the mapping network (AME-2, section V, step 1)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_mapping.elevation import ops
from gantry_mapping.elevation.grid import GridSpec

Array = Any

EMPTY_Z_M = -2.0
"""Height of a cell that holds no point, relative to the base."""


def rasterize(
    points: Array,
    valid: Array,
    grid: GridSpec,
    *,
    lowest_m: float = -1.95,
    highest_m: float = float("inf"),
) -> tuple[Array, Array]:
    """The highest point in each cell.

    Args:
        points: Shape (N, P, 3), ``base_yaw`` frame, m. NaN counts as invalid.
        valid: Shape (N, P), bool.
        grid: Where the cells are.
        lowest_m: Points below are dropped; at least ``EMPTY_Z_M``.
        highest_m: Points above are dropped.

    Returns:
        Heights relative to the base (N, rows, cols), m, ``EMPTY_Z_M`` where empty; and which cells hold a point, bool.
    """
    xp = ops.namespace(points)
    count, z = points.shape[0], points[:, :, 2]
    row, col, inside = grid.split_index_of(points[:, :, 0], points[:, :, 1])
    use = inside & valid & (z >= max(lowest_m, EMPTY_Z_M)) & (z <= highest_m)
    # A dropped point becomes an empty one, which raises nothing: shapes stay fixed.
    height = xp.where(use, z, EMPTY_Z_M)
    index = row * grid.cols + col
    if count > 1:
        index = index + xp.arange(count, dtype=index.dtype, device=device(index))[:, None] * grid.size
    heights = xp.full((count * grid.size,), EMPTY_Z_M, dtype=z.dtype, device=device(z))
    heights = ops.scatter_max(heights, xp.reshape(index, (-1,)), xp.reshape(height, (-1,)))
    heights = xp.reshape(heights, (count, *grid.shape))
    return heights, heights > EMPTY_Z_M
