"""Races between walls: what is seen on a ring by hand, what counts as a lap, what ends a race, and what is scored."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.observations.builder import ObservationBuilder
from gantry_deploy.perception.road import RoadView, needs
from gantry_deploy.policy.golden import observation_labels, recorded_signals
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.bench.drivers import baseline, by_scan
from gantry_sim.driving.cfg import STEADY
from gantry_sim.driving.contract import track_contract
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import drive_episodes, held_out, record_drive, scores_of
from gantry_sim.driving.maps.bank import line_bank
from gantry_sim.driving.maps.lines import Line
from gantry_sim.driving.maps.tracks import TrackConfig
from gantry_sim.driving.scenes.scene import boxes_at
from gantry_sim.driving.scenes.track_scene import TrackScene
from gantry_sim.driving.sensors.boxes import corners
from gantry_sim.driving.track_cfg import RaceCfg
from gantry_sim.driving.vehicle.cars import BatchedCars, CarsCfg
from gantry_sim.tasks.registry import find_task, from_flat

RADIUS, INNER, OUTER = 5.0, 4.0, 6.0
PLAIN = RaceCfg(num_envs=4, map_count=2, laps=1, tracks=TrackConfig(length_m=(40.0, 41.0), corners=(8, 9)), noise=None)
LIDAR = PLAIN.lidar


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def ring():
    """A circle about the origin, driven to the left, 2 m wide."""
    angle = np.linspace(0.0, 2.0 * math.pi, 721)
    table = np.zeros((721, 10))
    table[:, 0], table[:, 1], table[:, 2] = RADIUS * np.cos(angle), RADIUS * np.sin(angle), angle + 0.5 * math.pi
    table[:, 3], table[:, [4, 5, 8, 9]], table[:, 6] = 1.0 / RADIUS, 1.0, 20.0
    return line_bank([Line(table, closed=True)], spacing_m=None)


def scene_on_ring(count, **changes):
    """Cars on the ring, put there at their angles; and how to put them elsewhere."""
    cfg = replace(PLAIN, num_envs=count, start_lateral_m=0.0, start_heading_rad=0.0, **changes)
    cars = BatchedCars(cfg.driver, count, CarsCfg(cfg.model, dt_s=cfg.dt_s, substeps=cfg.substeps))
    scene = TrackScene(cfg, cars, "cpu", torch.Generator().manual_seed(0), ring())
    every = torch.arange(count)
    pose, speed = scene.begin(every)
    cars.reset(every, pose, speed)
    scene.started(every)
    begin = torch.atan2(pose[:, 1], pose[:, 0])

    def put(angle, radius=RADIUS, turn=0.0):
        """So far round from where they began, at that distance from the ring's centre."""
        at = begin + torch.as_tensor(angle, dtype=torch.float32)
        radius = torch.as_tensor(radius, dtype=torch.float32).expand(count)
        yaw = at + 0.5 * math.pi + torch.as_tensor(turn, dtype=torch.float32)
        cars.reset(every, torch.stack((radius * torch.cos(at), radius * torch.sin(at), yaw), dim=1), torch.zeros(count))
        return scene.moved(torch.zeros(count))

    return scene, put


def test_the_scan_on_a_ring_is_known():
    scene, put = scene_on_ring(1, lidar=replace(LIDAR, pos_x_in_base_m=0.0))
    edge = np.linspace(LIDAR.angle_min_rad, LIDAR.angle_max_rad, LIDAR.beams + 1)
    sine = RADIUS * np.sin(edge)
    # Where a ray of that angle leaves the outer circle, and where it meets the inner one, if it does.
    outer = sine + np.sqrt(sine**2 + OUTER**2 - RADIUS**2)
    squared = sine**2 + INNER**2 - RADIUS**2
    inner = np.where((squared > 0.0) & (sine > 0.0), sine - np.sqrt(np.maximum(squared, 0.0)), np.inf)
    exact = np.minimum(np.minimum(inner, outer), LIDAR.range_max_m)
    found = scene.surroundings().scan_ranges_m[0].numpy()
    np.testing.assert_allclose(found, np.minimum(exact[:-1], exact[1:]), atol=5e-3)
    # To the right the outer wall is a metre away, to the left the inner one.
    middle = 0.5 * (edge[:-1] + edge[1:])
    for side in (-0.5 * math.pi, 0.5 * math.pi):
        assert found[np.abs(middle - side).argmin()] == pytest.approx(1.0, abs=0.01)
    # Nearer to the outer wall by half a metre.
    put([0.0], RADIUS + 0.5)
    assert scene.surroundings().scan_ranges_m[0].numpy()[np.abs(middle + 0.5 * math.pi).argmin()] == pytest.approx(
        0.5, abs=0.01
    )


