"""Actors on Ray that collect for one training: lost ones begin again, and Ctrl-C loses nothing."""

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


class Training:
    """A training in a process group of its own, as of a terminal; its errors go to a file, which is never full."""

    def __init__(self, log, *words):
        self._log = log
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                command(*words), stderr=stream, stdout=subprocess.DEVNULL, start_new_session=True
            )

    def errors(self):
        return self._log.read_text()

    def end(self):
        self.process.wait(timeout=STARTED_S)
        return self.process.returncode

    def wait_for(self, condition):
        """Result of a condition once it holds; pytest's own timeout ends a wait that is in vain."""
        while not (found := condition()):
            assert self.process.poll() is None, self.errors()
            time.sleep(0.05)
        return found


def begun(folder, *words):
    new = ("yam-lift", "--algo", "sac", "--run-dir", str(folder), *SMALL)
    return Training(folder.parent / "errors.txt", *new, *words)


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


def runs(pid):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "words"), [(0, "--actors is 0"), (-2, "--actors is -2")])
def test_a_fleet_has_an_actor(number, words):
    with pytest.raises(GantryError, match=words):
        FleetCfg(number)


def test_actors_that_would_wait_for_ever_are_refused():
    from gantry_sim.training.link.ray_fleet import require_room

    require_room(FleetCfg(2, cores_per_actor=1.0), [2.0])
    require_room(FleetCfg(4, cores_per_actor=0.5), [2.0])
    require_room(FleetCfg(3, cores_per_actor=3.0), [4.0, 8.0])
    with pytest.raises(GantryError, match=r"3 actors of 1 cores do not fit .* of 2 cores; .*--cpus 0\.66, where"):
        require_room(FleetCfg(3), [2.0])
    with pytest.raises(GantryError, match=r"2 actors of 4 cores do not fit a cluster of 4 \+ 2 \+ 2 cores"):
        require_room(FleetCfg(2, cores_per_actor=4.0), [4.0, 2.0, 2.0])
    with pytest.raises(GantryError, match=r"expected fewer --actors\.$"):
        require_room(FleetCfg(300), [2.0])
    with pytest.raises(GantryError, match=r"5 actors of 4 cores .* 8 \+ 8 cores; expected fewer --actors\.$"):
        require_room(FleetCfg(5, cores_per_actor=4.0), [8.0, 8.0])  # 3.2 cores each would not fit either


def test_an_actor_reads_the_run_from_its_folder(tmp_path, one_thread):
    from gantry_policies.off_policy.collecting.fleet import Order, acting_weights
    from gantry_policies.off_policy.learner import Learner
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.algorithms.off_policy import settings_of
    from gantry_sim.training.algorithms.registry import find_algorithm
    from gantry_sim.training.begin import begin_run
    from gantry_sim.training.link.ray_fleet import make_actor
    from gantry_sim.training.run_cfg import RunCfg
    from gantry_sim.training.run_folder import read_run

    task = find_task("yam-lift")
    preset = find_algorithm("sac").preset(task)
    small = replace(preset, env=replace(preset.env, num_envs=4))
    _, folder = begin_run(RunCfg(task, "sac", small), tmp_path / "run")
    run = read_run(folder)
    weights = acting_weights(Learner(settings_of(run).agent, run.spaces.obs_shapes, run.spaces.action_size))
    order = Order(weights, None, 0.0, 3)
    one, same, other = (make_actor(folder, seed).collect(order) for seed in (7, 7, 8))
    assert len(one.transitions) == 3
    assert one.is_first
    assert one.transitions[0]["action"].shape == (4, run.spaces.action_size)
    assert one.transitions[-1]["next_obs"]["state"].equal(same.transitions[-1]["next_obs"]["state"])
    assert not one.transitions[0]["obs"]["state"].equal(other.transitions[0]["obs"]["state"])
    with pytest.raises(GantryError, match="nowhere"):
        make_actor(tmp_path / "nowhere", 7)


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
    training = begun(folder, "--steps", "2400", "--actors", "2", "--cpus", "0.5")
    training.wait_for(lambda: list_checkpoints(folder / CHECKPOINTS))
    os.kill(training.wait_for(lambda: actors_of(training.process.pid))[0], signal.SIGKILL)
    assert training.end() == 0, training.errors()
    assert "was lost and begins again" in training.errors()
    _, state = load_newest(folder / CHECKPOINTS)
    assert state["collector"]["env_steps"] >= 2400
    assert state["actors"] == 2


@pytest.mark.slow
def test_ctrl_c_loses_nothing_and_the_fleet_goes_on(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    folder = tmp_path / "run"
    training = begun(folder, "--steps", "100k", "--actors", "2", "--cpus", "0.5")
    training.wait_for(lambda: list_checkpoints(folder / CHECKPOINTS))
    actors = training.wait_for(lambda: actors_of(training.process.pid))
    os.killpg(training.process.pid, signal.SIGINT)
    assert training.end() == 130, training.errors()
    assert "nothing is lost" in training.errors()
    assert f"gantry train --resume {folder} --actors 2 --cpus 0.5" in training.errors()
    while any(map(runs, actors)):  # Actors that are left over run into the timeout.
        time.sleep(0.1)
    _, state = load_newest(folder / CHECKPOINTS)
    before = state["collector"]["env_steps"]
    code, text = refused("--resume", str(folder), "--episodes", "0", "--no-export")
    assert (code, "This run collects with 2 actors; give --actors 2" in text) == (2, True)
    training = Training(tmp_path / "more.txt", "--resume", str(folder), "--actors", "2", "--cpus", "0.5")
    training.wait_for(lambda: list_checkpoints(folder / CHECKPOINTS)[-1].stem != f"model_{before}")
    training.process.send_signal(signal.SIGINT)
    assert training.end() == 130, training.errors()
    assert load_newest(folder / CHECKPOINTS)[1]["collector"]["env_steps"] > before
    assert len(json.loads((folder / "config.json").read_text())["sessions"]) == 2


@pytest.mark.slow
def test_an_error_in_an_actor_ends_the_training_by_its_words(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    from gantry_sim.training.link.ray_fleet import RayFleet

    class Run:
        seed = 1
        preset = type("Preset", (), {"env": type("Env", (), {"num_envs": 4})})

    cfg = FleetCfg(2, cores_per_actor=0.5)
    with RayFleet(tmp_path / "nowhere", Run, cfg) as fleet, pytest.raises(GantryError, match=r"Actor \d: .*nowhere"):
        fleet.start()


@pytest.mark.slow
def test_what_cannot_learn_from_actors_says_so(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    code, text = refused("velocity-flat-go2", "--actors", "2", "--run-dir", str(tmp_path / "run"))
    assert code == 2
    assert "Algorithm 'ppo' cannot learn from actors on Ray; leave out --actors; several processes of torchrun" in text
    assert not (tmp_path / "run").exists()
