"""Placement of other road users: drawn by behaviour, and refused where they would come too near another one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor

from gantry_sim.driving.traffic.encounters import Users, beside_m, relations
from gantry_sim.driving.traffic.paths import STRIDE, TrafficMaps
from gantry_sim.driving.traffic.slots import (
    ACCEL,
    AIM,
    BEGIN,
    BEHAVIOUR,
    BLIND,
    BRAKE,
    FACTOR,
    FIELDS,
    GAP,
    HEADING,
    HEADWAY,
    LATERAL,
    LENGTH,
    PHANTOM,
    ROW,
    SPEED,
    TAKEN,
    TIMER,
    TRIGGER,
    WALK,
    WIDTH,
    S,
    path_points,
    placed,
    users_of,
)
from gantry_sim.driving.traffic.traffic_cfg import (
    BEHAVIOURS,
    BROKEN,
    CROSSING,
    CUT_IN,
    FOLLOW,
    LEAD,
    OBSTACLE,
    ONCOMING,
    STOPPED,
    WALKER,
    TrafficCfg,
)

_Parts = TypeVar("_Parts", "Around", Users)

CANDIDATES = 4
"""Places that are tried for each slot."""
RETRY_S = 4.0
"""After this time on average a slot that found no place is drawn again."""
_KERB_M = 1.2


@dataclass(frozen=True)
class Around:
    """The car that traffic is placed around; all tensors ``(m,)``."""

    row: Tensor
    """Its path, int64."""
    s_m: Tensor
    """Of its middle."""
    speed_m_s: Tensor
    """Its speed."""
    x: Tensor
    """Its middle in the world."""
    y: Tensor
    """Likewise."""


def draw_behaviour(cfg: TrafficCfg, uniform: Tensor) -> Tensor:
    """Behaviours ``(m,)`` from numbers in [0, 1); ``len(BEHAVIOURS)`` means empty."""
    names = (*BEHAVIOURS, "empty")
    weights = torch.tensor([getattr(cfg.shares, name) for name in names], device=uniform.device)
    edges = (weights / weights.sum()).cumsum(0)
    return torch.bucketize(uniform, edges, right=True).clamp(max=len(BEHAVIOURS))


def draw_drivers(cfg: TrafficCfg, state: Tensor, generator: torch.Generator) -> None:
    """Write size and driver of new slots ``(F, m)``."""
    count, device = state.shape[1], state.device
    u = torch.rand(12, count, generator=generator, device=device)

    def between(number: int, limits: tuple[float, float]) -> Tensor:
        return limits[0] + (limits[1] - limits[0]) * u[number]

    style = u[0]
    bold, shy = style < cfg.aggressive, style > 1.0 - cfg.timid

    def styled(middle: Tensor, brisk: float, calm: float) -> Tensor:
        return middle * torch.where(bold, brisk, torch.where(shy, calm, 1.0))

    state[FACTOR] = styled(between(1, cfg.speed_factor), 1.15, 0.85)
    state[HEADWAY] = styled(between(2, cfg.headway_s), 0.5, 1.5)
    state[ACCEL] = styled(between(3, cfg.accel_m_s2), 1.3, 0.8)
    state[BRAKE] = between(4, cfg.comfort_brake_m_s2)
    state[GAP] = styled(between(5, cfg.gap_accept_s), 0.5, 1.5)
    state[BLIND] = (u[6] < cfg.blind).to(state.dtype)
    state[PHANTOM] = (u[7] < cfg.phantom).to(state.dtype)
    state[LENGTH], state[WIDTH] = 3.8 + 1.4 * u[8], 1.65 + 0.3 * u[9]
    thing, walker = state[BEHAVIOUR] == OBSTACLE, state[BEHAVIOUR] == WALKER
    state[LENGTH] = torch.where(thing, 0.4 + 0.8 * u[8], torch.where(walker, 0.5, state[LENGTH]))
    state[WIDTH] = torch.where(thing, 0.3 + 0.3 * u[9], torch.where(walker, 0.5, state[WIDTH]))
    trigger = between(10, cfg.cut_in_gap_m)
    state[TRIGGER] = torch.where(walker, between(10, cfg.walk_when_s), trigger)
    state[TIMER] = torch.where(state[BEHAVIOUR] == STOPPED, between(11, cfg.dwell_s), 0.0)
    state[WALK] = torch.where(walker, between(11, cfg.walk_m_s), 0.0)


def propose(
    cfg: TrafficCfg, maps: TrafficMaps, car: Around, drawn: Tensor, generator: torch.Generator, *, hidden: bool
) -> tuple[Tensor, Tensor]:
    """New slots, not yet compared with other slots.

    Args:
        cfg: Settings of their behaviour.
        maps: Paths.
        car: ``(m,)``, cars around which they are placed.
        drawn: ``(m,)`` behaviours that are wanted.
        generator: Of all draws.
        hidden: Whether they have to appear out of sight.

    Returns:
        State ``(F, m)``, and bool ``(m,)`` whether the place suits the behaviour.
    """
    count, device = len(drawn), drawn.device
    u = torch.rand(3, count, generator=generator, device=device)
    near = 15.0 + cfg.time_gap_s * car.speed_m_s
    low = torch.full_like(near, cfg.out_of_sight_m) if hidden else near.clamp(max=cfg.out_of_sight_m)
    distance = low + (cfg.horizon_m - 3.0 - low) * u[0]
    behind = drawn == FOLLOW
    s = car.s_m + torch.where(behind, -distance if hidden else -(15.0 + 45.0 * u[0]), distance)
    row, fits = car.row, s > 0.0
    first = car.row // maps.per_map * maps.per_map
    other = first + maps.routes + (u[1] * (maps.per_map - maps.routes)).long()
    at, there = _oncoming(maps, car, other, s)
    chosen = drawn == ONCOMING
    row, s, fits = torch.where(chosen, other, row), torch.where(chosen, at, s), torch.where(chosen, there, fits)
    across, at, there = _crossing(maps, car, generator)
    chosen = drawn == CROSSING
    row, s, fits = torch.where(chosen, across, row), torch.where(chosen, at, s), torch.where(chosen, there, fits)
    state = torch.zeros(len(FIELDS), count, device=device)
    state[BEHAVIOUR], state[ROW], state[S], state[TAKEN] = drawn.to(state.dtype), row.to(state.dtype), s, 1.0
    draw_drivers(cfg, state, generator)
    points = path_points(maps, row, s)
    inside = (s > 0.5 * state[LENGTH] + 1.0) & (s < maps.lines.length_m[row] - 0.5 * state[LENGTH] - 12.0)
    stops = maps.lines.stops[row][..., 0] - (s + 0.5 * state[LENGTH])[:, None]
    line = stops.masked_fill(stops < 0.0, torch.inf).amin(1)
    fits = fits & inside & (points[:, 7] < 0.5) & _suits(maps, state, points, line)
    _set_lateral(state, points, u[2])
    moving = (drawn < STOPPED) | (drawn == CUT_IN)
    speed = torch.minimum(points[:, 4] * state[FACTOR].clamp(max=1.0), 2.0 * (line - 1.0).clamp(min=0.0).sqrt())
    state[SPEED] = torch.where(moving, speed, 0.0)
    return state, fits


def _oncoming(maps: TrafficMaps, car: Around, other: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Arc length of another path beside ``s`` of the car's, and whether it leads the other way on another lane."""
    step, longest = maps.lines.step_m, maps.lines.table.shape[1]
    columns = maps.near.shape[2]
    spot = (s / step[car.row] / STRIDE).long().clamp(0, columns - 1)
    foot = maps.near[car.row, other % maps.per_map, spot].long()
    here = maps.frames[car.row * longest + (spot * STRIDE).clamp(max=longest - 1)]
    there = maps.frames[other * longest + foot.clamp(min=0)]
    against = here[:, 2] * there[:, 2] + here[:, 3] * there[:, 3] < -0.5
    return foot * step[other], (foot >= 0) & against