def test_laps_count_and_nothing_is_earned_backwards_or_twice():
    scene, put = scene_on_ring(1, laps=2)
    turns = 2.0 * math.pi / 100
    earned, times = 0.0, []
    for step in range(1, 51):
        earned += float(put([turns * step]).progress[0])
    assert earned == pytest.approx(25.0, abs=0.01)
    for step in (49, 48, 47, 48, 49, 50):
        assert float(put([turns * step]).progress[0]) == 0.0
    for step in range(51, 201):
        outcome = put([turns * step])
        earned += float(outcome.progress[0])
        times.append(float(scene.best_lap_s[0]))
        assert bool(outcome.ends["finished"][0]) == (step == 200)
    assert earned == pytest.approx(100.0, abs=1e-3)
    seen = {name: float(value[0]) for name, value in scene.summary(torch.tensor([0])).items()}
    assert (seen["completion"], seen["laps"]) == (1.0, pytest.approx(2.0))
    assert seen["driven_m"] == pytest.approx(4.0 * math.pi * RADIUS, rel=1e-4)
    # The first lap took 106 decisions, with three there and back, and the second one 100; 20 in a second.
    assert times[48] == math.inf
    assert times[51] == pytest.approx(5.3, abs=0.06)
    assert seen["best_lap_s"] == pytest.approx(5.0, abs=0.06)
    assert seen["lap_time_s"] == pytest.approx(5.15, abs=0.03)


def test_walls_end_a_race_even_between_the_corners_of_a_car():
    spec = PLAIN.driver
    ahead, half = spec.center_x_in_base_m + 0.5 * spec.length_m, 0.5 * spec.width_m
    # Outside the front corner touches first, inside the side next to the axle.
    outside, inside = math.sqrt(OUTER**2 - ahead**2) - half, INNER + half
    scene, put = scene_on_ring(4)
    touched = put([0.0] * 4, [outside - 0.01, outside + 0.01, inside + 0.001, inside - 0.001]).ends["static"]
    assert touched.tolist() == [False, True, False, True]
    boxes = boxes_at(scene.cars.pose, spec)[3:]
    assert torch.linalg.vector_norm(corners(boxes), dim=-1).min() > INNER


def test_a_car_that_has_turned_round_has_ended():
    _, put = scene_on_ring(3)
    ends = put([0.0] * 3, turn=[1.5, 1.6, -1.6]).ends
    assert ends["wrong_way"].tolist() == [False, True, True]


def test_races_are_scored_on_tracks_that_no_training_has_seen():
    env = DriveEnv(held_out(PLAIN, num_envs=3))
    assert env.scene.tracks.digest != DriveEnv(PLAIN).scene.tracks.digest
    found = drive_episodes(env, baseline(STEADY, env, 1))
    scores = scores_of(found)
    assert scores["ends"] == {"finished": 1.0, "wrong_way": 0.0, "static": 0.0, "blocked": 0.0}
    assert scores["completion_percent"]["mean"] == scores["driving_score"]["mean"] == 100.0
    assert (scores["laps"]["mean"], scores["crashes_per_km"]) == (pytest.approx(1.0), 0.0)
    # At two metres a second, but for the start.
    lengths = found["driven_m"] / found["laps"]
    np.testing.assert_allclose(found["lap_time_s"], lengths / 2.0, rtol=0.05)
    np.testing.assert_allclose(found["lap_time_s"], found["duration_s"], atol=0.06)
    finer = held_out(PLAIN, num_envs=3, full_model=True)
    assert (finer.model, finer.substeps, finer.map_split) == ("single-track-grip", 16, "test")


def test_whoever_sees_the_scan_alone_gets_round_and_whoever_does_not_look_hits_a_wall():
    told = replace(PLAIN, noise=RaceCfg().noise, blocked_s=3.0)
    scores = scores_of(drive_episodes(DriveEnv(told, seed=1), by_scan))
    assert scores["ends"]["finished"] == 1.0
    env = DriveEnv(told, seed=1)
    blind = torch.tensor([0.0, 0.5]).expand(4, 2)
    found = drive_episodes(env, lambda env, obs: blind)
    assert scores_of(found)["ends"]["static"] == 1.0
    assert scores_of(found)["crashes_per_km"] == pytest.approx(4.0 / (found["driven_m"].sum() / 1000.0))
    assert (found["lap_time_s"] == 0.0).all()
    assert "lap_time_s" not in scores_of(found)


