"""Lines, maps and lots as padded tensors on a device, built once and read by every environment."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.graph import COLUMNS, LaneMap
from gantry_sim.driving.maps.lines import Line, lane_line
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
        """Where the tensors are."""
        return self.table.device

    def __len__(self) -> int:
        return len(self.table)


@dataclass(frozen=True)
class MapBank:
    """All lanes of M maps as one list of R lanes, and their links. A missing lane is -1."""

    lines: LineBank
    """The lanes as lines."""

    first: Tensor
    """Shape (M + 1,), the lanes of map m are first[m] to first[m + 1] - 1."""

    successors: Tensor
    """Shape (R, B), lanes that begin where one ends."""

    left: Tensor
    """Shape (R,), lane to the left in the same direction."""

    right: Tensor
    """Shape (R,), lane to the right in the same direction."""

    opposite: Tensor
    """Shape (R,), lane of the other direction."""

    stop: Tensor
    """Shape (R, 2), junction (counted over all maps) and light group at the lane's end; -1 where there is none."""

    first_junction: Tensor
    """Shape (M + 1,), the junctions of map m are first_junction[m] to first_junction[m + 1] - 1."""

    conflicts: Tensor
    """Shape (Q, 2), pairs of lanes inside junctions that cross or merge."""

    group_conflicts: Tensor
    """Shape (J, G, G), bool, whether two light groups of a junction must not be green together."""


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


def map_bank(maps: Sequence[LaneMap], device: str | torch.device = "cpu", spacing_m: float = 1.0) -> MapBank:
    """Pack all lanes of maps, with indices counted over all of them."""
    sizes = [len(lane_map.lanes) for lane_map in maps]
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    junction = np.concatenate([[0], np.cumsum([len(m.junctions) for m in maps])]).astype(np.int64)
    total = int(first[-1])
    width = max(1, *(len(lane.successors) for m in maps for lane in m.lanes))
    groups = max([1, *(len(j.approaches) for m in maps for j in m.junctions)])
    successors = np.full((total, width), -1, dtype=np.int64)
    beside = np.full((3, total), -1, dtype=np.int64)
    stop = np.full((total, 2), -1, dtype=np.int64)
    conflicts: list[tuple[int, int]] = []
    together = np.zeros((int(junction[-1]), groups, groups), dtype=bool)
    for number, lane_map in enumerate(maps):
        base, j0 = int(first[number]), int(junction[number])
        for index, lane in enumerate(lane_map.lanes):
            successors[base + index, : len(lane.successors)] = [base + lane for lane in lane.successors]
            neighbours = (lane.left, lane.right, lane.opposite)
            beside[:, base + index] = [base + lane if lane >= 0 else -1 for lane in neighbours]
        for line in lane_map.stop_lines:
            stop[base + line.lane] = j0 + line.junction, line.group
        for index, entry in enumerate(lane_map.junctions):
            conflicts += [(base + a, base + b) for a, b in entry.conflicts]
            for a, b in entry.group_conflicts:
                together[j0 + index, a, b] = together[j0 + index, b, a] = True
    lines = [lane_line(lane, index) for m in maps for index, lane in enumerate(m.lanes)]

    def tensor(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=device)

    return MapBank(
        lines=line_bank(lines, device, spacing_m),
        first=tensor(first),
        successors=tensor(successors),
        left=tensor(beside[0]),
        right=tensor(beside[1]),
        opposite=tensor(beside[2]),
        stop=tensor(stop),
        first_junction=tensor(junction),
        conflicts=tensor(np.array(conflicts, dtype=np.int64).reshape(-1, 2)),
        group_conflicts=tensor(together),
    )


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
