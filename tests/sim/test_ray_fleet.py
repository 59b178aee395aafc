"""Actors on Ray that collect for one training: lost ones begin again, and Ctrl-C loses nothing; see test_ray.sh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gantry_deploy.cli.main import main
from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common.checkpoint import list_checkpoints, load_newest
from gantry_sim.training.link.fleet import FleetCfg

SMALL = (
    *("--set", "learner.warmup_steps=160", "--set", "learner.eval_every_steps=0", "--set", "learner.save_every_s=1"),
    *("--set", "learner.log_every_steps=100", "--set", "env.num_envs=4", "--episodes", "0", "--no-export"),
)
STARTED_S = 300.0


def command(*words):
    return [sys.executable, "-m", "gantry_deploy.cli.main", "train", *words]


def begun(folder, *words):
    """A training in a process group of its own, as of a terminal."""
    new = ("yam-lift", "--algo", "sac", "--run-dir", str(folder), *SMALL)
    return subprocess.Popen(
        command(*new, *words), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )


def actors_of(pid):
    """Processes of actors below a process."""
    below, found = {pid}, []
    for _ in range(6):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
                title = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if parent in below and int(process.name) not in below:
                below.add(int(process.name))
                if b"SimulatingActor" in title:
                    found.append(int(process.name))
    return found


def wait_for(condition, process):
    """Result of a condition once it holds; pytest's own timeout ends a wait that is in vain."""
    while not (found := condition()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(("number", "words"), [(0, "--actors is 0"), (-2, "--actors is -2")])
def test_a_fleet_has_an_actor(number, words):
    with pytest.raises(GantryError, match=words):
        FleetCfg(number)


def test_actors_that_would_wait_for_ever_are_refused():
    from gantry_sim.training.link.ray_fleet import require_room

    require_room(FleetCfg(2, cpus=1.0), [2.0])
    require_room(FleetCfg(4, cpus=0.5), [2.0])
    require_room(FleetCfg(3, cpus=3.0), [4.0, 8.0])
    with pytest.raises(GantryError, match=r"3 actors of 1 cores do not fit .* of 2 cores; .*--cpus 0\.66, where"):
        require_room(FleetCfg(3), [2.0])
    with pytest.raises(GantryError, match=r"2 actors of 4 cores do not fit a cluster of 4 \+ 2 \+ 2 cores"):
        require_room(FleetCfg(2, cpus=4.0), [4.0, 2.0, 2.0])
    with pytest.raises(GantryError, match=r"expected fewer --actors\.$"):
        require_room(FleetCfg(300), [2.0])


def test_an_actor_reads_the_run_from_its_folder(tmp_path):
    from gantry_policies.off_policy.collecting.fleet import Order, acting_weights
    from gantry_policies.off_policy.learner import Learner
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.algorithms.off_policy import settings_of
    from gantry_sim.training.algorithms.registry import find_algorithm
    from gantry_sim.training.begin import begin_run
    from gantry_sim.training.link.ray_fleet import SimulatingActor
    from gantry_sim.training.run_cfg import RunCfg
    from gantry_sim.training.run_folder import read_run

    task = find_task("yam-lift")
    preset = find_algorithm("sac").preset(task)
    small = replace(preset, env=replace(preset.env, num_envs=4))
    _, folder = begin_run(RunCfg(task, "sac", small), tmp_path / "run")
    run = read_run(folder)
    weights = acting_weights(Learner(settings_of(run).agent, run.spaces.obs_shapes, run.spaces.action_size))
    order = Order(weights, None, 0.0, 3)
    one, same, other = (SimulatingActor(str(folder), seed, 1).collect(order) for seed in (7, 7, 8))
    assert len(one.transitions) == 3
    assert one.is_first
    assert one.transitions[0]["action"].shape == (4, run.spaces.action_size)
    assert one.transitions[-1]["next_obs"]["state"].equal(same.transitions[-1]["next_obs"]["state"])
    assert not one.transitions[0]["obs"]["state"].equal(other.transitions[0]["obs"]["state"])
    with pytest.raises(GantryError, match="nowhere"):
        SimulatingActor(str(tmp_path / "nowhere"), 7, 1).begin()


def refused(*words):
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=STARTED_S, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--ray", "auto", "--cpus", "2"), "--ray and --cpus: give --actors N as well"),
        (("--actors", "2", "--listen", "127.0.0.1:0"), "give one of them"),
        (("--actors", "0"), "--actors is 0, expected at least 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, answer, capsys):
    assert main(["train", "yam-lift", "--algo", "sac", *words]) == 2
    assert answer in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_actor_costs_its_stretch_alone(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    folder = tmp_path / "run"
    process = begun(folder, "--steps", "2400", "--actors", "2", "--cpus", "0.5")
    wait_for(lambda: list_checkpoints(folder / CHECKPOINTS), process)
    os.kill(wait_for(lambda: actors_of(process.pid), process)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=STARTED_S)
    assert process.returncode == 0, errors
    assert "was lost and begins again" in errors
    _, state = load_newest(folder / CHECKPOINTS)
    assert state["collector"]["env_steps"] >= 2400
    assert state["actors"] == 2


@pytest.mark.slow
def test_ctrl_c_loses_nothing_and_the_fleet_goes_on(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    folder = tmp_path / "run"
    process = begun(folder, "--steps", "100k", "--actors", "2", "--cpus", "0.5")
    wait_for(lambda: list_checkpoints(folder / CHECKPOINTS), process)
    actors = wait_for(lambda: actors_of(process.pid), process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=STARTED_S)
    assert process.returncode == 130, errors
    assert "nothing is lost" in errors
    assert f"gantry train --resume {folder} --actors 2 --cpus 0.5" in errors
    while [pid for pid in actors if Path(f"/proc/{pid}").exists()]:  # Actors that are left over run into the timeout.
        time.sleep(0.1)
    _, state = load_newest(folder / CHECKPOINTS)
    before = state["collector"]["env_steps"]
    code, text = refused("--resume", str(folder), "--episodes", "0", "--no-export")
    assert (code, "--actors is 0, expected 2, as the run was begun" in text) == (2, True)
    process = subprocess.Popen(
        command("--resume", str(folder), "--actors", "2", "--cpus", "0.5"),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: list_checkpoints(folder / CHECKPOINTS)[-1].stem != f"model_{before}", process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=STARTED_S)
    assert load_newest(folder / CHECKPOINTS)[1]["collector"]["env_steps"] > before
    assert len(json.loads((folder / "config.json").read_text())["sessions"]) == 2


@pytest.mark.slow
def test_an_error_in_an_actor_ends_the_training_by_its_words(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    from gantry_sim.process.ray_cluster import connected
    from gantry_sim.training.link.ray_fleet import RayFleet

    class Run:
        seed = 1
        preset = type("Preset", (), {"env": type("Env", (), {"num_envs": 4})})

    with connected("local") as ray:
        fleet = RayFleet(ray, tmp_path / "nowhere", Run, FleetCfg(2, cpus=0.5))
        with pytest.raises(GantryError, match=r"Actor \d: .*nowhere"):
            fleet.wait()
        fleet.close()


@pytest.mark.slow
def test_what_cannot_learn_from_actors_says_so(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    code, text = refused("velocity-flat-go2", "--actors", "2", "--run-dir", str(tmp_path / "run"))
    assert code == 2
    assert "Algorithm 'ppo' cannot learn from actors on Ray; leave out --actors; several processes of torchrun" in text
    assert not (tmp_path / "run").exists()
