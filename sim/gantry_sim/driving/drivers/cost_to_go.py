"""Cost to go of parking: length of the shortest way into the slot for a car that turns no tighter than it can.

Reeds and Shepp (1990) tell the shortest ways of such a car where nothing is in its way. Among parked cars they are
found on a grid of places and headings by value iteration between grid points (semi-Lagrangian, as in Takei and Tsai
2013): from every point a car may drive a short arc, forwards or backwards, and what is left from there is interpolated.

A lot has a frame of its own: its origin is where ``base_link`` shall end, x runs along the aisle, y from the slot
towards the aisle. Headings are counted from x.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.maps.bank import LotBank
from gantry_sim.driving.maps.projection import wrapped
from gantry_sim.driving.park_cfg import WayCfg
from gantry_sim.driving.scenes.lot_starts import free, goal_pose

AT_ONCE = 8
"""Lots that are worked out together."""
TURN_BINS = 2
"""The tightest arc turns by so many headings."""
STEERINGS = 9
"""Arcs to each side of the car that :meth:`CostToGo.toward` tries, straight ahead among them."""
FAR_M = 60.0
"""No way is longer; what cannot be reached is so far away while a table is worked out."""
SETTLED_M, SETTLED_SHARE = 0.02, 1e-3
"""A table is done when few rounds change it by more in no more than this share of its places; what is left are corners
that nothing leads out of but dozens of turns."""
LOOKS = 4
"""Those few rounds,"""
MOST_ROUNDS = 100
"""and most rounds in all."""
BEHIND_M = 1.5
"""Reach of the tables beyond the goal, away from the aisle."""
RINGS = 4
"""Closed grid points so deep have a value from the nearest open ones,"""
RING_SLOPE = 2.0
"""so many metres more for each metre deeper;"""
ASTRAY_M = 10.0
"""all others the straight distance, and so much more."""
RADIAN_M = 2.0
"""A radian off in metres, there."""
ACROSS = 2.0
"""Beyond a table a metre counts so many more for a car that stands across the aisle."""
ASIDE, TURNED = 16.0, 24.0
"""Weights where a car has almost arrived: a metre to the side counts so many metres, and a radian so many."""


class _Grid(NamedTuple):
    """Places and headings."""

    cell_m: float
    headings: int
    first: tuple[int, int]
    """Points before the goal's, along x and y."""
    shape: tuple[int, int]
    """Points along x and y."""
    pad: int
    """Points around, which are never driven on."""
    arc_m: float
    """Length of all arcs."""

    @property
    def bin_rad(self) -> float:
        """Between two headings."""
        return 2.0 * math.pi / self.headings

    def axis_m(self, which: int, device: torch.device) -> Tensor:
        """Places along x (0) or y (1), those around included."""
        count = self.shape[which] + 2 * self.pad
        return (torch.arange(count, device=device) - (self.first[which] + self.pad)) * self.cell_m


