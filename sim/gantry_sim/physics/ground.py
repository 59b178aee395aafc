"""Topmost geometry: static geoms of a model, sorted into the cells of a horizontal grid.

A cell holds the one geom that covers it, or the few that may be on top somewhere in it, so that the height below any
point can be computed from those alone (``heightmap.py``). Heights are therefore exact at any cell size; the cell size
only decides how often more than one geom has to be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

_BOX = int(mujoco.mjtGeom.mjGEOM_BOX)
_HFIELD = int(mujoco.mjtGeom.mjGEOM_HFIELD)
_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
_EDGE_M = 1e-6  # geoms that touch a cell's edge within this do not overlap it, and cover it to the edge
_MAX_CANDIDATES = 8

EXACT = np.iinfo(np.int32).min
"""Code of a cell that needs MuJoCo's own ray: other shapes, or too many geoms at once."""


@dataclass(frozen=True)
class Ground:
    """Static geoms of some geom groups, and the grid that finds them; see :func:`sort_ground`."""

    planes: NDArray[np.int64]
    """Geom ids of infinite planes that face up; they are everywhere, and not in the grid."""
    surfaces: NDArray[np.int64]
    """Geom ids of the boxes and upright height fields in the grid."""
    others: NDArray[np.int64]
    """Geom ids of all other shapes in the grid."""
    codes: NDArray[np.int32]
    """(rows along y, columns along x): 0 nothing, s + 1 surface s covers the cell and is on top, -(c + 1) any of
    ``candidates[c]`` may be on top, :data:`EXACT` something else may be."""
    candidates: NDArray[np.int32]
    """(lists, at most 8) indices into ``surfaces``, filled up with -1."""
    corner_m: tuple[float, float]
    """World x, y of the outer corner of cell (0, 0)."""
    cell_m: float
    """Edge length of a cell."""


def is_static(model: mujoco.MjModel, geom: int) -> bool:
    """Whether a geom never moves: its body is welded to the world, and not through a mocap body."""
    body = int(model.geom_bodyid[geom])
    while body and model.body_mocapid[body] < 0:
        body = int(model.body_parentid[body])
    return body == 0 and model.body_weldid[model.geom_bodyid[geom]] == 0


def is_visible(model: mujoco.MjModel, geom: int, groups: tuple[int, ...] | None) -> bool:
    """Whether rays that look at these geom groups (None for all) can hit a geom, by MuJoCo's rules."""
    material = int(model.geom_matid[geom])
    alpha = model.geom_rgba[geom, 3] if material < 0 else model.mat_rgba[material, 3]
    group = min(max(int(model.geom_group[geom]), 0), mujoco.mjNGROUP - 1)
    return alpha != 0 and (groups is None or group in groups)


def sort_ground(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    groups: tuple[int, ...] | None,
    *,
    cell_m: float = 0.025,
    max_cells: int = 40_000_000,
) -> Ground:
    """Sort a model's static geoms into a grid.

    Args:
        model: Compiled model.
        data: Its kinematics, current for the static geoms.
        groups: Geom groups that rays look at; None for all.
        cell_m: Edge length of a cell; doubled until there are at most ``max_cells`` (4 bytes each).
        max_cells: Bound on the number of cells.
    """
    geoms = [g for g in range(model.ngeom) if is_static(model, g) and is_visible(model, g, groups)]
    types = model.geom_type
    planes = [g for g in geoms if types[g] == _PLANE and not model.geom_size[g, :2].any()]
    planes_up = [g for g in planes if data.geom_xmat[g, 8] > 0]
    others = [g for g in geoms if g not in set(planes)]
    if not others:
        none, empty = np.zeros(0, np.int64), np.zeros((0, 0), np.int32)
        return Ground(np.array(planes_up, np.int64), none, none, empty, empty, (0.0, 0.0), cell_m)
    surfaces = [g for g in others if types[g] == _BOX or (types[g] == _HFIELD and _is_aligned(data, g))]
    boxes = {g: bounds(model, data, g) for g in others}
    low = np.min([box[0] for box in boxes.values()], axis=0)
    high = np.max([box[1] for box in boxes.values()], axis=0)
    while np.prod((high - low)[:2] / cell_m + 2) > max_cells:
        cell_m *= 2
    corner = np.floor(low[:2] / cell_m) * cell_m  # edges at multiples of the cell size then lie on cell edges
    shape = tuple(np.ceil((high[:2] - corner) / cell_m - _EDGE_M).astype(int)[::-1])
    grid = _Grid(corner, cell_m, shape)
    for index, geom in enumerate(surfaces):
        if _is_aligned(data, geom):
            grid.cover(index, *boxes[geom], _hfield(model, data, geom))
    for index, geom in enumerate(surfaces):
        grid.overlap(index, *boxes[geom], _hfield(model, data, geom))
    rest = sorted(set(others) - set(surfaces))
    for geom in rest:
        grid.overlap(-1, *boxes[geom], None)
    codes, candidates = grid.finish()
    return Ground(
        planes=np.array(planes_up, np.int64),
        surfaces=np.array(surfaces, np.int64),
        others=np.array(rest, np.int64),
        codes=codes,
        candidates=candidates,
        corner_m=(float(corner[0]), float(corner[1])),
        cell_m=cell_m,
    )


