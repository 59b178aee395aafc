"""Regular grids in the plane: which cell holds which point, in one place.

An array over a grid is (N, rows, cols): row i grows along +x, column j along +y; flattening is row-major.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from gantry_hardware.files.bounds import Range, check_fields
from gantry_mapping.elevation.ops import namespace
from gantry_mapping.errors import MappingError

Array = Any

_RANGES = {
    "rows": Range(1, 4096),
    "cols": Range(1, 4096),
    "resolution_m": Range(0.001, 10.0),
    "center_x_m": Range(-100.0, 100.0),
    "center_y_m": Range(-100.0, 100.0),
}


@dataclass(frozen=True)
class GridSpec:
    """A robot-centric grid in the ``base_yaw`` frame (origin at the base, turned by the base's yaw alone)."""

    rows: int
    """Cells along x."""
    cols: int
    """Cells along y."""
    resolution_m: float
    """Edge length of a cell."""
    center_x_m: float = 0.0
    """Forward position of the grid's centre."""
    center_y_m: float = 0.0
    """Leftward position of the grid's centre."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, "A grid's ", MappingError)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.cols

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.rows * self.cols

    @property
    def corner_x_m(self) -> float:
        """Lower edge along x, not a cell centre."""
        return self.center_x_m - 0.5 * self.rows * self.resolution_m

    @property
    def corner_y_m(self) -> float:
        """Lower edge along y, not a cell centre."""
        return self.center_y_m - 0.5 * self.cols * self.resolution_m

    def row_centers(self, like: Array) -> Array:
        """Shape (rows,), x of the cell centres in m, with namespace, dtype and device of ``like``."""
        return _centers(self.rows, self.resolution_m, self.center_x_m, like)

    def col_centers(self, like: Array) -> Array:
        """Shape (cols,), y of the cell centres in m, with namespace, dtype and device of ``like``."""
        return _centers(self.cols, self.resolution_m, self.center_y_m, like)

    def cell_centers(self, like: Array) -> Array:
        """Shape (rows, cols, 2), x and y of the cell centres in m, with namespace, dtype and device of ``like``."""
        xp = namespace(like)
        x = xp.broadcast_to(self.row_centers(like)[:, None], self.shape)
        y = xp.broadcast_to(self.col_centers(like)[None, :], self.shape)
        return xp.stack((x, y), axis=-1)

    def index_of(self, xy: Array) -> tuple[Array, Array, Array]:
        """The cells that hold points; a cell holds its lower edges and not its upper ones.

        Args:
            xy: Shape (..., 2), m, in the frame of the grid. NaN is outside.

        Returns:
            Row and column, int64 of shape (...), 0 where outside; and whether the point is inside, bool of shape (...).
        """
        return self.split_index_of(xy[..., 0], xy[..., 1])

    def split_index_of(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """:meth:`index_of` for coordinates, m, that lie in two arrays of one shape."""
        xp = namespace(x)
        scale = 1.0 / self.resolution_m
        row = xp.floor((x - self.corner_x_m) * scale)
        col = xp.floor((y - self.corner_y_m) * scale)
        inside = (row >= 0) & (row < self.rows) & (col >= 0) & (col < self.cols)
        row = xp.astype(xp.where(inside, row, 0.0), xp.int64)
        return row, xp.astype(xp.where(inside, col, 0.0), xp.int64), inside


def _centers(count: int, resolution_m: float, center_m: float, like: Array) -> Array:
    xp = namespace(like)
    steps = xp.arange(count, dtype=like.dtype, device=device(like))
    return (steps - 0.5 * (count - 1)) * resolution_m + center_m


LOCAL_GRID_FULL = GridSpec(51, 31, 0.04, 1.0, 0.0)
"""Grid that the mapping network sees around the robot: the paper's grid for a quadruped (AME-2, section V)."""
LOCAL_GRID_SMALL = GridSpec(26, 16, 0.08, 1.0, 0.0)
"""The same area at half the resolution, for training on a CPU."""
LOCAL_GRID_NEAR = GridSpec(28, 24, 0.04, 0.94, 0.0)
"""Part of it that a policy for legs that step by themselves sees, with the paper's cells, for training on a CPU."""
WINDOW_FULL = GridSpec(36, 14, 0.08, 0.6, 0.0)
"""Window that the policy sees: the paper's for a quadruped."""
WINDOW_SMALL = GridSpec(14, 8, 0.12, 0.5, 0.0)
"""A policy window of 112 cells over nearly the same length, for training on a CPU."""
WINDOW_STEPS = GridSpec(18, 10, 0.08, 0.4, 0.0)
"""A policy window of 180 cells where feet may land, fine enough to tell a plank's edge."""
