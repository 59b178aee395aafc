"""Parking: when a car has arrived, what coming nearer is worth, where episodes begin, and what the scan shows."""

import math
from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import drive_episodes, held_out, scores_of
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.scenes.lot_starts import driven_out, free, goal_pose, in_aisle
from gantry_sim.driving.scenes.scene import boxes_at
from gantry_sim.driving.sensors.boxes import clearance
from gantry_sim.driving.vehicle.actuation import CarRandomization

PLAIN = ParkCfg(num_envs=6, map_count=8, noise=None, randomization=CarRandomization(), near_share=0.0)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def put(env, ahead_m=0.0, left_m=0.0, turn_rad=0.0, speed_m_s=0.0):
    """All cars at the same place beside their goals, with the way to go measured from there."""
    goal = env.scene.goal
    cos, sin = torch.cos(goal[:, 2]), torch.sin(goal[:, 2])
    shift = torch.stack((cos * ahead_m - sin * left_m, sin * ahead_m + cos * left_m), dim=1)
    pose = torch.cat((goal[:, :2] + shift, goal[:, 2:] + turn_rad), dim=1)
    every = torch.arange(env.num_envs)
    env.cars.reset(every, pose, torch.full((env.num_envs,), speed_m_s))
    env.scene.started(every)


@pytest.mark.parametrize(
    ("place", "arrives"),
    [
        ({}, True),
        ({"ahead_m": 0.2}, True),
        ({"ahead_m": 0.3}, False),
        ({"left_m": -0.2}, True),
        ({"turn_rad": math.radians(4.5)}, True),
        ({"turn_rad": math.radians(6.0)}, False),
        ({"speed_m_s": 0.6}, False),
    ],
)
def test_a_car_has_arrived_when_it_stands_in_the_slot_straight(place, arrives):
    env = DriveEnv(PLAIN, seed=2)
    env.reset()
    put(env, **place)
    env.step(torch.zeros(6, 2))
    assert env.ended["finished"].tolist() == ([True] * 6 if arrives else [])


def test_coming_nearer_is_worth_what_going_away_costs():
    env = DriveEnv(PLAIN, seed=3)
    env.reset()
    put(env, ahead_m=0.5)
    drive = torch.zeros(6, 2)
    total, away = torch.zeros(6), env.scene.distance_to_go_m.clone()
    for accel in (-1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0):
        drive[:, 1] = accel
        step = env.step(drive)
        reward, done = step.reward, step.terminated | step.truncated
        assert not done.any()
        total += reward
    earned = (100.0 - env.cfg.arrival_percent) * (away - env.scene.distance_to_go_m) / env.cfg.whole_way_m
    assert torch.allclose(total, earned, atol=1e-4)
    assert (env.scene.driven_m > 0.0).all()


def test_drives_out_of_the_slot_lead_to_free_places_of_all_distances():
    env = DriveEnv(PLAIN)
    bank, spec, draw = env.scene.lots, env.scene.spec, torch.Generator().manual_seed(5)
    lot = torch.arange(8).repeat(16)
    pose, driven = driven_out(bank, lot, spec, PLAIN, draw)
    assert free(bank, lot, pose, spec, margin_m=0.0).all()
    apart = torch.linalg.vector_norm(pose[:, :2] - goal_pose(bank, lot, spec)[:, :2], dim=1)
    assert (apart <= driven + 1e-3).all()
    assert apart.min() < 1.0
    assert apart.max() > 5.0
    aisle = in_aisle(bank, lot, spec, draw)
    assert free(bank, lot, aisle, spec).all()


def test_the_scan_shows_what_is_nearest_and_touching_it_ends_the_episode():
    env = DriveEnv(replace(PLAIN, num_envs=32), seed=4)
    env.reset()
    drive = torch.zeros(32, 2)
    drive[:, 1] = 1.0
    touched = 0
    for _ in range(80):
        scan = env.exact_signals().surroundings.scan_ranges_m
        lots, box = env.scene.lots, boxes_at(env.cars.pose, env.scene.spec)
        gap = clearance(box, lots.boxes[env.scene.lot], lots.taken[env.scene.lot]).amin(dim=1)
        # The scanner sits in the middle: nothing is nearer than half the width, nor farther than a corner can be.
        spec = env.scene.spec
        assert (scan.amin(dim=1) >= 0.49 * spec.width_m).all()
        assert (scan.amin(dim=1) <= gap + 0.5 * math.hypot(spec.length_m, spec.width_m) + 0.3)[gap < 8.0].all()
        env.step(drive)
        touched += int(env.ended["static"].sum())
    assert touched >= 20


def test_a_training_goes_on_exactly_where_it_was():
    cfg = replace(PLAIN, near_share=0.5, noise=ParkCfg().noise, episode_s=2.0)
    first, second = DriveEnv(cfg, seed=1), DriveEnv(cfg, seed=2)
    draw = torch.Generator().manual_seed(1)
    for _ in range(15):
        first.step(2.0 * torch.rand(6, 2, generator=draw) - 1.0)
    second.restore_training_state(first.training_state())
    for _ in range(30):
        action = 2.0 * torch.rand(6, 2, generator=draw) - 1.0
        ours, theirs = first.step(action), second.step(action)
        assert torch.equal(ours.obs["state"], theirs.obs["state"])
        assert torch.equal(ours.reward, theirs.reward)


def test_scores_are_of_other_lots_and_of_whole_drives():
    cfg = held_out(PLAIN, num_envs=4, episode_s=3.0)
    assert (cfg.map_split, cfg.near_share) == ("test", 0.0)
    scores = scores_of(drive_episodes(DriveEnv(cfg), lambda env, obs: torch.zeros(4, 2)))
    assert scores["ends"]["finished"] == 0.0
    assert scores["position_error_m"] > 0.25
    assert 0.0 <= scores["heading_error_rad"] <= math.pi


def test_what_makes_no_sense_is_refused():
    for change, message in (
        ({"near_share": 1.5}, "near_share is 1.5"),
        ({"position_m": 0.0}, "position_m is 0.0"),
        ({"near_m": (3.0, 1.0)}, "near_m is"),
        ({"arrival_percent": 101.0}, "arrival_percent is 101.0"),
    ):
        with pytest.raises(GantryError, match=message):
            replace(PLAIN, **change)
