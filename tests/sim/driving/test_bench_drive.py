"""``gantry bench drive``: what is refused, what is planned, who drives, and tiny real runs of all parts."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_hardware.errors import GantryError
from gantry_sim.driving.bench.drivers import BASELINES, RACERS, baseline, lane_width_m
from gantry_sim.driving.bench.scoring import scores
from gantry_sim.driving.bench.speed import COLLECTING, LEARNING, PARTS, sized
from gantry_sim.driving.bench.table import TableCfg, find_runs, run_table
from gantry_sim.driving.cfg import RANDOM, RULES, STEADY, DriveCfg
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import drive_episodes, held_out
from gantry_sim.driving.maps.generate import MapConfig
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.track_cfg import RaceCfg
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg, TrafficShares
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.run_folder import RunCfg, create_run

ROADS = MapConfig(blocks={"straight": 1.0, "arc": 1.0}, count=(2, 3), lanes=(1,), min_route_m=130.0)
PLAIN = DriveCfg(num_envs=8, maps=ROADS, map_count=2, routes_per_map=2, route_m=120.0)
TINY = (
    *("env.num_envs=4", "env.map_count=2", "env.routes_per_map=1", "env.route_m=60.0", "env.maps.min_route_m=80.0"),
    *("env.episode_s=2.0", "learner.steps_per_env=16", "learner.hidden=[8]", "learner.critic_hidden=[8]"),
)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def sets(changes):
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("table", "--tasks", "drive-lane,drive-lan", "--output", "t"), "Did you mean 'drive-lane'"),
        (("speed", "--tasks", "velocity-flat-go2"), "Unknown driving task 'velocity-flat-go2'"),
        (("speed", "--cars", "64,many"), "--cars 64,many: expected whole numbers"),
        (("speed", "--cars", "0"), "Nothing to measure"),
        (("speed", "--parts", "cor"), "Did you mean 'core'"),
        (("speed", "--car", "8"), "Unknown option of 'gantry bench drive speed' '--car'. Did you mean '--cars'"),
        (("table", "--seeds", "0,-1", "--output", "t"), "Seed -1 is out of range; expected 0 to 4294967295."),
        (("table", "--seeds", "1,10007", "--output", "t"), "Seed 10007 is held out for evaluation; take another."),
        (("table", "--set", "env.num_env=3", "--output", "t"), "Did you mean 'num_envs'"),
        (("table", "--seeds", "2,2", "--output", "t"), "The seeds are [2, 2], expected one or more, each once."),
        (("table", "--teacher", "scriptd", "--output", "t"), "'scriptd' is no run folder. Did you mean 'scripted'?"),
        (("table", "--episodes", "0", "--output", "t"), "0 episodes"),
        (("table", "--set", "learner.gama=1", "--output", "t"), "Did you mean 'gamma'"),
    ],
)
def test_mistakes_are_answered_before_anything_is_written(words, text, capsys, tmp_path):
    assert main(["bench", "drive", *words]) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_naming_the_bench_loads_no_learning_library():
    code = "import gantry_sim.driving.bench.command, sys; print([m for m in ('torch', 'mujoco') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_drivers_drive_as_well_as_they_can_on_roads():
    held = held_out(replace(PLAIN, episode_s=30.0), num_envs=8)
    found = {}
    for name in BASELINES:
        env = DriveEnv(held, seed=7)
        found[name] = drive_episodes(env, baseline(name, env, 1))
    for name in (RULES, STEADY):
        assert found[name]["completion"].min() > 0.99, name
        assert found[name]["lateral_rmse_m"].mean() < 0.25, name
    assert found[RANDOM]["completion"].mean() < 0.8
    assert found[STEADY]["duration_s"].mean() == pytest.approx(114.0 / 8.0, rel=0.1)
    assert 3.0 < lane_width_m(DriveEnv(held)) < 4.0


def test_the_driver_by_rules_makes_way_among_others():
    waits = TrafficCfg(slots=3, shares=TrafficShares(0, 0, 0, 0, 1, 0, 0, 0, 0, 0))  # Vehicles that stand on the route.
    held = replace(held_out(PLAIN, num_envs=8), traffic=waits, episode_s=20.0)
    hits = {}
    for name in (RULES, STEADY):
        env = DriveEnv(held, seed=7)
        hits[name] = drive_episodes(env, baseline(name, env, 1))["vehicle"].mean()
    assert hits[RULES] == 0.0
    assert hits[STEADY] > 0.3


def test_the_driver_by_rules_laps_a_track_and_no_lane_is_followed_where_there_is_none():
    track = DriveEnv(replace(RaceCfg(), num_envs=4, map_count=2, laps=1, map_split="test"), seed=3)
    found = drive_episodes(track, baseline(RULES, track, 1))
    assert found["completion"].mean() > 0.9
    lot = DriveEnv(replace(ParkCfg(), num_envs=4, map_count=2))
    assert [baseline(name, lot, 1) is None for name in RACERS] == [False, True, True, False]
    assert [baseline(name, track, 1) is None for name in RACERS] == [False] * 4
    assert lane_width_m(lot) is None


def test_scores_by_hand():
    found = {
        "completion": np.array([1.0, 0.5]),
        "driven_m": np.array([300.0, 200.0]),
        "duration_s": np.array([30.0, 20.0]),
        "finished": np.array([1.0, 0.0]),
        "off_road": np.array([0.0, 1.0]),
        "blocked": np.array([0.0, 0.0]),
        "off_route_share": np.array([0.0, 0.2]),
        "lateral_rmse_m": np.array([0.1, 0.3]),
        "discomfort_share": np.array([0.0, 0.1]),
    }
    got = scores(found, 4.0)
    assert got["driving_score"]["mean"] == pytest.approx(0.5 * (100.0 + 50.0 * 0.8))
    assert got["lateral_nrmse"] == pytest.approx(0.05)
    assert got["lateral_std_m"] == pytest.approx(0.1)
    assert got["ends_per_km"] == {"off_road": pytest.approx(2.0)}
    assert "lateral_nrmse" not in scores(found, None)


def test_more_cars_make_shorter_rollouts_and_no_larger_updates():
    preset = find_task("drive-lane").preset("cpu")
    samples = preset.env.num_envs * preset.learner.steps_per_env
    few, many = sized(preset, 64), sized(preset, 8192)
    assert few.env.num_envs * few.learner.steps_per_env == samples
    assert many.learner.steps_per_env == 8


def test_a_table_takes_runs_that_are_there_and_says_what_is_missing(tmp_path, capsys):
    train = ["train", "drive-lane", "--steps", "64", "--episodes", "0", "--no-export", *sets(TINY)]
    for seed, folder in ((1, "runs/any"), (2, "runs/name")):
        assert main([*train, "--seed", str(seed), "--run-dir", folder]) == 0
    words = ["bench", "drive", "table", "--tasks", "drive-lane", "--episodes", "6", "--output", "runs"]
    found = [*words, "--no-training", "--json", "t.json"]
    assert main(found) == 0
    out = capsys.readouterr().out
    assert "Left out: policy, seed 3: not trained in this folder." in out
    assert "infractions and other ends per km" in out
    told = json.loads((tmp_path / "t.json").read_text())
    rows = {row["driver"]: row for row in told["tasks"]["drive-lane"]["rows"]}
    assert list(rows) == ["policy, seed 1", "policy, seed 2", "policy, all seeds", *BASELINES]
    each = [rows[f"policy, seed {seed}"]["scores"]["driving_score"]["mean"] for seed in (1, 2)]
    assert rows["policy, all seeds"]["scores"]["driving_score"]["mean"] == pytest.approx(sum(each) / 2)
    assert rows["policy, all seeds"]["scores"]["episodes"] == 12
    assert rows["policy, seed 2"]["env_steps"] == [64]
    assert rows["policy, seed 2"]["train_wall_s"][0] > 0.0
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("episodes_*.json")}
    assert len(kept) == 2
    assert main(found) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    again = json.loads((tmp_path / "t.json").read_text())
    assert again == told
    capsys.readouterr()
    assert main([*words, "--steps", "96"]) == 2
    assert "learner.total_steps 64, not 96" in capsys.readouterr().err
    assert main([*words, "--teacher", "scripted"]) == 2
    assert "was guided by no teacher, expected scripted" in capsys.readouterr().err
    assert main([*train, "--seed", "2", "--run-dir", "runs/twice"]) == 0
    assert main(found) == 2
    assert "are both runs of drive-lane with seed 2" in capsys.readouterr().err


def test_a_table_knows_runs_that_its_teacher_guided(tmp_path):
    """A run keeps a copy of its teacher in a folder of its own; the table asks for the one that was named."""
    task, wise = find_task("drive-lane"), tmp_path / "wise"
    create_run(RunCfg(task, "cpu", task.preset("cpu"), "cpu", 1, teacher=wise), tmp_path / "t" / "any")
    cfg = TableCfg(("drive-lane",), (1,), teacher=str(wise))
    assert find_runs(cfg, "drive-lane", tmp_path / "t") == {1: tmp_path / "t" / "any"}
    assert find_runs(replace(cfg, teacher=f"{tmp_path}/t/../wise/"), "drive-lane", tmp_path / "t")
    with pytest.raises(GantryError, match=r"was guided by .*wise, expected scripted"):
        find_runs(replace(cfg, teacher="scripted"), "drive-lane", tmp_path / "t")


def test_a_table_refuses_a_teacher_that_a_task_has_not_before_it_trains(tmp_path):
    said = []
    with pytest.raises(GantryError, match="Task 'drive-race' has no scripted policy"):
        run_table(TableCfg(("drive-lane", "drive-race"), (1,), teacher="scripted"), tmp_path / "t", said.append)
    assert said == []


@pytest.mark.slow
def test_a_table_trains_what_is_missing_once(tmp_path, capfd):
    words = ["bench", "drive", "table", "--tasks", "drive-lane", "--seeds", "1", "--steps", "64", "--episodes", "4"]
    words += ["--output", str(tmp_path / "t"), *sets(TINY)]
    words += ["--teacher", "scripted"]
    assert main(words) == 0
    assert capfd.readouterr().out.count(": training") == 1
    assert main(words) == 0
    assert ": training" not in capfd.readouterr().out
    assert json.loads((tmp_path / "t" / "result.json").read_text())["tasks"]["drive-lane"]["rows"][0]["teachers"] == [
        "scripted"
    ]


def test_speed_of_all_parts_is_told_with_its_spread(tmp_path, capsys):
    words = ["bench", "drive", "speed", "--tasks", "drive-lane", "--cars", "2,4", "--seconds", "0.01", "--repeats", "2"]
    assert main([*words, "--iterations", "1", "--json", "s.json", *sets(TINY)]) == 0
    told = json.loads((tmp_path / "s.json").read_text())
    assert [entry["cars"] for entry in told["results"]] == [2, 4]
    for entry in told["results"]:
        rates = entry["decisions_per_s"]
        assert set(rates) == {*PARTS, COLLECTING}
        for figures in rates.values():
            assert len(figures["all"]) == 2
            assert 0.0 < figures["min"] <= figures["median"] <= figures["max"]
        assert rates[LEARNING]["max"] < rates[COLLECTING]["max"]
    assert "training, updates included" in capsys.readouterr().out
