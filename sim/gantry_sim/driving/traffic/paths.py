"""Paths of other vehicles: a pool of lines per map, the places where they come near each other, and right of way.

All that depends on pairs of paths is looked up in tables built once, so that a step needs no search: which point of one
path is nearest to a point of another, and the stretch of one path on which a car is in the way of a user that waits on
the other at a stop line.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.bank import LineBank, line_bank
from gantry_sim.driving.maps.graph import CURVATURE, IN_JUNCTION, LEFT, LIMIT, RIGHT, YAW, LaneMap, X, Y
from gantry_sim.driving.maps.junctions import THROUGH_RAD
from gantry_sim.driving.maps.lines import Line, route_along
from gantry_sim.driving.traffic.lights import LightPlan, light_plan

STRIDE = 2
"""Every second point of a path has an entry in ``TrafficMaps.near``."""
NEAR_M = 8.0
"""Farther from each other, points of two paths have nothing to do with each other."""
PATH_COLUMNS = ("x", "y", "yaw", "curvature", "speed_m_s", "width_m", "side", "in_junction")
"""Columns of ``TrafficMaps.points``: ``speed_m_s`` is what limit and bends ahead allow; ``side`` is 1 where there is a
lane of the same direction to the left, else -1 where there is one to the right, else 0."""


@dataclass(frozen=True)
class TrafficMaps:
    """M maps with P lines each: the routes of cars first, then the same routes from one end of the map to the other,
    then more paths. Line ``p`` of map ``m`` is row ``m * P + p``."""

    lines: LineBank
    """All of them, R = M * P rows of up to L points."""
    routes: int
    """Routes of cars per map."""
    per_map: int
    """P."""
    points: Tensor
    """``(R * L, 8)``, see ``PATH_COLUMNS``."""
    frames: Tensor
    """``(R * L, 4)``: x, y, cosine and sine of the heading."""
    near: Tensor
    """``(R, P, C)`` int16: nearest point of line ``p`` of the same map to each second point; -1 beyond ``NEAR_M``."""
    yields: Tensor
    """``(R, S, P, 3)``: for a stop line of a path, from where to where (arc length of line ``p``) a user is in the
    way, inf and -inf if never, and 1 if users that come have priority."""
    longer: Tensor
    """``(R,)`` for a route the row of its longer version, else the row itself."""
    shift_m: Tensor
    """``(R,)`` arc length on ``longer`` at which the row begins."""
    plan: LightPlan
    """Traffic lights of the maps."""

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.points.device


def traffic_maps(
    maps: Sequence[LaneMap],
    routes: Sequence[Sequence[Line]],
    paths_per_map: int = 12,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    lateral_accel_m_s2: float = 2.5,
) -> TrafficMaps:
    """Build the pool of paths of maps.

    Args:
        maps: M maps.
        routes: For each the routes that cars will drive, equally many, in the order in which they shall be rows.
        paths_per_map: Further paths, each from one end of the map to another.
        seed: Of turns.
        device: Of all tensors.
        lateral_accel_m_s2: Sideways acceleration for which bends lower the speed.

    Raises:
        GantryError: Not equally many routes per map, or none.
    """
    counts = {len(own) for own in routes}
    if len(routes) != len(maps) or len(counts) != 1 or 0 in counts:
        raise GantryError(
            f"Traffic needs equally many routes for each of {len(maps)} maps, at least 1; given: "
            f"{sorted(counts)} for {len(routes)} maps."
        )
    kept = counts.pop()
    lines: list[Line] = []
    longer: list[int] = []
    shift: list[float] = []
    for lane_map, own in zip(maps, routes, strict=True):
        rng, first = np.random.default_rng([seed, lane_map.seed]), len(lines)
        whole = [_through(lane_map, rng, _lanes_of(line)) for line in own]
        lines += [*own, *whole, *_pool(lane_map, rng, paths_per_map, whole)]
        longer += [first + kept + place for place in range(kept)]
        shift += [_start_on(line, one) for line, one in zip(own, whole, strict=True)]
        longer += list(range(first + kept, len(lines)))
        shift += [0.0] * (len(lines) - first - kept)
    bank = line_bank(lines)
    per_map = 2 * kept + paths_per_map
    tables = [_pairs(lane_map, bank, slice(n * per_map, (n + 1) * per_map)) for n, lane_map in enumerate(maps)]
    points = _points(bank, maps, per_map, lateral_accel_m_s2)
    yaw = points[..., 2:3]
    frames = np.concatenate([points[..., :2], np.cos(yaw), np.sin(yaw)], axis=-1)
    return TrafficMaps(
        lines=line_bank(lines, device),
        routes=kept,
        per_map=per_map,
        points=torch.as_tensor(points.reshape(-1, 8).astype(np.float32), device=device),
        frames=torch.as_tensor(frames.reshape(-1, 4).astype(np.float32), device=device),
        near=torch.as_tensor(np.concatenate([near for near, _ in tables]), device=device),
        yields=torch.as_tensor(np.concatenate([found for _, found in tables]).astype(np.float32), device=device),
        longer=torch.tensor(longer, device=device),
        shift_m=torch.tensor(shift, dtype=torch.float32, device=device),
        plan=light_plan(maps, device),
    )


def _lanes_of(line: Line) -> tuple[int, ...]:
    if line.lanes is None:
        raise GantryError("Traffic needs routes through a lane map; a line without lanes was given.")
    change = np.flatnonzero(np.diff(line.lanes)) + 1
    return tuple(int(lane) for lane in line.lanes[np.concatenate([[0], change])])


def _before(lane_map: LaneMap) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in lane_map.lanes]
    for index, lane in enumerate(lane_map.lanes):
        for successor in lane.successors:
            found[successor].append(index)
    return found


def _through(lane_map: LaneMap, rng: Generator, lanes: tuple[int, ...]) -> Line:
    """The line along lanes and, with random turns, from and to where the map ends; no lane twice."""
    path, before = list(lanes), _before(lane_map)
    while choices := [lane for lane in before[path[0]] if lane not in path]:
        path.insert(0, int(rng.choice(choices)))
    while choices := [lane for lane in lane_map.lanes[path[-1]].successors if lane not in path]:
        path.append(int(rng.choice(choices)))
    return route_along(lane_map, tuple(path))


def _pool(lane_map: LaneMap, rng: Generator, count: int, known: Sequence[Line]) -> list[Line]:
    """Paths through the lanes that the fewest paths use so far."""
    used = np.zeros(len(lane_map.lanes))
    for line in known:
        used[list(_lanes_of(line))] += 1.0
    found: list[Line] = []
    for _ in range(count):
        lane = int(np.argmin(used + rng.uniform(0.0, 0.9, len(used))))
        found.append(_through(lane_map, rng, (lane,)))
        used[list(_lanes_of(found[-1]))] += 1.0
    return found


def _start_on(route: Line, whole: Line) -> float:
    """Arc length of ``whole`` at which ``route`` begins; its first point is a point of both."""
    gap = whole.points[:, :2] - route.points[0, :2]
    return float(whole.s_m[int(np.argmin((gap**2).sum(1)))])


def _points(bank: LineBank, maps: Sequence[LaneMap], per_map: int, lateral_m_s2: float) -> NDArray[np.float64]:
    """``(R, L, 8)``. Speeds fall towards bends and lower limits with 1.5 m/s^2."""
    table, step = bank.table.numpy().astype(np.float64), bank.step_m.numpy().astype(np.float64)
    speed = np.minimum(table[..., LIMIT], np.sqrt(lateral_m_s2 / np.maximum(np.abs(table[..., CURVATURE]), 1e-4)))
    for place in range(table.shape[1] - 2, -1, -1):
        speed[:, place] = np.minimum(speed[:, place], np.sqrt(speed[:, place + 1] ** 2 + 3.0 * step))
    side = np.zeros(speed.shape)
    lanes = bank.lanes.numpy()
    for number, lane_map in enumerate(maps):
        rows = slice(number * per_map, (number + 1) * per_map)
        each = np.array([1.0 if lane.left >= 0 else -1.0 if lane.right >= 0 else 0.0 for lane in lane_map.lanes])
        side[rows] = each[lanes[rows]]
    width = table[..., LEFT] + table[..., RIGHT]
    ground = (table[..., X], table[..., Y], table[..., YAW], table[..., CURVATURE])
    return np.stack([*ground, speed, width, side, table[..., IN_JUNCTION]], axis=-1)


def _pairs(lane_map: LaneMap, bank: LineBank, rows: slice) -> tuple[NDArray[np.int16], NDArray[np.float64]]:
    """Tables ``near`` and ``yields`` of one map."""
    return _near(lane_map, bank, rows), _yields(lane_map, bank, rows)


def _near(lane_map: LaneMap, bank: LineBank, rows: slice) -> NDArray[np.int16]:
    """``(P, P, C)``: lanes are measured against lines once, and points of lines looked up by the lane they are on."""
    first = np.concatenate([[0], np.cumsum([len(lane.points[::STRIDE]) for lane in lane_map.lanes])])
    spots = np.concatenate([lane.points[::STRIDE, :2] for lane in lane_map.lanes])
    xy, count, lanes = bank.table[rows, :, :2], bank.count[rows].tolist(), bank.lanes[rows].numpy()
    number, columns = len(count), -(-bank.table.shape[1] // STRIDE)
    ground = torch.as_tensor(spots, dtype=torch.float32)
    nearest = np.empty((number, len(spots)), dtype=np.int16)
    for row in range(number):
        distance, which = torch.cdist(ground, xy[row, : count[row]], compute_mode="donot_use_mm_for_euclid_dist").min(1)
        nearest[row] = torch.where(distance < NEAR_M, which, -1).numpy()
    found = np.full((number, number, columns), -1, dtype=np.int16)
    for row in range(number):
        at = np.arange(0, count[row], STRIDE)
        owner = lanes[row, at]
        spot = np.empty(len(at), dtype=np.int64)
        for lane in np.unique(owner):
            own = owner == lane
            gap = xy[row, at[own]].numpy()[:, None] - spots[None, first[lane] : first[lane + 1]]
            spot[own] = first[lane] + np.argmin((gap**2).sum(-1), axis=1)
        found[row, :, : len(at)] = nearest[:, spot]
        found[row, :, len(at) :] = found[row, :, len(at) - 1 : len(at)]
    return found


def _ways(lane_map: LaneMap) -> dict[int, dict[int, int]]:
    """For each lane inside a junction those that cross or merge with it, and 1 if a user there goes first, -1 if
    a user there waits, 0 if neither."""
    found: dict[int, dict[int, int]] = {}
    for junction in lane_map.junctions:
        group = dict(zip(junction.connectors, junction.connector_groups, strict=True))
        apart = {frozenset(pair) for pair in junction.group_conflicts}
        turn = {c: lane_map.lanes[c].points[-1, YAW] - lane_map.lanes[c].points[0, YAW] for c in group}
        for pair in junction.conflicts:
            for one, other in (pair, pair[::-1]):
                if junction.lights:
                    together = frozenset((group[one], group[other])) not in apart
                    first = together * (int(turn[one] > THROUGH_RAD) - int(turn[other] > THROUGH_RAD))
                else:
                    first = int(group[one] >= 0) - int(group[other] >= 0)
                found.setdefault(one, {})[other] = first
    return found


def _yields(lane_map: LaneMap, bank: LineBank, rows: slice) -> NDArray[np.float64]:
    """``(P, S, P, 3)``."""
    ways, stops, lanes = _ways(lane_map), bank.stops[rows].numpy(), bank.lanes[rows].numpy()
    count, step = bank.count[rows].tolist(), bank.step_m[rows].tolist()
    number = len(count)
    found = np.zeros((number, stops.shape[1], number, 3))
    found[..., 0], found[..., 1] = np.inf, -np.inf
    spans: list[dict[int, tuple[float, float]]] = []
    for row in range(number):
        own = lanes[row, : count[row]]
        edges = np.concatenate([[0], np.flatnonzero(np.diff(own)) + 1, [len(own)]])
        spans.append({int(own[a]): (a * step[row], b * step[row]) for a, b in itertools.pairwise(edges)})
    for row in range(number):
        for place, stop in enumerate(stops[row]):
            if not np.isfinite(stop[0]):
                continue
            others = ways.get(int(stop[3]), {})
            for other in range(number):
                met = [lane for lane in spans[other] if lane in others]
                if met:
                    # The first way through the junction counts; its lanes follow each other.
                    begin = min(spans[other][lane][0] for lane in met)
                    near = [lane for lane in met if spans[other][lane][0] < begin + 60.0]
                    end = max(spans[other][lane][1] for lane in near)
                    found[row, place, other] = begin, end, float(max(others[lane] for lane in near))
    return found