def test_a_training_goes_on_exactly_where_it_was():
    first, second = (DriveEnv(replace(PLAIN, noise=RaceCfg().noise, episode_s=5.0), seed=seed) for seed in (1, 2))
    for _ in range(15):
        first.step(by_scan(first, None))
    second.restore_training_state(first.training_state())
    # Long enough for some to begin anew.
    for _ in range(90):
        action = by_scan(first, None)
        ours, theirs = first.step(action), second.step(action)
        assert torch.equal(ours.obs["state"], theirs.obs["state"])
        assert torch.equal(ours.obs["critic"], theirs.obs["critic"])
        assert torch.equal(ours.reward, theirs.reward)


def test_scans_have_errors_and_the_critic_sees_what_the_actor_sees_and_more():
    env = DriveEnv(replace(PLAIN, num_envs=64, noise=replace(RaceCfg().noise, scan_m=0.05, scan_dropout=0.1)))
    told, exact = env.signals.surroundings.scan_ranges_m, env.exact_signals().surroundings.scan_ranges_m
    near = exact < 0.9 * LIDAR.range_max_m
    lost = near & (told == LIDAR.range_max_m)
    assert float(lost.sum() / near.sum()) == pytest.approx(0.1, abs=0.02)
    assert float((told - exact)[near & ~lost].std()) == pytest.approx(0.05, abs=0.005)
    seen = env.observe()
    own = track_contract(env.cfg).observation_size
    assert torch.equal(seen["critic"][:, :own], seen["state"])
    torch.testing.assert_close(seen["state"][:, own - 108 : own] * LIDAR.range_max_m, told)
    assert seen["critic"].shape[1] > own


def test_a_runtime_asks_a_racer_for_its_scan_alone_and_a_robot_of_it_sees_what_training_saw():
    contract = track_contract(PLAIN)
    assert needs(contract) == ("scan",)
    assert needs(track_contract(replace(PLAIN, lookahead_m=(1.0, 2.0)))) == ("route", "scan")
    view, robot = RoadView(contract), MockRobot(robot_spec(PLAIN.robot))
    robot.connect()
    assert "scan" in view.missing(0.0, 0.3)
    # A scanner of ten times as many beams.
    view.set_scan(np.linspace(0.05, 10.75, 1080), LIDAR.angle_min_rad, 4.7 / 1080, 0.0)
    seen = view.newest(robot.read(), 0.0, 0.3)
    assert set(seen.given()) == {"scan_ranges_m"}
    assert seen.scan_ranges_m.shape == (1, 108)
    assert (np.diff(seen.scan_ranges_m) >= 0.0).all()


@pytest.mark.parametrize("lookahead_m", [(), (0.5, 2.0, 6.0)])
def test_what_training_records_is_what_the_runtime_sees(lookahead_m):
    cfg = replace(PLAIN, noise=RaceCfg().noise, lookahead_m=lookahead_m)
    contract = track_contract(cfg)
    straight = torch.tensor([[0.1, 0.2]])
    policy = from_flat(lambda obs: straight.expand(len(obs), 2))
    golden = record_drive(find_task("drive-race"), cfg, policy, seed=3, steps=60)
    assert ("around/route_points_in_world_m" in golden) == bool(lookahead_m)
    builder = ObservationBuilder(contract, np.zeros((1, 1), dtype=np.float32))
    found = []
    for row in range(120):
        if golden["episode_start"][row]:
            builder.reset()
        found.append(builder(recorded_signals(contract, golden, row))[0])
    assert golden["episode_start"][:120].sum() > 2
    labels = observation_labels(contract)
    worst = np.abs(np.array(found) - golden["observation"][:120]).max(axis=0)
    assert worst.max() < 1e-5, labels[int(worst.argmax())]


def test_what_makes_no_sense_is_refused():
    for change, message in (
        ({"laps": 0}, "laps is 0"),
        ({"start_lateral_m": 1.2}, "start_lateral_m is 1.2"),
        ({"start_speed_m_s": -1.0}, "start_speed_m_s is -1.0"),
        ({"robot": "f1tent"}, "Did you mean"),
    ):
        with pytest.raises(GantryError, match=message):
            replace(PLAIN, **change)
