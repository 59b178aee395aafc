"""Traffic around cars: laws of following, stopping, placing and repeating, on real maps."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.generate import MapConfig, lane_map
from gantry_sim.driving.maps.routes import random_route
from gantry_sim.driving.sensors.boxes import overlap
from gantry_sim.driving.traffic.idm import idm_accel, safe_speed_m_s
from gantry_sim.driving.traffic.paths import traffic_maps
from gantry_sim.driving.traffic.slots import (
    ACCEL,
    AIM,
    BEGIN,
    BEHAVIOUR,
    BLIND,
    BRAKE,
    FACTOR,
    GAP,
    HEADWAY,
    LATERAL,
    LENGTH,
    ROW,
    SPAN,
    SPEED,
    TAKEN,
    TIMER,
    TURN,
    WIDTH,
    S,
    path_points,
    placed,
)
from gantry_sim.driving.traffic.traffic import Traffic
from gantry_sim.driving.traffic.traffic_cfg import BEHAVIOURS, LEAD, STOPPED, TrafficCfg, TrafficShares

torch.set_num_threads(1)
NONE = {name: 0.0 for name in BEHAVIOURS} | {"empty": 1.0}
EMPTY = TrafficCfg(shares=TrafficShares(**NONE), phantom=0.0, blind=0.0)


@functools.cache
def pool(kind="town"):
    lanes = MapConfig(blocks={"straight": 1.0, "arc": 3.0, "s": 2.0}, lanes=(1,), min_route_m=320.0)
    config = MapConfig(min_route_m=260.0) if kind == "town" else lanes
    maps = [lane_map(seed, config) for seed in range(6 if kind == "town" else 2)]
    routes = []
    for found in maps:
        rng = np.random.default_rng(found.seed)
        routes.append([random_route(found, rng, 250.0) for _ in range(2)])
    return traffic_maps(maps, routes, 10)


def boxes_at(maps, row, s):
    x, y, yaw = placed(path_points(maps, row, s), torch.zeros_like(s), torch.zeros_like(s))
    return torch.stack([x, y, yaw, torch.full_like(x, 4.5), torch.full_like(x, 1.6)], dim=-1)


class Cars:
    """Cars on rails: exactly on their routes, at the safe speed unless told otherwise."""

    def __init__(self, cfg, maps, count, seed=0, s=10.0, speed=8.0):
        self.traffic = Traffic(cfg, maps, count, 0.1, seed)
        every = torch.arange(count)
        maps_there = len(maps.longer) // maps.per_map
        self.row = every % maps_there * maps.per_map + every // maps_there % maps.routes
        self.s, self.speed, self.time = torch.full((count,), s), torch.full((count,), speed), torch.zeros(count)
        self.traffic.reset(every, self.row, self.s, self.box, self.speed, self.time)

    @property
    def box(self):
        return boxes_at(self.traffic.maps, self.row, self.s)

    def step(self, speed=None):
        if speed is None:
            car = self.traffic.car
            speed = self.traffic.safe_speed(car.speed_m_s)
            line = (4.0 * (car.stop_m - 1.0).clamp(min=0.0)).sqrt()
            speed = torch.where(car.give_way & (car.stop_m < 25.0), torch.minimum(speed, line), speed)
            speed = torch.maximum(torch.minimum(speed, self.speed + 0.15), self.speed - 0.8).clamp(min=0.0)
        self.speed = torch.as_tensor(speed).expand_as(self.s)
        self.s, self.time = self.s + 0.1 * self.speed, self.time + 0.1
        self.traffic.step(self.box, self.speed, self.time)

    def hits(self):
        objects = self.traffic.objects
        return overlap(self.box, objects[..., [0, 1, 2, 4, 5]], objects[..., 6] > 0.5)


def vehicles(traffic, s, row, speed, behaviour):
    """Write vehicles at given arc lengths (N, k) into the first slots, with ordinary drivers."""
    state, count = traffic.state, s.shape[1]
    numbers = {FACTOR: 1.0, HEADWAY: 1.4, ACCEL: 1.5, BRAKE: 2.5, GAP: 4.0, LENGTH: 4.5, WIDTH: 1.8, TAKEN: 1.0}
    for field, value in numbers.items():
        state[field, :, :count] = value
    state[ROW, :, :count], state[S, :, :count] = row[:, None].float(), s
    state[SPEED, :, :count], state[BEHAVIOUR, :, :count] = speed, torch.tensor(behaviour).float()
    traffic._locate()
    traffic._decide(None)


def test_a_driver_at_the_equilibrium_gap_neither_speeds_up_nor_brakes():
    v, v0, headway, s0 = 10.0, 15.0, 1.4, 2.0
    gap = (s0 + v * headway) / math.sqrt(1.0 - (v / v0) ** 4)
    speed = torch.tensor([v, v, v])
    gaps = torch.tensor([gap, gap - 1.0, gap + 1.0])
    accel = idm_accel(speed, torch.full((3,), v0), gaps, speed)
    assert accel[0].abs() < 1e-5
    assert accel[1] < 0.0 < accel[2]
    # Alone: a (1 - (v / v0)^4).
    alone = idm_accel(speed[:1], torch.tensor([v0]), torch.tensor([math.inf]), torch.zeros(1))
    assert float(alone) == pytest.approx(1.5 * (1.0 - (2.0 / 3.0) ** 4), rel=1e-5)


def test_the_safe_speed_just_stops_in_the_gap():
    gap, brake, late = 30.0, 3.0, 1.2
    v = float(safe_speed_m_s(torch.tensor(gap), torch.tensor(0.0), brake, late))
    assert v * late + v * v / (2.0 * brake) == pytest.approx(gap, rel=1e-5)
    same = safe_speed_m_s(torch.tensor(7.0 * late), torch.tensor(7.0), brake, late)
    assert float(same) == pytest.approx(7.0, rel=1e-5)


def test_a_platoon_comes_to_rest_behind_a_stopped_car_without_touching():
    maps = pool("road")
    cars = Cars(dataclasses.replace(EMPTY, horizon_m=1e4), maps, 64, s=5.0, speed=0.0)
    row = maps.longer[cars.row]
    gaps = 16.0 + 8.0 * torch.rand(64, 6, generator=torch.Generator().manual_seed(1))
    first = cars.s + maps.shift_m[cars.row] + 190.0
    s = first[:, None] - torch.cat([torch.zeros(64, 1), gaps[:, :5].cumsum(1)], dim=1)
    vehicles(cars.traffic, s, row, 8.0, [STOPPED] + [LEAD] * 5)
    cars.traffic.state[SPEED, :, 0] = 0.0
    cars.traffic.state[TIMER, :, 0] = 1e6
    for _ in range(600):
        cars.step(0.0)
        order = cars.traffic.state[S, :, :6]
        assert float((order[:, :-1] - order[:, 1:] - 4.5).min()) > 0.5
    state = cars.traffic.state
    there = state[TAKEN, :, :6] > 0.5
    assert bool(there.all())
    assert float(state[SPEED, :, :6].max()) < 0.1
    gap = state[S, :, :5] - state[S, :, 1:6] - 4.5
    assert 1.5 < float(gap.min()) <= float(gap.max()) < 3.5


def test_nobody_runs_a_red_light_who_could_have_stopped():
    cfg = TrafficCfg(phantom=0.0)
    cars, crossed, late = Cars(cfg, pool(), 96, 3), 0, 0
    onset = torch.zeros(96, cfg.slots, dtype=torch.bool)
    for _ in range(300):
        traffic = cars.traffic
        before, state = traffic.state.clone(), traffic.lights.state(cars.time)
        stops = traffic.maps.lines.stops[before[ROW].long()]
        gap = stops[..., 0] - (before[S] + 0.5 * before[LENGTH])[..., None]
        distance, place = gap.masked_fill(gap < 0.0, torch.inf).min(-1)
        which = stops.gather(2, place[..., None, None].expand(-1, -1, 1, 4))[:, :, 0]
        number = (which[..., 1] * state.shape[2] + which[..., 2]).long().clamp(min=0)
        light = torch.where(which[..., 2] >= 0, state.flatten(1).gather(1, number), 0.0)
        needed = before[SPEED] ** 2 / (2.0 * distance.clamp(min=0.1))
        drives = (before[TAKEN] > 0.5) & torch.isfinite(distance)
        # Who could stop with 3 m/s^2 at any time while it was yellow or red must.
        onset = drives & (light > 0.25) & (onset | (needed < 3.0))
        cars.step()
        after = traffic.state
        same = (after[TAKEN] > 0.5) & (after[ROW] == before[ROW]) & ((after[S] - before[S]).abs() < 3.0)
        over = same & drives & (after[S] + 0.5 * after[LENGTH] > before[S] + 0.5 * before[LENGTH] + distance)
        crossed += int(over.sum())
        late += int((over & onset).sum())
    assert crossed > 100
    assert late == 0


def test_nobody_appears_on_or_close_before_anybody():
    cars = Cars(TrafficCfg(), pool(), 96, 5)
    appeared = 0
    for step in range(121):
        before = cars.traffic.state.clone()
        if step > 0:
            cars.step()
        state, objects = cars.traffic.state, cars.traffic.objects
        new = (state[TAKEN] > 0.5) & ((before[TAKEN] < 0.5) | (before[ROW] != state[ROW]))
        new = state[TAKEN] > 0.5 if step == 0 else new
        flat = objects[..., [0, 1, 2, 4, 5]]
        away = torch.hypot(objects[..., 0] - cars.box[:, :1], objects[..., 1] - cars.box[:, 1:2])
        assert not bool((new & (away > cars.traffic.cfg.horizon_m)).any())
        assert not bool((cars.hits() & new).any())
        if step > 0:
            assert float(away.masked_fill(~new, 1e3).min()) > 37.0
        for slot in range(flat.shape[1]):
            touch = overlap(flat[:, slot], flat, state[TAKEN] > 0.5)
            touch[:, slot] = False
            assert not bool((touch.any(1) & new[:, slot]).any())
        appeared += int(new.sum())
    assert appeared > 400
    seen = torch.bincount(
        cars.traffic.state[BEHAVIOUR][cars.traffic.state[TAKEN] > 0.5].long(), minlength=len(BEHAVIOURS)
    )
    assert int((seen > 0).sum()) >= 7


def run(cars, steps):
    shown = []
    for _ in range(steps):
        cars.step()
        shown.append(cars.traffic.objects)
    return torch.stack(shown)


def test_the_same_seed_makes_the_same_traffic_and_another_seed_other():
    first, again, other = (run(Cars(TrafficCfg(), pool(), 12, seed), 40) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert bool(torch.isfinite(first).all())


def test_traffic_goes_on_exactly_where_it_was_saved():
    cars = Cars(TrafficCfg(), pool(), 12, 7)
    run(cars, 30)
    saved, s, speed, now = cars.traffic.state_dict(), cars.s, cars.speed, cars.time
    rest = run(cars, 40)
    fresh = Cars(TrafficCfg(), pool(), 12, 8)
    fresh.traffic.load_state_dict(saved)
    fresh.s, fresh.speed, fresh.time = s, speed, now
    assert torch.equal(run(fresh, 40), rest)
    with pytest.raises(GantryError, match="state"):
        Traffic(TrafficCfg(slots=3), pool(), 12).load_state_dict(saved)


def test_blind_drivers_run_into_a_car_that_stands_and_others_do_not():
    maps, shares = pool("road"), {}
    for blind in (0.0, 1.0):
        cars = Cars(EMPTY, maps, 32, s=80.0, speed=0.0)
        row = maps.longer[cars.row]
        s = (cars.s + maps.shift_m[cars.row])[:, None] - 40.0
        vehicles(cars.traffic, s, row, 8.0, [LEAD])
        cars.traffic.state[BLIND, :, 0] = blind
        cars.traffic._decide(None)
        hit = torch.zeros(32, dtype=torch.bool)
        for _ in range(120):
            cars.step(0.0)
            hit |= cars.hits()[:, 0]
        shares[blind] = float(hit.float().mean())
    assert shares == {0.0: 0.0, 1.0: 1.0}


def test_a_lane_change_has_no_jump_in_heading_and_ends_in_the_lane():
    maps = pool("road")
    cars = Cars(EMPTY, maps, 4, s=5.0, speed=0.0)
    row = maps.longer[cars.row]
    vehicles(cars.traffic, torch.full((4, 1), 60.0), row, 8.0, [5])
    state = cars.traffic.state
    state[BEGIN, :, 0] = state[LATERAL, :, 0] = 3.5
    state[AIM, :, 0], state[TURN, :, 0], state[SPAN, :, 0] = 0.0, 0.0, 24.0
    poses, offsets = [], []
    cars.traffic._locate()
    for _ in range(45):
        cars.step(0.0)
        poses.append(cars.traffic.objects[:, 0])
        offsets.append(state[LATERAL, :, 0].clone())
    pose, offset = torch.stack(poses), torch.stack(offsets)
    assert float(offset[-1].abs().max()) < 1e-5
    assert bool((offset.diff(dim=0) <= 1e-6).all())
    turn = torch.remainder(pose[:, :, 2].diff(dim=0) + math.pi, 2 * math.pi) - math.pi
    assert float(turn.abs().max()) < 0.12
    # It moves where it points to.
    way = pose[:, :, :2].diff(dim=0)
    course = torch.atan2(way[..., 1], way[..., 0]) - 0.5 * (pose[1:, :, 2] + pose[:-1, :, 2])
    course = torch.remainder(course + 0.5 * math.pi, math.pi) - 0.5 * math.pi
    assert float(course.abs().max()) < 0.03


def test_the_car_is_told_who_is_ahead_of_it_and_how_fast_it_may_be():
    maps = pool("road")
    cars = Cars(EMPTY, maps, 4, s=20.0, speed=5.0)
    assert bool(torch.isinf(cars.traffic.car.gap_m).all())
    limit = torch.full((4,), 9.0)
    torch.testing.assert_close(cars.traffic.safe_speed(limit), limit)
    s = (cars.s + maps.shift_m[cars.row])[:, None] + 30.0
    vehicles(cars.traffic, s, maps.longer[cars.row], 0.0, [STOPPED])
    torch.testing.assert_close(cars.traffic.car.gap_m, torch.full((4,), 25.5), atol=0.15, rtol=0)
    v = cars.traffic.safe_speed(torch.full((4,), 50.0), brake_m_s2=3.0, headway_s=1.0)
    torch.testing.assert_close(v + v * v / 6.0, cars.traffic.car.gap_m - 2.0, atol=1e-3, rtol=0)


def test_rows_that_are_no_routes_and_wrong_numbers_are_refused():
    traffic, one = Traffic(EMPTY, pool(), 2), torch.zeros(1)
    with pytest.raises(GantryError, match="are paths of others"):
        traffic.reset(torch.tensor([0]), torch.tensor([5]), one, torch.zeros(1, 5), one, one)
    with pytest.raises(GantryError, match="blind"):
        TrafficCfg(blind=1.5)
    with pytest.raises(GantryError, match="Shares"):
        TrafficShares(lead=-1.0)
