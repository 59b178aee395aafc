"""Traffic lights against the conflicts of real maps and a clock read by hand."""

import dataclasses
import functools
import itertools

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.generate import MapConfig, lane_map
from gantry_sim.driving.traffic.lights import GREEN, RED, YELLOW, Lights, LightsCfg, junction_phases, light_plan

CFG = LightsCfg(green_s=(6.0, 15.0))


@functools.cache
def maps():
    return [
        lane_map(seed, MapConfig(blocks={"t": 1.0, "x": 1.0, "roundabout": 0.5, "straight": 1.0})) for seed in range(6)
    ]


def shown(lights, seconds=80.0, dt=0.25):
    count = lights.plan.phase.shape[0]
    return torch.stack([lights.state(torch.full((count,), k * dt)) for k in range(int(seconds / dt))])


def started(seed=0, episode=1):
    plan = light_plan(maps())
    lights = Lights(plan, len(maps()), CFG, seed)
    every = torch.arange(len(maps()))
    lights.reset(every, every, torch.full_like(every, episode))
    return lights


def test_groups_that_conflict_are_never_free_to_go_together():
    states, seen = shown(started()), 0
    for number, found in enumerate(maps()):
        for index, junction in enumerate(found.junctions):
            for a, b in junction.group_conflicts:
                go = states[:, number, index, [a, b]] < RED
                assert not bool(go.all(1).any())
                assert bool(go.any(0).all()), "Each is served within a cycle."
                seen += 1
            if not junction.lights:
                assert bool((states[:, number, index] == GREEN).all())
    assert seen > 10


def test_opposite_approaches_share_a_phase():
    crossing = next(j for found in maps() for j in found.junctions if j.kind == "x")
    phases = junction_phases(crossing)
    assert phases[0] == phases[2] != phases[1] == phases[3]
    apart = dataclasses.replace(crossing, group_conflicts=tuple(itertools.combinations(range(4), 2)))
    assert junction_phases(apart) == [0, 1, 2, 3]


def test_green_yellow_and_red_last_as_long_as_the_clock_says():
    lights, dt = started(), 0.05
    states = shown(lights, 120.0, dt)
    number, junction = next((n, i) for n, m in enumerate(maps()) for i, j in enumerate(m.junctions) if j.lights)
    series = states[:, number, junction, 0].tolist()
    runs = [(value, len(list(run)) * dt) for value, run in itertools.groupby(series)]
    order = [value for value, _ in runs[1:-1]]
    for before, after in itertools.pairwise(order):
        assert (before, after) in {(GREEN, YELLOW), (YELLOW, RED), (RED, GREEN)}
    yellow = [length for value, length in runs[1:-1] if value == YELLOW]
    green = [length for value, length in runs[1:-1] if value == GREEN]
    red = [length for value, length in runs[1:-1] if value == RED]
    assert yellow == pytest.approx([3.0] * len(yellow), abs=2 * dt)
    assert max(green) - min(green) < 2 * dt
    assert 6.0 - dt <= green[0] <= 15.0 + dt
    assert min(red) >= 6.0 + 3.0 + 1.0
    # The group stays red through its own all-red time and the other phase with its yellow and all-red.


def test_the_same_seed_and_episode_show_the_same_on_their_own():
    first = shown(started(3, 5), 20.0)
    torch.testing.assert_close(first, shown(started(3, 5), 20.0), atol=0, rtol=0)
    assert not torch.equal(first, shown(started(4, 5), 20.0))
    assert not torch.equal(first, shown(started(3, 6), 20.0))
    # One environment alone is what it was among others.
    lights = started(3, 1)
    lights.reset(torch.tensor([2]), torch.tensor([2]), torch.tensor([5]))
    now = torch.full((len(maps()),), 7.3)
    torch.testing.assert_close(lights.state(now)[2], started(3, 5).state(now)[2], atol=0, rtol=0)
    torch.testing.assert_close(lights.state(now[:1], torch.tensor([2]))[0], lights.state(now)[2], atol=0, rtol=0)


def test_a_range_upside_down_is_refused():
    with pytest.raises(GantryError, match="green_s"):
        LightsCfg(green_s=(9.0, 5.0))