def _crossing(maps: TrafficMaps, car: Around, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Another path that meets the car's at its next junction, from where on it to drive, and whether there is one.

    It shall be there about when the car is, or has just entered the map where its road is too short for that.
    """
    gap = maps.lines.stops[car.row][..., 0] - car.s_m[:, None]
    distance, place = gap.masked_fill(gap < 8.0, torch.inf).min(1)
    begin = maps.yields[car.row, place][..., 0]
    begin[:, : maps.routes] = torch.inf
    u = torch.rand(begin.shape[0], begin.shape[1] + 2, generator=generator, device=begin.device)
    which = torch.where(torch.isfinite(begin), u[:, 2:], -1.0).argmax(1)
    begin = begin.gather(1, which[:, None])[:, 0]
    there = torch.isfinite(begin) & (distance < 110.0)
    begin = torch.where(there, begin, 0.0)
    time = distance.clamp(max=110.0) / car.speed_m_s.clamp(min=5.0)
    s = begin - 8.0 * time * (0.5 + u[:, 0]) - 4.0
    s = torch.where(s > 6.0, s, 4.0 + u[:, 1] * (begin - 12.0).clamp(min=0.0))
    return car.row // maps.per_map * maps.per_map + which, s, there


def _suits(maps: TrafficMaps, state: Tensor, points: Tensor, line_m: Tensor) -> Tensor:
    """Whether lanes beside and stop lines ahead allow for the behaviour, ``(m,)``."""
    kind, side = state[BEHAVIOUR], points[:, 6]
    later = path_points(maps, state[ROW].long(), state[S] + 50.0)
    changes = (side != 0.0) & (later[:, 6] == side) & (line_m > 70.0)
    edge = side >= 0.0
    calm = (line_m > 8.0) | (kind < STOPPED)
    return torch.where(kind == CUT_IN, changes, torch.where((kind == BROKEN) | (kind == OBSTACLE), edge, True)) & calm


def _set_lateral(state: Tensor, points: Tensor, u: Tensor) -> None:
    """Offsets where things and people stand, and where lane changers and pedestrians want to be."""
    kind, lane, side = state[BEHAVIOUR], points[:, 5], points[:, 6]
    start = torch.where(kind == BROKEN, -0.5 * lane - 0.6, 0.0)
    start = torch.where(kind == OBSTACLE, -0.5 * lane - 0.1, start)
    start = torch.where(kind == CUT_IN, side * lane, start)
    walker = kind == WALKER
    right = -(0.5 + (side < 0.0).to(lane.dtype)) * lane - _KERB_M
    left = (1.5 + 2.0 * (side > 0.0).to(lane.dtype) + (side < 0.0).to(lane.dtype)) * lane + _KERB_M
    leftward = u < 0.5
    start = torch.where(walker, torch.where(leftward, right, left), start)
    state[LATERAL] = state[BEGIN] = start
    state[AIM] = torch.where(walker, torch.where(leftward, left, right), start)
    state[WALK] = torch.where(leftward, state[WALK], -state[WALK])
    state[HEADING] = torch.where(walker, torch.where(leftward, 0.5, -0.5) * torch.pi, 0.0)


def has_room(cfg: TrafficCfg, maps: TrafficMaps, state: Tensor, others: Users) -> Tensor:
    """Whether new slots ``(F, m)`` keep a time gap and a way to brake to all others ``(m, E)``, and they to them."""
    points = path_points(maps, state[ROW].long(), state[S])
    one = users_of(state[:, :, None], *(part[:, None] for part in placed(points, state[LATERAL], state[HEADING])))
    free = torch.ones_like(state[S], dtype=torch.bool)
    for looks, seen in ((one, others), (others, one)):
        found = relations(maps, looks, seen)
        speed, toward = looks.speed_m_s[:, :, None], found.along_m_s
        need = 3.0 + cfg.time_gap_s * speed + (speed * speed - toward.clamp(min=0.0) ** 2).clamp(min=0.0) / 6.0
        beside = beside_m(looks, found) < found.reach_m + 0.3
        level = found.ahead_m.abs() < looks.half_length_m[:, :, None] + seen.half_length_m[:, None] + 1.0
        clash = beside & (level | ((found.ahead_m >= 0.0) & (found.gap_m < need)))
        exists = looks.taken[:, :, None] & found.seen
        free &= ~(clash & exists).flatten(1).any(1)
    gap = torch.hypot(others.x - one.x, others.y - one.y)
    touch = gap < torch.hypot(others.half_length_m + one.half_length_m, others.half_width_m + one.half_width_m) + 0.5
    return free & ~(touch & others.taken).any(1)


def find_places(
    cfg: TrafficCfg, maps: TrafficMaps, car: Around, others: Users, generator: torch.Generator, *, hidden: bool
) -> Tensor:
    """New slots ``(F, m)``, one for each of m environments; untaken where none of a few candidates had room.

    Args:
        cfg: Settings of their behaviour.
        maps: Paths.
        car: ``(m,)``, cars around which they are placed.
        others: ``(m, E)`` users that are there, the car last.
        generator: Of all draws.
        hidden: Whether they have to appear out of sight.
    """
    count, device = len(car.row), car.row.device
    drawn = draw_behaviour(cfg, torch.rand(count, generator=generator, device=device))
    empty = drawn == len(BEHAVIOURS)
    owner = torch.arange(count, device=device).repeat_interleave(CANDIDATES)
    each = _rows(car, owner)
    wanted = torch.where(empty, LEAD, drawn)[owner]
    # Where there is no junction or no lane beside, the later candidates are something that there is room for.
    late = torch.arange(CANDIDATES, device=device).repeat(count) >= CANDIDATES // 2
    wanted = torch.where(late & (wanted == CROSSING), LEAD, torch.where(late & (wanted == CUT_IN), ONCOMING, wanted))
    state, fits = propose(cfg, maps, each, wanted, generator, hidden=hidden)
    points = path_points(maps, state[ROW].long(), state[S])
    x, y, _ = placed(points, state[LATERAL], state[HEADING])
    away = torch.hypot(x - each.x, y - each.y)
    # A side road hides users that come along it.
    low = torch.where(state[BEHAVIOUR] == CROSSING, 0.5, 1.0) * cfg.out_of_sight_m if hidden else 10.0
    fits &= (away < cfg.horizon_m) & (away > low)
    fits &= ~empty[owner]
    left = fits.nonzero()[:, 0]
    fits[left] = has_room(cfg, maps, state[:, left], _rows(others, owner[left]))
    score = fits.view(count, CANDIDATES).to(torch.uint8)
    best = score.argmax(1) + torch.arange(count, device=device) * CANDIDATES
    chosen = state[:, best]
    found = fits[best]
    wait = RETRY_S * (0.5 + torch.rand(count, generator=generator, device=device))
    chosen[TAKEN] = found.to(chosen.dtype)
    chosen[TIMER] = torch.where(found, chosen[TIMER], wait)
    chosen[SPEED] = torch.where(found, chosen[SPEED], 0.0)
    return chosen


def _rows(parts: _Parts, rows: Tensor) -> _Parts:
    return type(parts)(**{item.name: getattr(parts, item.name)[rows] for item in fields(parts)})
