"""Shortest paths to a goal from anywhere on its tile: around walls and voids, where both sides' feet find ground."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import grey_closing, maximum_filter, uniform_filter
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from gantry_deploy.footsteps.map_search import vertex
from gantry_deploy.footsteps.terrain_lookup import interpolated
from gantry_sim.tasks.goal.scripted.ground import Ground

Array = NDArray[np.float64]

CELL_M = 0.1
"""Edge length of a cell of the paths."""
STRIP_CELLS, TALL_STRIP_CELLS = 14, 16
"""The strips at either end of a tile, on which robots start and have their goals: what tells voids and walls."""
STEP_M = 0.25
"""So much below the strips is a void, so much above both a wall."""
VOID_COST, TRACK_COST, WALL_COST, NEAR_WALL_COST, EDGE_COST, CLIMB_COST = 3.0, 5.0, 30.0, 3.0, 5.0, 1.0
"""Costs of a metre beside its length; and a metre of height, beyond 5 cm from cell to cell."""
WALL_CELLS, NEAR_CELLS = 5, 7
"""Width in cells that one of a wall counts as wall, and as near it: a robot passes 25 cm beside it."""
SPANNED_CELLS = 5
"""A void narrower than so many cells is stepped over and not climbed into."""
EDGE_CELLS = 4
"""Cells beside the tile's edge that are kept away from."""
RAYS = 24
"""Points on a circle at which the direction of the path is looked for."""
_NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1), (2, 1), (1, 2), (2, -1), (1, -2))


class Paths:
    """Lengths of the paths to every goal, worked out tile by tile when first asked for, some 20 ms each.

    Args:
        ground: The terrain.
        goals_w: (levels, columns, goals, 3) points on the ground, m.
        low_w: (levels, columns, 2) the corner of least x and y of each tile, m.
        size_m: Length (along x) and width of a tile.
        track_m: Distance of the feet's tracks to the side of the base.
    """

    def __init__(
        self, ground: Ground, goals_w: Tensor, low_w: Tensor, size_m: tuple[float, float], track_m: float
    ) -> None:
        self._ground, self._track_m = ground, track_m
        self._goals, self._low = goals_w, low_w
        self._shape = (int(size_m[0] / CELL_M + 0.5), int(size_m[1] / CELL_M + 0.5))
        levels, columns, goals = goals_w.shape[:3]
        self._length = torch.zeros(levels, columns, goals, *self._shape, device=goals_w.device)
        self._known = torch.zeros(levels, columns, dtype=torch.bool, device=goals_w.device)
        angle = torch.arange(RAYS, device=goals_w.device) * (2.0 * math.pi / RAYS)
        self._rays = torch.stack((torch.cos(angle), torch.sin(angle)), -1)

    def direction(self, pos_w: Tensor, level: Tensor, column: Tensor, goal: Tensor, look_m: float) -> Tensor:
        """Unit vectors (N, 2) in the world along the paths from points (N, 2), m, to goals given by level, column and
        number, (N,) each; the paths are followed this far."""
        self._learn(level, column)
        points = pos_w[:, None] + look_m * self._rays
        place = (points - self._low[level, column][:, None]) / CELL_M - 0.5
        ahead = interpolated(self._length[level, column, goal], place[..., 0], place[..., 1])
        best = ahead.argmin(1)
        before, here, after = (ahead.gather(1, (best[:, None] + k) % RAYS)[:, 0] for k in (-1, 0, 1))
        angle = (best + vertex(before, here, after, 0.5)) * (2.0 * math.pi / RAYS)
        return torch.stack((torch.cos(angle), torch.sin(angle)), -1)

    def _learn(self, level: Tensor, column: Tensor) -> None:
        new = ~self._known[level, column]
        if not bool(new.any()):
            return
        for a, b in torch.stack((level[new], column[new]), -1).unique(dim=0).tolist():
            self._length[a, b] = self._tile(a, b).to(self._length.device)
            self._known[a, b] = True

    def _tile(self, level: int, column: int) -> Tensor:
        """Lengths of the paths to each goal of a tile, (goals, rows, columns)."""
        low, (rows, columns) = self._low[level, column], self._shape
        x, y = (torch.arange(count, device=low.device) for count in self._shape)
        points = low + CELL_M * (torch.stack(torch.meshgrid(x, y, indexing="ij"), -1) + 0.5)
        height = self._ground.at(points, self._ground.height).cpu().numpy().astype(float)
        costs = path_costs(height, self._tracks(points, height))
        cells = ((self._goals[level, column, :, :2] - low) / CELL_M).floor().long().cpu().numpy()
        source = cells[:, 0].clip(0, rows - 1) * columns + cells[:, 1].clip(0, columns - 1)
        return torch.from_numpy(path_lengths(height, costs, source)).float()

    def _tracks(self, points: Tensor, height: Array) -> Array:
        """Share of the ground below the feet of either side, the worse, that carries; 0 to 1."""
        floor = _floor(height)
        sides = []
        for side in (-self._track_m, self._track_m):
            shifts = [(x, side + y) for x in np.linspace(-0.25, 0.25, 7) for y in (-0.05, 0.0, 0.05)]
            under = points[..., None, :] + torch.tensor(shifts, dtype=points.dtype, device=points.device)
            carries = self._ground.at(under, self._ground.lowest) > floor
            sides.append(carries.double().mean(-1))
        return torch.minimum(*sides).cpu().numpy()


