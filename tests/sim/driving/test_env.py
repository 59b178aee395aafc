"""The batched driving environment: what ends, what is earned, what is told apart, and going on exactly."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.comfort import WINDOW, Comfort, ComfortLimits, fit_weights
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import drive_episodes, held_out, scores_of
from gantry_sim.driving.maps.generate import MapConfig
from gantry_sim.driving.reward import COMFORT

ROADS = MapConfig(blocks={"straight": 1.0, "arc": 1.0}, count=(2, 3), lanes=(1,), min_route_m=130.0)
PLAIN = DriveCfg(num_envs=4, maps=ROADS, map_count=2, routes_per_map=2, route_m=120.0, noise=None)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def pursue(env, share=0.4, point_m=10.0):
    """Pure pursuit of a point ahead, at a share of the speed limit, from what the actor sees."""
    drive, around = env.contract.body, env.exact_signals().surroundings
    place = env.cars.pose
    gap = around.route_points_in_world_m - place[:, None, :2]
    cos, sin = torch.cos(place[:, 2:]), torch.sin(place[:, 2:])
    x, y = cos * gap[..., 0] + sin * gap[..., 1], cos * gap[..., 1] - sin * gap[..., 0]
    ahead = (((x**2 + y**2).sqrt() - point_m).abs() + 100.0 * (x < 0)).argmin(dim=1, keepdim=True)
    x, y = x.gather(1, ahead)[:, 0], y.gather(1, ahead)[:, 0]
    steering = torch.atan(2.0 * drive.wheelbase_m * y / (x**2 + y**2)) / drive.steering_limit_rad
    wanted = share * env.scene.place.speed_limit_m_s
    return torch.stack((steering, (0.5 * (wanted - env.cars.speed_m_s)).clamp(-1.0, 1.0)), dim=1)


@pytest.mark.parametrize("order", [1, 2])
def test_a_fit_finds_slopes_exactly(order):
    times = 0.1 * np.arange(1 - 9, 1)
    values = 2.0 + 3.0 * times + (order == 2) * 5.0 * times**2
    assert fit_weights(9, order, 0, 0.1) @ values == pytest.approx(2.0)
    assert fit_weights(9, order, 1, 0.1) @ values == pytest.approx(3.0)


def test_what_passengers_feel_by_hand():
    comfort = Comfort(ComfortLimits(), 3, 0.1)
    for step in range(WINDOW):
        # Steady braking at 5 m/s2; a jerk of 6 m/s3 to the left up to 8.4 m/s2; and nothing.
        accel = torch.tensor([[-5.0, 0.0], [0.0, 0.6 * step], [0.0, 0.0]])
        felt = comfort(accel, torch.zeros(3))
    names = [[name for name, hit in zip(COMFORT, row, strict=True) if hit] for row in felt.tolist()]
    assert names == [["lon_acc"], ["lat_acc"], []]
    comfort.reset(torch.tensor([0]))
    assert not comfort(torch.zeros(3, 2), torch.zeros(3))[0].any()


def test_a_careful_driver_reaches_the_end_and_a_route_is_worth_at_most_a_hundred():
    env = DriveEnv(replace(PLAIN, randomization=type(PLAIN.randomization)()), seed=3)
    earned, total, alive = torch.zeros(4), [], torch.ones(4, dtype=torch.bool)
    env.reset()
    while bool(alive.any()):
        step = env.step(pursue(env))
        reward, done = step.reward, step.terminated | step.truncated
        earned += reward * alive
        assert not step.truncated.any()
        total += [env.ended["finished"].all().item()]
        alive &= done == 0
    assert all(total)
    assert (earned > 60.0).all()
    assert (earned <= 100.0 + 1e-3).all()


def test_episodes_end_by_leaving_the_road_standing_still_or_running_out_of_time():
    env = DriveEnv(replace(PLAIN, blocked_s=2.0, episode_s=20.0))

    def act(env, obs):
        straight = torch.zeros(4, 2)
        straight[0] = torch.tensor([1.0, 0.3])  # off the road
        straight[1, 1] = -1.0  # stands
        return straight

    found = drive_episodes(env, act)
    assert found["off_road"].tolist()[0] == 1.0
    assert found["blocked"].tolist()[1] == 1.0
    assert found["finished"][:2].sum() == 0.0
    slow = DriveEnv(replace(PLAIN, episode_s=3.0))
    slow.reset()
    for number in range(30):
        step = slow.step(pursue(slow))
        assert step.truncated.tolist() == [number == 29] * 4
        assert not step.terminated.any()


def test_leaving_the_road_costs_the_hint():
    env = DriveEnv(replace(PLAIN, reward=replace(PLAIN.reward, infraction_hint=7.0)))
    env.reset()
    off = torch.tensor([[1.0, 0.3]]).repeat(4, 1)
    for _ in range(100):
        step = env.step(off)
        reward, done = step.reward, step.terminated | step.truncated
        if done.any():
            break
    assert done.any()
    assert env.ended["off_road"].tolist() == [1.0] * len(env.ended["off_road"])
    assert (reward[done == 1] < -6.0).all()
    assert (reward[done == 0] >= 0.0).all()


def test_nothing_is_earned_twice():
    env = DriveEnv(PLAIN)
    env.reset()
    for _ in range(10):
        env.step(pursue(env))
    driven = env.scene.driven_m.clone()
    assert (driven > 1.0).all()
    pose = env.cars.pose.clone()
    pose[:, :2] -= 5.0 * torch.stack((torch.cos(pose[:, 2]), torch.sin(pose[:, 2])), dim=1)
    env.cars.reset(torch.arange(4), pose, torch.full((4,), 5.0))
    reward = env.step(pursue(env)).reward
    assert (reward <= 0.0).all()
    assert torch.equal(env.scene.driven_m, driven)


def test_a_training_goes_on_exactly_where_it_was():
    first, second = (DriveEnv(replace(PLAIN, noise=DriveCfg().noise), seed=seed) for seed in (1, 2))
    for _ in range(12):
        first.step(pursue(first))
    second.restore_training_state(first.training_state())
    for _ in range(12):
        ours, theirs = first.step(pursue(first)), second.step(pursue(second))
        assert torch.equal(ours.obs["state"], theirs.obs["state"])
        assert torch.equal(ours.obs["critic"], theirs.obs["critic"])
        assert torch.equal(ours.reward, theirs.reward)


def test_maps_to_be_scored_on_are_none_of_the_training():
    scored = held_out(PLAIN, num_envs=3, full_model=True)
    assert (scored.map_split, scored.num_envs, scored.model) == ("test", 3, "single-track-grip")
    env = DriveEnv(replace(scored, map_count=2))
    assert env.scene.routes.digest != DriveEnv(PLAIN).scene.routes.digest
    scores = scores_of(drive_episodes(env, lambda env, obs: pursue(env)))
    assert scores["episodes"] == 3
    assert scores["driving_score"]["mean"] <= scores["completion_percent"]["mean"]


def test_what_makes_no_sense_is_refused():
    for change, message in (
        ({"robot": "bmw"}, "bmw_320i"),
        ({"model": "kinematics"}, "Did you mean 'kinematic'"),
        ({"map_split": "tests"}, "Did you mean 'test'"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"episode_s": 0.0}, "episode_s is 0.0"),
        ({"lookahead_m": ()}, "lookahead_m is empty"),
    ):
        with pytest.raises(GantryError, match=message):
            replace(PLAIN, **change)
