"""Drivers by rules, at constant speed and at random, on simulated cars."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import car_spec
from gantry_sim.driving.drivers.baselines import RuleCfg, constant_speed, pedals, pursuit, random_actions, rule_based
from gantry_sim.driving.maps.bank import NO_STOP_M
from gantry_sim.driving.maps.generate import MapConfig, lane_map
from gantry_sim.driving.maps.projection import Window, pose_at, project, window
from gantry_sim.driving.maps.routes import random_route
from gantry_sim.driving.sensors.boxes import overlap
from gantry_sim.driving.traffic.paths import traffic_maps
from gantry_sim.driving.traffic.traffic import CarView, Traffic
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg
from gantry_sim.driving.vehicle.cars import BatchedCars, CarsCfg

torch.set_num_threads(1)
SPEC = car_spec("bmw_320i")


@functools.cache
def pool():
    maps = [lane_map(seed, MapConfig(min_route_m=260.0)) for seed in range(4)]
    routes = []
    for found in maps:
        rng = np.random.default_rng(found.seed)
        routes.append([random_route(found, rng, 250.0) for _ in range(2)])
    return traffic_maps(maps, routes, 8)


def straight(count=41, limit=10.0):
    zeros = torch.zeros(1, count)
    points = torch.stack((torch.arange(count)[None].float() - 5.0, zeros), dim=-1)
    return Window(points, zeros, zeros, zeros + limit, zeros + 1.75, zeros + 1.75, zeros > 0.0)


def view(gap=math.inf, leader=0.0, stop=NO_STOP_M, light=0.0, give_way=False):
    gap_m, leader_m_s, stop_m, shown = (torch.tensor([value]) for value in (gap, leader, stop, light))
    return CarView(gap_m, leader_m_s, stop_m, shown, torch.tensor([give_way]), torch.tensor([10.0]))


def test_pursuit_steers_the_circle_through_the_point_ahead():
    # Aim 4 m away: from 1 m beside the line the point on it is sqrt(4^2 - 1) m ahead, to the right.
    fine = torch.stack((torch.arange(0.0, 20.0, 0.01), torch.zeros(2000)), dim=-1)[None]
    pose = torch.tensor([[5.0, 1.0, 0.0]])
    found = float(pursuit(pose, torch.zeros(1), fine, SPEC)) * SPEC.steering_limit_rad
    assert found == pytest.approx(math.atan(SPEC.wheelbase_m * 2.0 * -1.0 / 16.0), abs=1e-3)
    assert float(pursuit(torch.tensor([[5.0, 0.0, 0.0]]), torch.zeros(1), fine, SPEC)) == pytest.approx(0.0, abs=1e-6)


def test_pedals_are_shares_of_both_limits():
    accel = torch.tensor([0.5 * SPEC.accel_limit_m_s2, -0.25 * SPEC.brake_limit_m_s2, 99.0, -99.0])
    torch.testing.assert_close(pedals(accel, SPEC), torch.tensor([0.5, -0.25, 1.0, -1.0]))


@pytest.mark.parametrize(
    ("seen", "brakes"),
    [
        (view(), False),
        (view(gap=60.0, leader=8.0), False),
        (view(gap=10.0, leader=0.0), True),
        (view(stop=20.0, light=1.0), True),
        (view(stop=20.0, light=0.5), True),
        (view(stop=5.0, light=0.5), False),  # Would need 6.4 m/s^2.
        (view(stop=20.0, light=0.0), False),
        (view(stop=15.0, give_way=True), True),
    ],
)
def test_the_rules_brake_for_whom_they_must(seen, brakes):
    action = rule_based(torch.zeros(1, 3), torch.full((1,), 8.0), straight(), seen, SPEC)
    assert (float(action[0, 1]) < -0.05) == brakes
    assert abs(float(action[0, 0])) < 1e-6


def test_a_range_that_is_none_is_refused():
    with pytest.raises(GantryError, match="lookahead_m"):
        RuleCfg(lookahead_m=(9.0, 3.0))


def drive(cfg, count, steps, choose):
    """Cars on their routes among traffic; share of the route driven, mean offset and who hit somebody."""
    maps = pool()
    cars, traffic = BatchedCars(SPEC, count, CarsCfg(substeps=2)), Traffic(cfg, maps, count, 0.1, 3)
    every = torch.arange(count)
    row = every % 4 * maps.per_map + every // 4 % maps.routes
    s = torch.full((count,), 5.0)
    pose, index = pose_at(maps.lines, row, s)
    cars.reset(every, pose, torch.full((count,), 5.0))

    def box():
        ahead = SPEC.center_x_in_base_m * torch.stack((cars.pose[:, 2].cos(), cars.pose[:, 2].sin()), dim=1)
        size = torch.tensor([[SPEC.length_m, SPEC.width_m]]).expand(count, 2)
        return torch.cat((cars.pose[:, :2] + ahead, cars.pose[:, 2:], size), dim=1)

    traffic.reset(every, row, s + SPEC.center_x_in_base_m, box(), cars.speed_m_s, torch.zeros(count))
    offsets = []
    hit, active = torch.zeros(count, dtype=torch.bool), torch.ones(count, dtype=torch.bool)
    furthest = s.clone()
    for step in range(1, steps + 1):
        near = window(maps.lines, row, index, behind=4, count=44)
        action = choose(cars, near, traffic.car)
        cars.step(
            action[:, 0] * SPEC.steering_limit_rad,
            torch.where(action[:, 1] > 0, SPEC.accel_limit_m_s2, SPEC.brake_limit_m_s2) * action[:, 1],
        )
        traffic.step(box(), cars.speed_m_s, torch.full((count,), 0.1 * step))
        found = project(maps.lines, row, index, cars.pose[:, :2])
        index = found.index
        furthest = torch.where(active, torch.maximum(furthest, found.s_m), furthest)
        active &= found.s_m < maps.lines.length_m[row] - 5.0
        objects = traffic.objects
        hit |= active & overlap(box(), objects[..., [0, 1, 2, 4, 5]], objects[..., 6] > 0.5).any(1)
        active &= ~hit
        offsets.append(found.lateral_m.abs()[active])
    share = furthest / (maps.lines.length_m[row] - 5.0)
    return share.clamp(max=1.0), torch.cat(offsets), hit


def test_the_rules_drive_among_traffic_better_than_the_others():
    calm = dataclasses.replace(TrafficCfg(), blind=0.0)
    generator = torch.Generator().manual_seed(0)

    def rules(cars, near, car):
        return rule_based(cars.pose, cars.speed_m_s, near, car, SPEC)

    def steady(cars, near, car):
        return constant_speed(cars.pose, cars.speed_m_s, near, SPEC, 8.0)

    def chance(cars, near, car):
        return random_actions(cars.num_cars, generator)

    share, offset, hit = drive(calm, 32, 500, rules)
    assert float(hit.float().mean()) <= 0.07
    assert float(offset.mean()) < 0.15
    assert float(share.mean()) > 0.6
    steady_share, _, steady_hit = drive(calm, 32, 220, steady)
    assert float(steady_hit.float().mean()) > 0.2 + float(hit.float().mean())
    chance_share, _, _ = drive(calm, 32, 100, chance)
    assert float(chance_share.mean()) < float(steady_share.mean()) < float(share.mean())


def test_random_actions_fill_the_square():
    actions = random_actions(4000, torch.Generator().manual_seed(0))
    assert actions.shape == (4000, 2)
    assert float(actions.min()) >= -1.0
    assert float(actions.max()) <= 1.0
    torch.testing.assert_close(actions.mean(0), torch.zeros(2), atol=0.05, rtol=0)