class CostToGo:
    """Ways to the goals of parking lots, worked out lot by lot when they are first asked for.

    Slots must lie along their aisle or across it, as those of :func:`~gantry_sim.driving.maps.lots.parking_lot` do.

    Args:
        bank: The lots.
        spec: The car, as far as it may be used.
        cfg: How ways are found.
    """

    def __init__(self, bank: LotBank, spec: CarSpec, cfg: WayCfg) -> None:
        self.cfg, self.spec, self.bank = cfg, spec, bank
        every = torch.arange(len(bank.goal), device=bank.goal.device)
        self.goal = goal_pose(bank, every, spec)
        """(M, 3) where ``base_link`` shall end, in the world."""
        aisle = bank.start
        to_aisle = aisle[:, :2] - self.goal[:, :2]
        left = torch.cos(aisle[:, 2]) * to_aisle[:, 1] - torch.sin(aisle[:, 2]) * to_aisle[:, 0]
        self.yaw = aisle[:, 2] + torch.pi * (left < 0.0)
        """(M,) of the lots' own frames in the world."""
        self.radius_m = spec.wheelbase_m / math.tan(cfg.steering_share * spec.steering_limit_rad)
        """No arc is tighter."""
        turn = 2.0 * math.pi / cfg.headings
        beyond = float((left.abs() + 0.5 * aisle[:, 4]).amax()) + 1.0
        ahead, behind, aside = (math.ceil(m / cfg.cell_m) for m in (beyond, BEHIND_M, cfg.reach_m))
        arc_m = self.radius_m * TURN_BINS * turn
        self.grid = _Grid(
            cell_m=cfg.cell_m,
            headings=cfg.headings,
            first=(aside, behind),
            shape=(2 * aside + 1, behind + ahead + 1),
            pad=math.ceil(arc_m / cfg.cell_m) + 1,
            arc_m=arc_m,
        )
        self.goal_rad = wrapped(self.goal[:, 2] - self.yaw)
        """(M,) heading of the goal in those frames."""
        self._table = torch.zeros(
            len(every), 2, cfg.headings, *self.grid.shape, dtype=torch.float16, device=aisle.device
        )
        self._known = torch.zeros(len(every), dtype=torch.bool, device=aisle.device)
        self._missing = len(every)

    def distance_to_go_m(self, pose: Tensor, lot: Tensor) -> Tensor:
        """Length of the way to go ``(N,)``, always finite; what a change of direction costs counts.

        Where a car cannot stand it is a little longer than nearby; beyond the table its distance is added. Ways with
        bends are up to some two metres too long, which interpolation adds beside the goal.

        Args:
            pose: ``(N, 3)`` of ``base_link`` in the world.
            lot: ``(N,)`` which lot.
        """
        return self.both_ways(pose, lot).amin(dim=1)

    def both_ways(self, pose: Tensor, lot: Tensor) -> Tensor:
        """The same ``(N, 2)`` for cars that drive forwards and backwards at present: turning round costs."""
        ahead = torch.zeros_like(lot)
        return torch.stack([self._left(pose, lot, ahead + way) for way in (0, 1)], dim=1)

    def _left(self, pose: Tensor, lot: Tensor, way: Tensor) -> Tensor:
        """The same ``(N,)`` for cars that drive forwards (way 0) or backwards (1): interpolated from eight points."""
        self._prepare(lot)
        grid, (rows, columns) = self.grid, self.grid.shape
        x, y, heading = self._own(pose, lot)
        places = x / grid.cell_m + grid.first[0], y / grid.cell_m + grid.first[1]
        inside = [place.clamp(0.0, count - 1.001) for place, count in zip(places, grid.shape, strict=True)]
        beyond = grid.cell_m * torch.hypot(places[0] - inside[0], places[1] - inside[1])
        turn = torch.remainder(heading / grid.bin_rad, grid.headings)
        cells = turn.long(), inside[0].long(), inside[1].long()
        shares = [turn - cells[0], inside[0] - cells[1], inside[1] - cells[2]]
        table = self._table.view(-1)
        found = []
        for step in (0, 1):
            bin_ = (cells[0] + step) % grid.headings
            index = (((2 * lot + way) * grid.headings + bin_) * rows + cells[1]) * columns + cells[2]
            near, far = (
                torch.lerp(table[i].float(), table[i + 1].float(), shares[2]) for i in (index, index + columns)
            )
            found.append(torch.lerp(near, far, shares[1]))
        # A car that has far to go along the aisle does well to look along it.
        return torch.lerp(found[0], found[1], shares[0]) + beyond * (1.0 + ACROSS * torch.sin(heading).abs())

    def toward(
        self, pose: Tensor, lot: Tensor, driving: Tensor | None = None, length_m: Tensor | float | None = None
    ) -> tuple[Tensor, Tensor]:
        """The best arc to drive next, by what is left from its end.

        Args:
            pose: ``(N, 3)`` of ``base_link`` in the world.
            lot: ``(N,)`` which lot.
            driving: ``(N,)`` 1 for cars that drive forwards now, -1 backwards, 0 for those that stand; None for all.
            length_m: Of the arcs, ``(N,)`` or one for all; the tables' own if left out.

        Returns:
            Steering angle in rad and direction, 1 or -1, each ``(N,)``.
        """
        device, count = pose.device, len(pose)
        length = torch.as_tensor(self.grid.arc_m if length_m is None else length_m, device=device).expand(count)
        bends = torch.linspace(-1.0, 1.0, STEERINGS, device=device) / self.radius_m
        curvature, way = bends.repeat(2), torch.tensor([1.0, -1.0], device=device).repeat_interleave(STEERINGS)
        reached = driven(pose[:, None], curvature, way * length[:, None])
        tried = len(curvature)
        backwards = (way < 0.0).long().repeat(count)
        reached, lots = reached.flatten(0, 1), lot.repeat_interleave(tried)
        cost = self._left(reached, lots, backwards) + FAR_M * ~free(self.bank, lots, reached, self.spec)
        cost = cost.view(count, 2, STEERINGS)
        if driving is not None:
            turns = torch.stack((driving < 0.0, driving > 0.0), dim=1)
            cost = cost + self.cfg.change_m * turns[:, :, None]
        best = cost.flatten(1).argmin(1)
        return torch.atan(self.spec.wheelbase_m * curvature[best]), way[best]

    def _own(self, pose: Tensor, lot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, y and heading in the lots' own frames."""
        delta, yaw = pose[:, :2] - self.goal[lot, :2], self.yaw[lot]
        cos, sin = torch.cos(yaw), torch.sin(yaw)
        return cos * delta[:, 0] + sin * delta[:, 1], cos * delta[:, 1] - sin * delta[:, 0], pose[:, 2] - yaw

    def _prepare(self, lot: Tensor) -> None:
        """Work out what is missing, always the same lots together: how long it goes on depends on all of them."""
        while self._missing and not bool(self._known[lot].all()):
            block = int(lot[~self._known[lot]][0]) // AT_ONCE
            chosen = torch.arange(len(self._known), device=lot.device)[block * AT_ONCE : (block + 1) * AT_ONCE]
            with torch.no_grad():
                self._table[chosen] = _solved(self, chosen).half()
            self._known[chosen] = True
            self._missing -= len(chosen)


def driven(pose: Tensor, curvature: Tensor, length_m: Tensor) -> Tensor:
    """Poses ``(..., 3)`` at the ends of arcs, in the frame of the poses at their beginnings.

    Args:
        pose: ``(..., 3)`` of ``base_link``.
        curvature: 1/m, to the left positive, where the car drives forwards.
        length_m: Driven, backwards negative.
    """
    turn = curvature * length_m
    chord = length_m * torch.sinc(turn / (2.0 * torch.pi))
    middle = pose[..., 2] + 0.5 * turn
    x, y = pose[..., 0] + chord * torch.cos(middle), pose[..., 1] + chord * torch.sin(middle)
    return torch.stack((x, y, pose[..., 2] + turn), dim=-1)


def _solved(ways: CostToGo, lot: Tensor) -> Tensor:
    """Tables ``(m, 2, H, X, Y)`` of some lots. While they are worked out lots are last, so that slices are long."""
    grid, pad, (nx, ny) = ways.grid, ways.grid.pad, ways.grid.shape
    closed = _closed(ways, lot)
    wall = torch.where(closed, FAR_M, 0.0)
    table = torch.full((2, *closed.shape), FAR_M, device=closed.device)
    _set_goals(ways, lot, table)
    within = slice(pad, pad + nx), slice(pad, pad + ny)
    sweeps = _Sweeps(grid, ways.cfg.change_m, closed, wall)
    before = table.clone()
    for number in range(MOST_ROUNDS):
        sweeps.round(table, backwards=number % 2 == 1, fill=number % 3 == 0)
        if number % LOOKS == LOOKS - 1:
            if float((before - table > SETTLED_M).float().mean()) < SETTLED_SHARE:
                break
            before.copy_(table)
    table, closed = table[:, :, within[0], within[1]], closed[:, within[0], within[1]]
    return _finished(ways, lot, table.clone(), closed).permute(4, 0, 1, 2, 3)


def _set_goals(ways: CostToGo, lot: Tensor, table: Tensor) -> None:
    """Zero at the goal, and little where a car has almost arrived, which the grid is too coarse for."""
    grid = ways.grid
    nearby = int(0.5 * grid.arc_m / grid.cell_m) + 1
    steps = torch.arange(-nearby, nearby + 1, device=lot.device)
    i, j = (part.flatten() for part in torch.meshgrid(steps, steps, indexing="ij"))
    for column, goal_rad in enumerate(ways.goal_rad[lot].tolist()):
        middle = round(goal_rad / grid.bin_rad)
        cos, sin = math.cos(goal_rad), math.sin(goal_rad)
        along, aside = cos * i + sin * j, cos * j - sin * i
        along, aside = grid.cell_m * along.abs(), grid.cell_m * aside.abs()
        chosen = (along <= grid.arc_m) & (aside <= 0.25 + 1e-6)
        for off in (-1, 0, 1):
            value = along + ASIDE * aside + TURNED * abs((middle + off) * grid.bin_rad - goal_rad)
            place = grid.first[0] + grid.pad + i[chosen], grid.first[1] + grid.pad + j[chosen]
            table[:, (middle + off) % grid.headings, place[0], place[1], column] = value[chosen]


def _closed(ways: CostToGo, lot: Tensor) -> Tensor:
    """``(H, X, Y, m)`` where the car, with its margin, touches a box or a wall, or leaves the table.

    Boxes are disjoint exactly if they are along one of their four axes (separating axis theorem); along an axis a place
    of the grid is a sum of its two coordinates. Walls are boxes without width.
    """
    grid, spec, bank = ways.grid, ways.spec, ways.bank
    walls = bank.walls[lot]
    way = walls[..., 2:] - walls[..., :2]
    length = torch.linalg.vector_norm(way, dim=-1)
    middle = 0.5 * (walls[..., 2:] + walls[..., :2])
    as_boxes = torch.cat(
        (middle, torch.atan2(way[..., 1], way[..., 0])[..., None], length[..., None], 0.0 * length[..., None]), dim=-1
    )
    boxes = torch.cat((bank.boxes[lot], as_boxes), dim=1)
    exists = torch.cat((bank.taken[lot], torch.ones_like(length, dtype=torch.bool)), dim=1)
    count = boxes.shape[1]
    x, y, yaw = ways._own(boxes[..., :3].flatten(0, 1), lot.repeat_interleave(count))
    x = torch.where(exists.flatten(), x, 1e4).view(-1, count)
    y, yaw, half = y.view(-1, count), yaw.view(-1, count), 0.5 * boxes[..., 3:]
    axes = [grid.axis_m(which, lot.device) for which in (0, 1)]
    closed = torch.zeros(grid.headings, len(axes[0]), len(axes[1]), len(lot), dtype=torch.bool, device=lot.device)
    inner = slice(grid.pad, -grid.pad)
    own = 0.5 * spec.length_m + ways.cfg.margin_m, 0.5 * spec.width_m + ways.cfg.margin_m
    for bin_ in range(grid.headings):
        heading = bin_ * grid.bin_rad
        cos, sin = math.cos(heading), math.sin(heading)
        to_x, to_y = axes[0] + spec.center_x_in_base_m * cos, axes[1] + spec.center_x_in_base_m * sin
        for k in range(count):
            if not bool(exists[:, k].any()):
                continue
            theirs = half[:, k, 0], half[:, k, 1]
            turn = yaw[:, k] - heading
            c, s = torch.cos(turn).abs(), torch.sin(turn).abs()
            dx, dy = (x[:, k] - to_x[:, None])[:, None], (y[:, k] - to_y[:, None])[None]
            hit = (cos * dx + sin * dy).abs_() <= own[0] + theirs[0] * c + theirs[1] * s
            hit &= (cos * dy - sin * dx).abs_() <= own[1] + theirs[0] * s + theirs[1] * c
            c1, s1 = torch.cos(yaw[:, k]), torch.sin(yaw[:, k])
            hit &= (c1 * dx + s1 * dy).abs_() <= theirs[0] + own[0] * c + own[1] * s
            hit &= (c1 * dy - s1 * dx).abs_() <= theirs[1] + own[0] * s + own[1] * c
            closed[bin_] |= hit
    free = torch.zeros_like(closed)
    free[:, inner, inner] = True
    return closed | ~free


class _Sweeps:
    """Rounds of value iteration, in place, heading by heading (Gauss and Seidel), with the buffers that they need."""

    def __init__(self, grid: _Grid, change_m: float, closed: Tensor, wall: Tensor) -> None:
        self._grid, self._change_m, self._closed, self._wall = grid, change_m, closed, wall
        nx, ny, count = *grid.shape, closed.shape[-1]
        *self._best, self._tried = (torch.empty(nx, ny, count, device=wall.device) for _ in range(3))
        self._across = torch.empty(nx, closed.shape[2], count, device=wall.device)

    def round(self, table: Tensor, *, backwards: bool, fill: bool) -> None:
        """One round over all headings of ``table`` ``(2, H, X, Y, m)``; what is closed takes the least around, if asked
        to, so that arcs which end beside it are interpolated."""
        grid, pad, (nx, ny) = self._grid, self._grid.pad, self._grid.shape
        headings = range(grid.headings)
        for heading in reversed(headings) if backwards else headings:
            closed = self._closed[heading, pad : pad + nx, pad : pad + ny]
            best = [self._arcs(table, heading, way).add_(grid.arc_m) for way in (0, 1)]
            both = [torch.minimum(best[way], best[1 - way] + self._change_m) for way in (0, 1)]
            for way, reached in enumerate(both):
                place = table[way, heading, pad : pad + nx, pad : pad + ny]
                torch.minimum(reached, place, out=reached)
                around = _least_around(reached.masked_fill(closed, FAR_M)) if fill else place
                torch.where(closed, around, reached, out=place)

    def _arcs(self, table: Tensor, heading: int, way: int) -> Tensor:
        """The least that is left after an arc, ``(X, Y, m)``; forwards for way 0."""
        grid, pad, (nx, ny) = self._grid, self._grid.pad, self._grid.shape
        sign = 1.0 if way == 0 else -1.0
        best, tried, across = self._best[way], self._tried, self._across
        best.fill_(FAR_M)
        for turn in range(-TURN_BINS, TURN_BINS + 1):
            half = 0.5 * turn * grid.bin_rad
            chord = sign * grid.arc_m * (math.sin(half) / half if turn else 1.0)
            middle = heading * grid.bin_rad + half
            shift = chord * math.cos(middle) / grid.cell_m, chord * math.sin(middle) / grid.cell_m
            (i, j), near = (math.floor(s) for s in shift), [round(s) for s in shift]
            after = (heading + turn) % grid.headings
            there = table[way, after]
            torch.lerp(there[pad + i : pad + i + nx], there[pad + i + 1 : pad + i + 1 + nx], shift[0] - i, out=across)
            torch.lerp(
                across[:, pad + j : pad + j + ny], across[:, pad + j + 1 : pad + j + 1 + ny], shift[1] - j, out=tried
            )
            wall = self._wall[after, pad + near[0] : pad + near[0] + nx, pad + near[1] : pad + near[1] + ny]
            torch.minimum(best, tried.add_(wall), out=best)
        return best


def _least_around(values: Tensor) -> Tensor:
    """The least of each place of ``(X, Y, m)`` and the eight around it."""
    rows = values.clone()
    torch.minimum(rows[1:], values[:-1], out=rows[1:])
    torch.minimum(rows[:-1], values[1:], out=rows[:-1])
    least = rows.clone()
    torch.minimum(least[:, 1:], rows[:, :-1], out=least[:, 1:])
    torch.minimum(least[:, :-1], rows[:, 1:], out=least[:, :-1])
    return least


def _finished(ways: CostToGo, lot: Tensor, table: Tensor, closed: Tensor) -> Tensor:
    """``(2, H, X, Y, m)`` with a value everywhere."""
    grid = ways.grid
    table.masked_fill_(closed, FAR_M)
    for _ in range(RINGS):
        for values in table.flatten(0, 1):
            around = _least_around(values) + RING_SLOPE * grid.cell_m
            values.copy_(torch.where(values < FAR_M - 1.0, values, around.clamp(max=FAR_M)))
    axes = [grid.axis_m(which, lot.device)[grid.pad : -grid.pad] for which in (0, 1)]
    apart = torch.hypot(axes[0][:, None], axes[1][None])[..., None]
    bins = torch.arange(grid.headings, device=lot.device) * grid.bin_rad
    off = wrapped(bins[:, None] - ways.goal_rad[lot]).abs()[:, None, None]
    return torch.where(table < FAR_M - 1.0, table, apart + RADIAN_M * off + ASTRAY_M)