def _floor(height: Array) -> float:
    return min(float(np.median(height[part])) for part in _strips(STRIP_CELLS)) - STEP_M


def _strips(cells: int) -> tuple[slice, slice]:
    return slice(0, cells), slice(-cells, None)


def path_costs(height_m: Array, tracks: Array) -> Array:
    """Cost of a metre in each cell of a tile, (rows, columns); 1 on good ground.

    Args:
        height_m: (rows, columns) heights.
        tracks: (rows, columns) 0 to 1, how much of the ground below the feet carries.
    """
    void = (height_m < _floor(height_m)).astype(float)
    wall = (height_m > max(float(height_m[part].max()) for part in _strips(TALL_STRIP_CELLS)) + STEP_M).astype(float)
    edge = np.zeros_like(height_m)
    edge[:, :EDGE_CELLS] = edge[:, -EDGE_CELLS:] = 1.0
    return (
        1.0
        + VOID_COST * uniform_filter(void, size=5)
        + TRACK_COST * (1.0 - tracks) ** 1.5
        + WALL_COST * maximum_filter(wall, size=WALL_CELLS)
        + NEAR_WALL_COST * uniform_filter(maximum_filter(wall, size=NEAR_CELLS), size=3)
        + EDGE_COST * edge
    )


def path_lengths(height_m: Array, costs: Array, sources: NDArray[np.int64]) -> Array:
    """Costs of the cheapest paths (Dijkstra) from each cell to the sources, (sources, rows, columns).

    Args:
        height_m: (rows, columns) heights.
        costs: (rows, columns) what a metre costs.
        sources: (sources,) numbers of cells, row after row.
    """
    rows, columns = height_m.shape
    height_m = grey_closing(height_m, size=SPANNED_CELLS)
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = []
    for i, j in _NEIGHBOURS:
        left, right = max(0, -j), max(0, j)
        here = number[: rows - i, left : columns - right].ravel()
        there = number[i:, right : columns - left].ravel()
        climb = np.abs(height_m.ravel()[here] - height_m.ravel()[there])
        metres = 0.5 * CELL_M * math.hypot(i, j)
        cost = metres * (costs.ravel()[here] + costs.ravel()[there]) + CLIMB_COST * np.maximum(climb - 0.05, 0.0)
        pairs.append((here, there, cost))
    here, there, cost = (np.concatenate(part) for part in zip(*pairs, strict=True))
    graph = coo_matrix((cost, (here, there)), shape=(rows * columns,) * 2).tocsr()
    different, which = np.unique(sources, return_inverse=True)
    lengths = dijkstra(graph, directed=False, indices=different)
    return lengths[which.ravel()].reshape(len(sources), rows, columns)
