"""Films of cars: what is where in a picture, what is written down of an episode, who drives, and which one is shown."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.cli.main import main
from gantry_deploy.dataset.video import video_facts
from gantry_deploy.report import encode_mp4
from gantry_fixtures.drive import drive_bundle
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.cars import car_spec
from gantry_sim.cli import play_car
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.film.canvas import Camera, Canvas, frame
from gantry_sim.driving.film.film import HOLD_S, choose, how_they_ended, score_of, show
from gantry_sim.driving.film.overview import MARKS, where_it_went_wrong
from gantry_sim.driving.film.panel import WIDTH_PX
from gantry_sim.driving.film.playing import RunnerDriver
from gantry_sim.driving.film.scenery import GROUND, LIGHTS, ROAD, SLOT, WALL, scenery_of
from gantry_sim.driving.film.view import EGO, EGO_HIT, KINDS, Look, View
from gantry_sim.driving.film.watched import TIME_UP, Episode, WatchedEnv
from gantry_sim.driving.maps.generate import MapConfig
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.sensors.boxes import hits_segments, overlap
from gantry_sim.driving.track_cfg import RaceCfg
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg
from gantry_sim.driving.vehicle.actuation import CarRandomization

ROADS = MapConfig(blocks={"straight": 1.0, "arc": 1.0}, count=(2, 3), lanes=(1,), min_route_m=130.0)
LANE = DriveCfg(num_envs=2, maps=ROADS, map_count=1, routes_per_map=2, route_m=120.0, episode_s=3.0)
TOWN = replace(LANE, maps=MapConfig(blocks={"x": 1.0}, count=(2, 2), min_route_m=130.0), traffic=TrafficCfg())
LOT = ParkCfg(num_envs=3, map_count=4, noise=None, randomization=CarRandomization(), near_share=0.0, episode_s=20.0)
NORTH = Look((240, 240), up="north", height_m=40.0)
TINY = (
    *("env.num_envs=4", "env.map_count=1", "env.routes_per_map=2", "env.route_m=60.0", "env.maps.min_route_m=80.0"),
    *("env.episode_s=2.0", "learner.steps_per_env=16", "learner.hidden=[8]", "learner.critic_hidden=[8]"),
)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def driven(cfg, actions, steps, seed=0):
    """An environment in which all cars have done the same."""
    env = WatchedEnv(cfg, seed=seed)
    env.reset()
    for _ in range(steps):
        env.step(torch.tensor([actions] * env.num_envs))
    return env


def colour(picture, camera, place):
    """Of the pixel that shows a place in the world."""
    column, row = np.floor(camera.pixels(np.array(place))).astype(int)
    return tuple(picture[row, column].tolist())


def test_a_camera_shows_places_where_they_are():
    north = Camera((10.0, 20.0), 0.5 * math.pi, 4.0, (200, 100))
    assert north.pixels(np.array([[10.0, 20.0], [15.0, 20.0], [10.0, 25.0]])).round(6).tolist() == [
        [100.0, 50.0],
        [120.0, 50.0],
        [100.0, 30.0],
    ]
    # West is up, and the place is at a quarter of the height from below.
    west = Camera((10.0, 20.0), math.pi, 4.0, (200, 100), (0.5, 0.75))
    assert west.pixels(np.array([[5.0, 20.0], [10.0, 25.0]])).round(6).tolist() == [[100.0, 55.0], [120.0, 75.0]]
    assert west.reach_m == pytest.approx(math.hypot(100.0, 75.0) / 4.0)
    canvas = Canvas(north, GROUND)
    canvas.polygon(np.array([[10.0, 20.0], [20.0, 20.0], [20.0, 25.0], [10.0, 25.0]]), ROAD)
    picture = frame(canvas.picture())
    assert picture.shape == (100, 200, 3)
    assert colour(picture, north, (15.0, 22.0)) == ROAD
    assert colour(picture, north, (15.0, 18.0)) == GROUND


def test_the_car_is_in_the_middle_and_others_are_where_they_are():
    env = driven(TOWN, (0.0, 0.0), 3)
    episode = env.episode(0)
    seen = dict(episode.seen)
    # Somebody of each kind beside the car, wherever traffic was.
    x, y = (float(value) for value in seen["pose"][-1][:2])
    places = [(x + 8.0, y + 10.0), (x - 8.0, y + 12.0), (x + 2.0, y - 12.0)]
    others = np.zeros_like(seen["objects"])
    for row, place in enumerate(places):
        others[:, row] = [*place, 0.3, 0.0, 4.0, 2.0, 1.0]
    seen["objects"], seen["kinds"] = others, np.tile(np.arange(others.shape[1]) % 3, (len(others), 1))
    view = View(replace(episode, seen=seen), scenery_of(env.scene, episode.place), env.cfg.driver, look=NORTH)
    picture, camera = frame(view.draw(3)), view.camera(3)
    assert tuple(picture[120, 120].tolist()) == EGO
    assert camera.pixels(view.own_box(3)[:2]).round(6).tolist() == [120.0, 120.0]
    for kind, place in enumerate(places[:2]):
        assert colour(picture, camera, place) == KINDS[kind]
    thing = np.array(places[2]) + 1.6 * np.array([math.cos(0.3), math.sin(0.3)])
    assert colour(picture, camera, thing) == KINDS[2]
    wrecked = replace(episode, seen=seen, ended="vehicle")
    view = View(wrecked, view.scenery, env.cfg.driver, look=NORTH)
    assert tuple(frame(view.draw(3))[120, 120].tolist()) == EGO_HIT
    assert tuple(frame(view.draw(2))[120, 120].tolist()) == EGO


def test_stop_lines_have_the_colour_of_their_light():
    env = WatchedEnv(TOWN, seed=1)
    env.reset()
    scenery = scenery_of(env.scene, int(env.scene.route[0]))
    lit = [(shape, junction, group) for shape, junction, group in scenery.stops if group >= 0]
    assert lit
    shape, junction, group = lit[0]
    middle = shape.places_m.mean(axis=0)
    camera = Camera(tuple(middle), 0.5 * math.pi, 8.0, (80, 80))
    for state, wanted in LIGHTS.items():
        lights = np.zeros((junction + 1, 8))
        lights[junction, group] = state
        canvas = Canvas(camera, GROUND)
        scenery.draw(canvas, lights)
        assert colour(frame(canvas.picture()), camera, middle) == wanted
    assert LIGHTS[1.0][0] > 200 > 2 * LIGHTS[1.0][1]


def test_the_last_moment_shows_the_crash_and_not_the_next_episode():
    env = driven(LOT, (0.0, 0.6), 60)
    lots = env.scene.lots
    for episode in env.episodes():
        assert episode.ended == "static"
        assert episode.seen["action"][-1].tolist() == pytest.approx([0.0, 0.6])
        view = View(episode, scenery_of(env.scene, episode.place), env.cfg.driver, lidar=env.contract.body.lidar)
        hits = []
        for index in (episode.steps - 1, episode.steps):
            box = torch.tensor(view.own_box(index), dtype=torch.float32)[None]
            row = torch.tensor([episode.place])
            touched = overlap(box, lots.boxes[row], lots.taken[row]).any() | hits_segments(box, lots.walls[row]).any()
            hits.append(bool(touched))
        assert hits == [False, True]
        # Each decision moves the car by its speed.
        moved = np.hypot(*np.diff(episode.seen["pose"][:, :2], axis=0).T)
        assert moved[-1] == pytest.approx(0.1 * episode.seen["speed_m_s"][-1], abs=0.02)
        assert episode.result["duration_s"] == pytest.approx(0.1 * episode.steps)


def test_lots_show_their_slot_and_walls():
    env = WatchedEnv(LOT, seed=2)
    env.reset()
    episode = env.episode(0)
    view = View(episode, scenery_of(env.scene, episode.place), env.cfg.driver, lidar=env.contract.body.lidar)
    picture, camera = frame(view.draw(0)), view.camera(0)
    x, y, yaw, length, _ = view.scenery.slot
    assert colour(picture, camera, (x + 0.1 * length * math.cos(yaw), y + 0.1 * length * math.sin(yaw))) == SLOT
    wall = env.scene.lots.walls[episode.place][0].view(2, 2).mean(dim=0).numpy()
    near = [
        colour(picture, camera, wall + shift) for shift in 0.1 * np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]])
    ]
    assert WALL in near


def test_tracks_are_drawn_with_their_scan():
    cfg = RaceCfg(num_envs=1, map_count=1, episode_s=2.0)
    env = driven(cfg, (0.0, 0.2), 2)
    shown = show(env, env.episode(0), "drive-race", "nobody", Look((200, 200)))
    with_scan = shown.view.draw(2)
    blind = {name: values for name, values in shown.episode.seen.items() if name != "scan"}
    without = View(replace(shown.episode, seen=blind), shown.view.scenery, env.cfg.driver, look=shown.view.look)
    assert (frame(with_scan) != frame(without.draw(2))).any(axis=-1).sum() > 100
    assert colour(frame(without.draw(2)), shown.view.camera(2), shown.view.own_box(2)[:2]) == EGO


def test_a_film_has_a_picture_for_every_moment_and_can_be_read(tmp_path):
    env = driven(LANE, (0.0, -1.0), 30)
    episode = env.episode(1)
    assert episode.ended == TIME_UP
    assert episode.steps == 30
    assert episode.seen["time_s"].tolist() == pytest.approx([0.1 * i for i in range(31)])
    assert np.isnan(episode.factors["lane"][0])
    assert not np.isnan(episode.factors["lane"][1:]).any()
    end = episode.cut(0.55, end=True)
    assert (end.steps, end.ended) == (5, TIME_UP)
    begin = episode.cut(0.55, end=False)
    assert (begin.steps, begin.ended, begin.seen["time_s"][0]) == (5, "", 0.0)
    shown = show(env, end, "drive-lane", "nobody", Look((160, 360)))
    assert shown.frames == 6 + HOLD_S * 10
    path = tmp_path / "film.mp4"
    shares = []
    path.write_bytes(encode_mp4(shown.pictures(shares.append), shown.rate_hz))
    times_s = video_facts(path).frame_times_s
    assert (len(times_s), times_s[-1]) == (shown.frames, pytest.approx(2.0))
    assert shares[-1] == 1.0
    assert shown.sheet(4).shape == (2 * 360, 2 * (160 + WIDTH_PX), 3)


def test_runners_see_what_the_training_sees(tmp_path):
    env = WatchedEnv(replace(TOWN, noise=DriveCfg().noise, history=3), seed=3)
    driver = RunnerDriver(drive_bundle(tmp_path / "bundle", env.contract), env.num_envs)
    obs = env.reset()
    for _ in range(6):
        action = driver(env, obs)
        assert driver.observation == pytest.approx(obs["state"].numpy(), abs=2e-3)
        obs = env.step(action).obs
    assert float(env.episode(0).seen["action"][-1].sum()) != 0.0
    other = car_spec("f1tenth")
    assert other.wheelbase_m < 1.0
    wrong = replace(env.contract, body=replace(env.contract.body, wheelbase_m=2.0))
    with pytest.raises(GantryError, match="wheelbase"):
        RunnerDriver(drive_bundle(tmp_path / "wrong", wrong), 1)


def made(car, ended, completion):
    seen = {"completion": np.array([0.0, completion]), "pose": np.zeros((2, 3)), "time_s": np.array([0.0, 0.1])}
    return Episode(car, 0, ended, seen, {}, {})


def test_which_episode_is_shown():
    found = [made(0, "finished", 1.0), made(1, "red_light", 0.5), made(2, "vehicle", 0.6), made(3, "vehicle", 0.9)]
    assert [score_of(one) for one in found] == pytest.approx([100.0, 35.0, 36.0, 54.0])
    assert [choose(found, which).car for which in ("first", "collision", "worst")] == [0, 2, 1]
    assert how_they_ended(found) == "2 hit a vehicle, 1 finished, 1 drove past a red light"
    with pytest.raises(GantryError, match=r"None of 2 episodes .* 1 finished, 1 drove past a red light.*--episodes"):
        choose(found[:2], "collision")
    with pytest.raises(UnknownNameError, match="colision"):
        choose(found, "colision")


def test_faults_are_marked_on_the_map():
    env = WatchedEnv(LANE, seed=4)
    env.reset()
    episodes = env.episodes()
    assert where_it_went_wrong(env.scene, [replace(one, ended="finished") for one in episodes]) is None
    marked = where_it_went_wrong(env.scene, [replace(episodes[0], ended="red_light"), *episodes[1:]])
    dots = (marked == MARKS["red_light"]).all(axis=-1)
    # The one on the map and the one in the legend.
    assert 40 <= dots[:420].sum() <= 80  # A disc with a radius of 5 pixels, less its outline.
    assert dots[420:].any()


def test_play_of_a_bundle_writes_film_stills_and_report(tmp_path, capsys):
    sets = [word for field in TINY for word in ("--set", field)]
    train = ["train", "drive-lane", "--steps", "64", "--episodes", "0", "--run-dir", "run"]
    assert main([*train, *sets]) == 0
    words = ["play", "run/bundle", "--episodes", "3", "--seconds", "0.5", "--json", "r.json"]
    assert main([*words, "--video", "a.mp4", "--stills", "a.png", "--report", "a.html", "--baselines"]) == 0
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["ends"].count("time_up") + told["ends"].count("off_road") == 3
    assert len(video_facts(tmp_path / "a.mp4").frame_times_s) == told["shown"]["frames"]
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "a.html").read_text()
    for text in (
        "carla-2.0",
        "driver by rules",
        "constant speed",
        "random",
        "red light</th>",
        "data:video/mp4",
        "time was up",
    ):
        assert text in page
    out = capsys.readouterr().out
    assert "3 episodes" in out
    # The same policy from a seed that it was trained with, and things that belong to others.
    for more, message in (
        ([], "--video FILE.mp4"),
        (["--video", "b.mp4", "--seed", "1"], "Seed 1 is the one"),
        (["--video", "b.mp4", "--command", "1,0,0"], "without --command"),
        (["--video", "b.mp4", "--baselines"], "--report FILE.html"),
        (["--stills", "b.png", "--episode", "collision", "--episodes", "2"], "ended with a collision"),
    ):
        assert main(["play", "run/bundle", *more]) == 2, more
        assert message in capsys.readouterr().err


def test_without_an_encoder_a_sheet_takes_the_films_place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(play_car, "ENCODER", "no_such_package")
    env = driven(LANE, (0.0, 0.0), 4)
    shown = show(env, env.episode(0), "drive-lane", "nobody", Look((160, 360)))
    assert play_car.put_film(shown, tmp_path / "a.mp4", None) == (None, tmp_path / "a.png")
    assert "no_such_package is missing" in capsys.readouterr().out
    assert play_car.put_film(shown, None, None) == (None, None)


def test_other_robots_are_not_played_as_cars(tmp_path, capsys):
    assert main(["play", "velocity-flat-go2", "--driver", "scripted", "--video", "a.mp4"]) == 2
    assert "drives no car" in capsys.readouterr().err
    assert main(["play", "drive-lane", "--video", "a.mp4"]) == 2
    assert "no run folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "driver", "others"),
    [("drive-lane", "scan", "scripted, steady, random"), ("drive-park", "steady", "scripted, random")],
)
def test_who_cannot_drive_on_a_task_is_refused(task, driver, others, capsys):
    assert main(["play", task, "--driver", driver, "--stills", "a.png"]) == 2
    assert f"Driver '{driver}' cannot drive here; expected policy or one of {others}." in capsys.readouterr().err
