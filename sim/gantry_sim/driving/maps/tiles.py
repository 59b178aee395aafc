"""Maps as cells of road and lane markings, and the part of them around each car."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_deploy.observations.surroundings import ROAD, ROAD_BROKEN, ROAD_SOLID
from gantry_sim.driving.maps.graph import LEFT, RIGHT, YAW, FloatArray, Lane, LaneMap
from gantry_sim.driving.maps.lines import edges
from gantry_sim.process.device_work import numbers_like

_STEP = 0.4
"""Cells between two samples of a lane."""


@dataclass(frozen=True)
class RoadTiles:
    """M maps of cells, each with a margin of nothing, so that what is around a car on its road never leaves them."""

    cells: Tensor
    """Shape (M, R, C), uint8, codes of ``observations.surroundings``; rows along y, columns along x."""
    corner_m: Tensor
    """Shape (M, 2), x and y of the outer corner of each map's first cell."""
    cell_m: float
    """Edge of a cell."""
    window: int
    """Rows and columns that are shown of it."""

    def around(self, which: Tensor, position_m: Tensor) -> tuple[Tensor, Tensor]:
        """Surroundings of cars.

        Args:
            which: Shape (N,), their maps.
            position_m: Shape (N, 2), world.

        Returns:
            Cells (N, window, window), and x and y of the outer corner of the first one and the edge of a cell (N, 3):
            ``road_cells`` and ``road_place`` of :class:`gantry_deploy.observations.surroundings.Surroundings`.
        """
        corner = self.corner_m[which]
        last = numbers_like((self.cells.shape[2] - self.window, self.cells.shape[1] - self.window), which)
        first = torch.floor((position_m - corner) / self.cell_m).long() - self.window // 2
        first = torch.minimum(first.clamp(min=0), last)
        reach = torch.arange(self.window, device=self.cells.device)
        rows, columns = first[:, 1:] + reach, first[:, :1] + reach
        seen = self.cells[which[:, None, None], rows[:, :, None], columns[:, None, :]]
        place = corner + first * self.cell_m
        return seen, torch.cat((place, torch.full_like(place[:, :1], self.cell_m)), dim=1)


def road_tiles(maps: Sequence[LaneMap], cell_m: float, reach_m: float, device: str | torch.device = "cpu") -> RoadTiles:
    """Draw maps: lanes as road, their edges as markings, broken where one may change lanes, none inside junctions.

    Args:
        maps: M maps.
        cell_m: Edge of a cell.
        reach_m: How far from a car cells are asked for.
        device: Of the tensors.
    """
    window = 2 * math.ceil(reach_m / cell_m) + 3
    margin = window // 2 + 2
    drawn = [_drawn(lane_map, cell_m, margin) for lane_map in maps]
    size = np.max([cells.shape for cells, _ in drawn], axis=0)
    table = np.zeros((len(drawn), *size), dtype=np.uint8)
    for number, (cells, _) in enumerate(drawn):
        table[number, : cells.shape[0], : cells.shape[1]] = cells
    corners = np.stack([corner for _, corner in drawn]).astype(np.float32)
    return RoadTiles(torch.as_tensor(table, device=device), torch.as_tensor(corners, device=device), cell_m, window)


def _drawn(lane_map: LaneMap, cell_m: float, margin: int) -> tuple[NDArray[np.uint8], FloatArray]:
    surface = np.concatenate([_surface(_finer(lane.points, cell_m), cell_m) for lane in lane_map.lanes])
    marks = [(ROAD_BROKEN, *_marks(lane, cell_m, solid=False)) for lane in lane_map.lanes if not lane.in_junction]
    marks += [(ROAD_SOLID, *_marks(lane, cell_m, solid=True)) for lane in lane_map.lanes if not lane.in_junction]
    # Corners on whole cells of the world, so that places of cells are exact.
    first = np.floor(surface.min(axis=0) / cell_m).astype(np.int64) - margin
    count = np.floor(surface.max(axis=0) / cell_m).astype(np.int64) + margin + 1 - first
    cells = np.zeros((count[1], count[0]), dtype=np.uint8)
    for code, *lines in ((ROAD, surface), *marks):
        for points in lines:
            x, y = (np.floor(points / cell_m).astype(np.int64) - first).T
            cells[y, x] = code
    return cells, first * cell_m


def _finer(points: FloatArray, cell_m: float) -> FloatArray:
    """A table of points (n, 10) with further ones between, so that no cell is missed."""
    steps = max(1, math.ceil(float(np.hypot(*np.diff(points[:, :2], axis=0).T).max()) / (_STEP * cell_m)))
    share = np.arange(steps)[:, None, None] / steps
    between = (points[:-1] + share * np.diff(points, axis=0)).transpose(1, 0, 2).reshape(-1, points.shape[1])
    return np.concatenate([between, points[-1:]])


def _surface(points: FloatArray, cell_m: float) -> FloatArray:
    """Places (m, 2) all over a lane."""
    widest = float((points[:, LEFT] + points[:, RIGHT]).max())
    share = np.linspace(0.0, 1.0, max(2, math.ceil(widest / (_STEP * cell_m)) + 1))
    lateral = points[:, LEFT, None] - share * (points[:, LEFT] + points[:, RIGHT])[:, None]
    normal = np.stack([-np.sin(points[:, YAW]), np.cos(points[:, YAW])], axis=1)
    return (points[:, None, :2] + lateral[..., None] * normal[:, None]).reshape(-1, 2)


def _marks(lane: Lane, cell_m: float, *, solid: bool) -> list[FloatArray]:
    """The edges (n, 2) of a lane that are marked with a solid line, or with a broken one."""
    sides = zip(edges(_finer(lane.points, cell_m)), (lane.left, lane.right), strict=True)
    return [edge for edge, beside in sides if (beside < 0) == solid]
