"""``gantry bench sim`` and ``gantry bench agreement``: what is asked and judged; no speed of this machine is."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from gantry_deploy.cli.main import main
from gantry_sim.benchmarks.commands import aims_of, measure_training


def entry(num_envs, ratio=None):
    return {"num_envs": num_envs} if ratio is None else {"num_envs": num_envs, "ratio": {"median": ratio}}


def test_aims_stand_beside_what_was_measured_without_a_verdict():
    training = {"collect_steps_per_s": {"median": 30_000.0}, "train_steps_per_s": {"median": 15_999.0}}
    aims = aims_of({"results": [entry(64, 3.0), entry(256, 26.0)], "preset": {"training": training}})
    assert aims == {
        "ratio at 256 environments": {"value": 26.0, "aim": 25.0},
        "steps/s without learning": {"value": 30_000.0, "aim": 30_000.0},
        "steps/s with learning": {"value": 15_999.0, "aim": 16_000.0},
    }


def test_what_was_not_measured_has_no_aim():
    assert aims_of({"results": [entry(64, 3.0), entry(256)], "preset": {}}) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sim", "--envs", "64,0"), "whole numbers above 0"),
        (("sim", "--repeats", "0"), "--repeats"),
        (("agreement", "go1-flt"), "Did you mean 'go1-flat'?"),
        (("agreement", "--envs", "0"), "--envs is 0"),
        (("mapping", "--frames", "0"), "--frames"),
        (("mapping", "--task", "velocity-flat-go2"), "no map that is made in the loop; expected 'ame2-go2-student'"),
    ],
)
def test_mistakes_are_answered_before_anything_runs(arguments, words, capsys):
    assert main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_listing_the_benches_loads_no_simulator():
    heavy = ("torch", "mujoco", "mjlab")
    code = f"import gantry_sim.benchmarks.commands, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_thrown_away_training_is_timed():
    from gantry_sim.tasks.registry import find_task

    task = find_task("velocity-flat-go2")
    preset = task.preset("cpu")
    preset = replace(preset, env=replace(preset.env, num_envs=4))
    timing = measure_training(task, preset, 2, seed=1)
    assert timing["iterations"] == 2
    assert timing["steps_per_iteration"] == 4 * preset.learner.steps_per_env
    assert 0 < timing["train_steps_per_s"]["median"] < timing["collect_steps_per_s"]["median"]


def test_frames_of_a_robots_own_mapping_are_timed():
    from gantry_sim.benchmarks.mapping import measure_frames
    from gantry_sim.tasks.registry import find_task

    rows = measure_frames(find_task("ame2-go2-student").preset("cpu").env, 20, seed=1)
    assert {name: row["count"] for name, row in rows.items()} == {"map": 20, "window": 20, "frame": 20}
    assert rows["frame"]["mean_s"] == pytest.approx(rows["map"]["mean_s"] + rows["window"]["mean_s"])


@pytest.mark.slow
def test_bench_sim_as_json(tmp_path):
    target = tmp_path / "sim.json"
    arguments = ("--no-mjlab", "--envs", "2", "--seconds", "0.01", "--repeats", "1", "--iterations", "0")
    assert main(["bench", "sim", *arguments, "--json", str(target)]) == 0
    report = json.loads(target.read_text())
    assert report["results"][0]["env_steps_per_s"]["gantry"]["median"] > 0
    assert report["preset"]["environment_alone"]["num_envs"] == report["preset"]["num_envs"]
    assert report["aims"] == {}