class _Grid:
    """The cells while they are being filled."""

    def __init__(self, corner: NDArray[np.float64], cell_m: float, shape: tuple[int, ...]) -> None:
        self.corner = corner
        self.cell_m = cell_m
        self.owner = np.full(shape, -1, np.int32)
        self.floor = np.full(shape, -np.inf, np.float32)  # everything lower than this is hidden
        self.cells: list[NDArray[np.int64]] = []
        self.indices: list[NDArray[np.int32]] = []

    def window(self, low: NDArray[np.float64], high: NDArray[np.float64], inner: bool) -> tuple[slice, slice]:
        """Cells inside a rectangle, or cells that overlap it."""
        tolerance = _EDGE_M / self.cell_m * (1 if inner else -1)
        start, stop = (low[:2] - self.corner) / self.cell_m, (high[:2] - self.corner) / self.cell_m
        first = np.ceil(start - tolerance) if inner else np.floor(start - tolerance)
        last = np.floor(stop + tolerance) if inner else np.ceil(stop + tolerance)
        first = np.clip(first, 0, self.owner.shape[::-1]).astype(int)
        last = np.clip(last, first, self.owner.shape[::-1]).astype(int)
        return slice(first[1], last[1]), slice(first[0], last[0])

    def cover(self, index: int, low: NDArray[np.float64], high: NDArray[np.float64], field: _Field | None) -> None:
        """Let a surface own the cells that it covers, where it is the highest so far."""
        window = self.window(low, high, inner=True)
        bottom = np.float32(high[2]) if field is None else field.range_in(window, self)[0]
        higher = self.floor[window] < bottom
        self.owner[window][higher] = index
        self.floor[window] = np.maximum(self.floor[window], bottom)

    def overlap(self, index: int, low: NDArray[np.float64], high: NDArray[np.float64], field: _Field | None) -> None:
        """Note the cells where a surface may be on top without owning them."""
        window = self.window(low, high, inner=False)
        top = np.float32(high[2]) if field is None else field.range_in(window, self)[1]
        rows, columns = np.nonzero((self.floor[window] < top) & (self.owner[window] != index))
        cells = (rows + window[0].start) * self.owner.shape[1] + columns + window[1].start
        self.cells.append(cells)
        self.indices.append(np.full(len(cells), index, np.int32))

    def finish(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The codes and the lists of candidates."""
        codes = self.owner.reshape(-1)
        cells, indices = np.concatenate(self.cells), np.concatenate(self.indices)
        shared, place, count = np.unique(cells, return_inverse=True, return_counts=True)
        order = np.argsort(place, kind="stable")
        slot = np.arange(len(cells)) - np.repeat(np.cumsum(count) - count, count)
        fits = slot < _MAX_CANDIDATES - 1
        candidates = np.full((len(shared), _MAX_CANDIDATES), -1, np.int32)
        candidates[:, 0] = codes[shared]
        candidates[place[order][fits], slot[fits] + 1] = indices[order][fits]
        exact = np.zeros(len(shared), bool)
        exact[place[order][~fits]] = True
        exact[place[indices < 0]] = True
        used = int(min(count.max(initial=0) + 1, _MAX_CANDIDATES))
        codes += 1
        codes[shared] = np.where(exact, EXACT, -1 - np.arange(len(shared)))
        return codes.reshape(self.owner.shape), candidates[:, :used]


@dataclass(frozen=True)
class _Field:
    """An upright height field's lowest and highest point in each of its quads."""

    corner: NDArray[np.float64]
    quad_m: NDArray[np.float64]
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    def range_in(self, window: tuple[slice, slice], grid: _Grid) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Bounds on the surface in each cell of a window."""
        quads = []
        for axis, cells in ((1, window[0]), (0, window[1])):
            edges = grid.corner[axis] + grid.cell_m * np.arange(cells.start, cells.stop + 1)
            quad = np.floor((edges - self.corner[axis]) / self.quad_m[axis] + np.array([-_EDGE_M])).astype(int)
            last = self.low.shape[1 - axis] - 1
            quads.append((np.clip(quad[:-1], 0, last), np.clip(quad[1:], 0, last)))
        (row0, row1), (column0, column1) = quads
        if np.any(row1 - row0 > 1) or np.any(column1 - column0 > 1):  # cells larger than quads: bounds of the whole
            shape = (len(row0), len(column0))
            return np.full(shape, self.low.min()), np.full(shape, self.high.max())
        parts = [np.ix_(rows, columns) for rows in (row0, row1) for columns in (column0, column1)]
        low = np.minimum.reduce([self.low[part] for part in parts])
        return low, np.maximum.reduce([self.high[part] for part in parts])


def _is_aligned(data: mujoco.MjData, geom: int) -> bool:
    return bool(np.allclose(data.geom_xmat[geom], np.eye(3).reshape(-1), atol=1e-9))


def _hfield(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> _Field | None:
    if model.geom_type[geom] != _HFIELD:
        return None
    field = int(model.geom_dataid[geom])
    rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
    size = model.hfield_size[field]
    start = int(model.hfield_adr[field])
    heights = model.hfield_data[start : start + rows * columns].reshape(rows, columns)
    z = (data.geom_xpos[geom, 2] + size[2] * heights).astype(np.float32)
    corners = (z[:-1, :-1], z[1:, :-1], z[:-1, 1:], z[1:, 1:])
    return _Field(
        corner=data.geom_xpos[geom, :2] - size[:2],
        quad_m=2 * size[:2] / (columns - 1, rows - 1),
        low=np.minimum.reduce(corners),
        high=np.maximum.reduce(corners),
    )


def bounds(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """World-frame bounding box (low, high) of a geom."""
    rotation = data.geom_xmat[geom].reshape(3, 3)
    if model.geom_type[geom] == _PLANE:  # a finite one: MuJoCo gives planes no bounding box
        half = np.append(np.where(model.geom_size[geom, :2] > 0, model.geom_size[geom, :2], 1e3), 0.0)
        center = np.zeros(3)
    else:
        center, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    middle = data.geom_xpos[geom] + rotation @ center
    reach = np.abs(rotation) @ half
    return middle - reach, middle + reach
