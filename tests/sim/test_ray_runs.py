"""Runs on Ray: side by side, begun again where a worker is killed, and failures by name; see scripts/test_ray.sh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common.checkpoint import list_checkpoints
from gantry_sim.benchmarks.comparison import SCORED, TRAINED, PlannedRun
from gantry_sim.benchmarks.ray_runs import RayCfg, train_and_score_on_ray
from gantry_sim.process.ray_cluster import require_ray
from gantry_sim.training.run_files import LOCK_FILE

SMALL = {
    "learner.warmup_steps": 200,
    "learner.eval_every_steps": 0,
    "learner.save_every_s": 1,
    "learner.log_every_steps": 100,
    "env.num_envs": 4,
}
SEEDS, RACED = (1, 2, 3, 4), 60 * 4 * 8
RACE = {
    "env.num_envs": 4,
    "learner.steps_per_env": 8,
    "learner.total_steps": RACED,
    "learner.minibatches": 2,
    "learner.epochs": 1,
    "learner.hidden": [8],
    "learner.critic_hidden": [8],
    "learner.save_every_s": 0.1,
}


def planned(folder, seed, steps=1200, **changes):
    words = [word for name, value in {**SMALL, **changes}.items() for word in ("--set", f"{name}={value}")]
    train = ("yam-lift", "--preset", "sac", "--steps", str(steps), *words)
    return PlannedRun("sac", seed, folder / f"sac-s{seed}", train)


def sweep_command(output):
    """Four seeds of a small race, so many at once as the machine has cores."""
    sets = [word for name, value in RACE.items() for word in ("--set", f"{name}={value}")]
    words = ["sweep", "drive-race", "--seeds", ",".join(map(str, SEEDS)), "--ray", "--episodes", "2", *sets]
    return [sys.executable, "-m", "gantry_deploy.cli.main", *words, "--output", str(output)]


def folder_of(output, seed):
    """Run folder of a seed."""
    return next(iter(output.glob(f"*-s{seed}")), output / "not begun")


def holder_of(folder):
    """Process that trains in a run folder; None if there is none."""
    lock = folder / LOCK_FILE
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(link.resolve() == lock.resolve() for link in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    return None


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(GantryError, match="gantry-rl\\[ray\\]"):
        train_and_score_on_ray([planned(tmp_path, 1)], (), RayCfg())


@pytest.mark.slow
def test_a_sweep_of_four_seeds_survives_a_killed_worker(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    output, log = tmp_path / "sweep", tmp_path / "said.txt"
    with log.open("w") as stream:
        sweep = subprocess.Popen(sweep_command(output), stdout=stream, stderr=stream)
    while (pid := holder_of(folder_of(output, 1))) is None or not list_checkpoints(folder_of(output, 1) / CHECKPOINTS):
        assert sweep.poll() is None, log.read_text()  # pytest's own timeout ends a wait that is in vain
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    assert sweep.wait() == 0, log.read_text()
    assert sum(line.endswith(": done") for line in log.read_text().splitlines()) == 4
    folders = [folder_of(output, seed) for seed in SEEDS]
    for folder in folders:
        assert json.loads((folder / TRAINED).read_text())["env_steps"] == RACED
    sessions = [len(json.loads((folder / "config.json").read_text())["sessions"]) for folder in folders]
    assert sessions == [2, 1, 1, 1], "the first one went on from its checkpoint"
    (variant,) = json.loads((output / "result.json").read_text())["variants"].values()
    assert all(len(score["by_seed"]) == 4 for score in variant["scores"].values())
    assert (output / "report.html").stat().st_size > 1000
    before = [(folder / name).stat().st_mtime_ns for folder in folders for name in (TRAINED, SCORED)]
    subprocess.run(sweep_command(output), check=True, stdout=subprocess.DEVNULL)
    after = [(folder / name).stat().st_mtime_ns for folder in folders for name in (TRAINED, SCORED)]
    assert after == before, "what is there is not done again"


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_are_done(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    good, bad = planned(tmp_path, 1, 240), planned(tmp_path, 2, 240, **{"env.num_envs": -1})
    with pytest.raises(GantryError, match=r"1 of 2 runs failed: sac, seed 2: .*ended with 2"):
        train_and_score_on_ray([bad, good], ("--episodes", "2"), RayCfg(retries=1))
    assert (good.folder / SCORED).is_file()
    assert not require_ray().is_initialized()
