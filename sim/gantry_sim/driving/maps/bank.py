"""Lines, maps and lots as padded tensors on a device, built once and read by every environment."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.graph import COLUMNS
from gantry_sim.driving.maps.lines import Line
from gantry_sim.driving.maps.lots import ParkingLot

NO_STOP_M = 1000.0
"""Distance that stands for "no stop line ahead"."""


@dataclass(frozen=True)
class LineBank:
    """R lines of up to L points, each with equal distances between its points."""

    table: Tensor
    """Shape (R, L, 10), float32, columns as in ``graph.COLUMNS``; after a line's end its last point is repeated."""

    segments: Tensor
    """Shape (R * L, 5), from each point to the next: x, y, way along x and y in m, 1 / squared length; for searches."""

    count: Tensor
    """Shape (R,), points of each line."""

    step_m: Tensor
    """Shape (R,), distance between its points: point i lies at arc length i * step."""

    length_m: Tensor
    """Shape (R,), arc length of each line."""

    closed: Tensor
    """Shape (R,), bool, whether it leads round and round (its last point is its first)."""

    lanes: Tensor
    """Shape (R, L), int64, lane of its map that each point belongs to; -1 if none."""

    stops: Tensor
    """Shape (R, S, 4): arc length, junction, group and connector of each stop line in order; arc length inf if none."""

    digest: str
    """SHA-256 over the lines, for reports."""

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.table.device

    def __len__(self) -> int:
        return len(self.table)


@dataclass(frozen=True)
class LotBank:
    """M parking lots."""

    goal: Tensor
    """Shape (M, 5): centre, yaw, length, width of the slot to reach."""

    boxes: Tensor
    """Shape (M, K, 5), cars that stand there."""

    taken: Tensor
    """Shape (M, K), bool, whether a box exists."""

    walls: Tensor
    """Shape (M, 4, 4), segments."""

    start: Tensor
    """Shape (M, 5), the aisle."""

    digest: str
    """SHA-256 over the lots, for reports."""


def line_bank(lines: Sequence[Line], device: str | torch.device = "cpu", spacing_m: float | None = 1.0) -> LineBank:
    """Pack lines.

    Args:
        lines: Routes, lanes or tracks.
        device: Where the tensors shall be.
        spacing_m: About the distance between points, equal within a line; None keeps points that already are.

    Raises:
        GantryError: No line.
    """
    if not lines:
        raise GantryError("A bank needs at least one line.")
    even = [line if spacing_m is None else line.resampled(spacing_m) for line in lines]
    rows, longest = len(even), max(len(line.points) for line in even)
    most = max(1, *(len(line.stops) for line in even))
    table = np.zeros((rows, longest, len(COLUMNS)), dtype=np.float32)
    lanes = np.full((rows, longest), -1, dtype=np.int64)
    stops = np.tile(np.array([np.inf, -1.0, -1.0, -1.0], dtype=np.float32), (rows, most, 1))
    for row, line in enumerate(even):
        count = len(line.points)
        table[row, :count], table[row, count:] = line.points, line.points[-1]
        if line.lanes is not None:
            lanes[row, :count], lanes[row, count:] = line.lanes, line.lanes[-1]
        for place, stop in enumerate(line.stops):
            stops[row, place] = stop.s_m, stop.junction, stop.group, stop.connector
    count = torch.tensor([len(line.points) for line in even], device=device)
    # Of the lines as given, whose arc length the stop lines are measured along.
    length = torch.tensor([line.length_m for line in lines], dtype=torch.float32, device=device)
    tensor = torch.as_tensor(table, device=device)
    return LineBank(
        table=tensor,
        segments=_segments(tensor),
        count=count,
        step_m=length / (count - 1),
        length_m=length,
        closed=torch.tensor([line.closed for line in even], device=device),
        lanes=torch.as_tensor(lanes, device=device),
        stops=torch.as_tensor(stops, device=device),
        digest=hashlib.sha256("".join(line.digest for line in lines).encode()).hexdigest(),
    )


def _segments(table: Tensor) -> Tensor:
    start = table[..., :2]
    way = torch.roll(start, -1, dims=1) - start
    way[:, -1] = 0.0
    inverse = 1.0 / (way * way).sum(-1, keepdim=True).clamp(min=1e-9)
    return torch.cat([start, way, inverse], dim=-1).reshape(-1, 5).contiguous()


def lot_bank(lots: Sequence[ParkingLot], device: str | torch.device = "cpu") -> LotBank:
    """Pack parking lots.

    Raises:
        GantryError: No lot.
    """
    if not lots:
        raise GantryError("A bank needs at least one lot.")
    most = max(1, *(len(lot.boxes) for lot in lots))
    boxes, taken = np.zeros((len(lots), most, 5)), np.zeros((len(lots), most), dtype=bool)
    for row, lot in enumerate(lots):
        boxes[row, : len(lot.boxes)], taken[row, : len(lot.boxes)] = lot.boxes, True

    def tensor(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=device)

    return LotBank(
        goal=tensor(np.stack([lot.goal for lot in lots])),
        boxes=tensor(boxes),
        taken=torch.as_tensor(taken, device=device),
        walls=tensor(np.stack([lot.walls for lot in lots])),
        start=tensor(np.stack([lot.start for lot in lots])),
        digest=hashlib.sha256("".join(lot.digest for lot in lots).encode()).hexdigest(),
    )
