"""Cars among others: what counts as a collision, a near one and a red light, and that beginnings are prepared ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_deploy.perception.road import BEHIND_M
from gantry_hardware.errors import GantryError
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.drivers.baselines import constant_speed, rule_based
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import drive_episodes, scores_of
from gantry_sim.driving.maps.generate import MapConfig
from gantry_sim.driving.maps.projection import window
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg, TrafficShares

ROADS = MapConfig(blocks={"straight": 1.0}, count=(3, 4), lanes=(1,), min_route_m=160.0)
LEADS = TrafficCfg(slots=3, shares=TrafficShares(0, 0, 0, 0, 1, 0, 0, 0, 0, 0))
"""Vehicles that stand on the route."""
PLAIN = DriveCfg(
    num_envs=6, maps=ROADS, map_count=2, routes_per_map=2, route_m=150.0, noise=None, traffic=LEADS, blocked_s=40.0
)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def ahead(env):
    scene = env.scene
    return window(scene.routes, scene.route, scene.place.index, behind=6, count=70)


def keep_on(env, obs):
    return constant_speed(env.cars.pose, env.cars.speed_m_s, ahead(env), env.scene.spec)


def by_rules(env, obs):
    return rule_based(env.cars.pose, env.cars.speed_m_s, ahead(env), env.scene.traffic.car, env.scene.spec)


def test_who_does_not_brake_hits_who_stands_and_was_near_it_before():
    env = DriveEnv(PLAIN, seed=1)
    env.reset()
    near = torch.zeros(6, dtype=torch.bool)
    hits = 0
    for _ in range(200):
        env.step(keep_on(env, None))
        which = env.ended["envs"]
        hit = env.ended["vehicle"]
        assert near[which[hit]].all()
        hits += int(hit.sum())
        near |= env.factors["ttc"] < 1.0
        near[which] = False
    assert hits > 0


def test_who_brakes_by_rules_does_not():
    env = DriveEnv(replace(PLAIN, episode_s=90.0), seed=1)
    found = scores_of(drive_episodes(env, by_rules))
    assert found["ends"]["vehicle"] == 0.0
    assert found["completion_percent"]["mean"] > 60.0


def test_a_red_light_that_is_passed_ends_the_episode_and_a_green_one_does_not():
    town = MapConfig(blocks={"x": 1.0}, count=(2, 2), lanes=(1,), min_route_m=110.0)
    alone = TrafficCfg(slots=1, shares=TrafficShares(0, 0, 0, 0, 0, 0, 0, 0, 0, 1))
    env = DriveEnv(replace(PLAIN, num_envs=32, maps=town, route_m=100.0, traffic=alone), seed=2)
    env.reset()
    seen = []
    for _ in range(400):
        before = env.scene.traffic.car.stop_m.clone(), env.scene.traffic.car.light.clone()
        env.step(keep_on(env, None))
        for place, ran in zip(env.ended["envs"].tolist(), env.ended["red_light"].tolist(), strict=True):
            seen.append(ran)
            if ran:
                assert before[0][place] < 2.0
                assert before[1][place] == 1.0
    assert 0.05 < sum(seen) / len(seen) < 0.95


def test_beginnings_are_as_they_were_prepared_and_used_once():
    env = DriveEnv(replace(PLAIN, num_envs=20, start_lateral_m=0.0, start_heading_rad=0.0), seed=3)
    env.reset()
    assert torch.allclose(env.scene.place.s_m, torch.full((20,), BEHIND_M), atol=1e-3)
    starts = env.scene.starts
    rows = starts.take(7)
    pose = starts.start.pose[rows].clone()
    again = starts.take(1000)
    assert not set(rows.tolist()) & set(again.tolist()) or not torch.equal(starts.start.pose[rows], pose)
    # Nobody begins on top of anybody.
    env.step(torch.zeros(20, 2))
    assert not env.ended["vehicle"].any()


def test_a_training_among_others_goes_on_exactly_where_it_was():
    cfg = replace(PLAIN, traffic=TrafficCfg(slots=4), noise=DriveCfg().noise, history=3, episode_s=4.0)
    first, second = DriveEnv(cfg, seed=1), DriveEnv(cfg, seed=2)
    for _ in range(30):
        first.step(keep_on(first, None))
    second.restore_training_state(first.training_state())
    for _ in range(60):
        ours, theirs = first.step(keep_on(first, None)), second.step(keep_on(second, None))
        assert torch.equal(ours.obs["state"], theirs.obs["state"])
        assert torch.equal(ours.obs["critic"], theirs.obs["critic"])
        assert torch.equal(ours.reward, theirs.reward)


SCAN = LidarLayout(9, -0.9, 0.9, 25.0, pos_x_in_base_m=1.0)


def first_box(origin, direction, boxes, step_m=0.02):
    """Distance (n,) to the first box, found by walking along the ray; inf where there is none within the range."""
    along = np.arange(0.0, SCAN.range_max_m, step_m)
    points = origin + along[:, None] * direction
    inside = np.zeros(len(along), bool)
    for x, y, yaw, length, width in boxes:
        gap = points - (x, y)
        ahead, left = gap @ (np.cos(yaw), np.sin(yaw)), gap @ (-np.sin(yaw), np.cos(yaw))
        inside |= (np.abs(ahead) <= 0.5 * length) & (np.abs(left) <= 0.5 * width)
    return along[np.argmax(inside)] if inside.any() else np.inf


def test_a_scan_sees_the_nearest_of_the_others_in_each_share_of_its_angles():
    """Against walking along the rays in small steps; four of them in the share of a beam."""
    env = DriveEnv(replace(PLAIN, traffic=TrafficCfg(slots=6), lidar=SCAN), seed=1)
    for _ in range(10):
        env.step(keep_on(env, None))
    ranges = env.scene.surroundings().scan_ranges_m
    assert ranges.shape == (6, 9)
    assert (ranges < SCAN.range_max_m).sum() >= 5
    share = (SCAN.angle_max_rad - SCAN.angle_min_rad) / SCAN.beams
    for car, (x, y, yaw) in enumerate(env.cars.pose.tolist()):
        objects = env.scene.traffic.objects[car].numpy()
        boxes = objects[objects[:, 6] > 0.5][:, [0, 1, 2, 4, 5]]
        origin = np.array([x + np.cos(yaw), y + np.sin(yaw)])
        for beam in range(SCAN.beams):
            angles = yaw + SCAN.angle_min_rad + share * (beam + (np.arange(4) + 0.5) / 4)
            found = min(first_box(origin, np.array([np.cos(a), np.sin(a)]), boxes) for a in angles)
            assert ranges[car, beam].item() == pytest.approx(min(found, SCAN.range_max_m), abs=0.03)


def test_a_policy_that_asks_for_a_scan_sees_it_last_as_shares_of_its_range():
    env = DriveEnv(replace(PLAIN, num_envs=2, lidar=SCAN), seed=1)
    term = env.contract.observations[-1]
    assert (term.name, term.size, env.contract.body.lidar) == ("lidar", 9, SCAN)
    expected = env.scene.surroundings().scan_ranges_m / SCAN.range_max_m
    torch.testing.assert_close(env.reset()["state"][:, -9:], expected)
    with pytest.raises(GantryError, match=r"env\.lidar sees other road users alone"):
        replace(PLAIN, traffic=None, lidar=SCAN)
