"""Runs on Ray: side by side, begun again where a worker is killed, and failures by name; see scripts/test_ray.sh."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import CHECKPOINTS
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


def planned(folder, seed, steps=1200, **changes):
    words = [word for name, value in {**SMALL, **changes}.items() for word in ("--set", f"{name}={value}")]
    train = ("yam-lift", "--preset", "sac", "--steps", str(steps), *words)
    return PlannedRun("sac", seed, folder / f"sac-s{seed}", train)


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
def test_a_killed_worker_costs_its_time_alone(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    runs, said, killed = [planned(tmp_path, seed) for seed in (1, 2, 3, 4)], [], []

    def kill():
        while not killed:
            if (runs[0].folder / CHECKPOINTS).is_dir() and (pid := holder_of(runs[0].folder)) is not None:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.05)

    threading.Thread(target=kill, daemon=True).start()
    train_and_score_on_ray(runs, ("--episodes", "2"), RayCfg(), said.append)
    assert len(killed) == 1
    for run in runs:
        assert json.loads((run.folder / TRAINED).read_text())["env_steps"] == 1200
        assert (run.folder / SCORED).is_file()
    sessions = [len(json.loads((run.folder / "config.json").read_text())["sessions"]) for run in runs]
    assert sessions == [2, 1, 1, 1], "the first one went on from its checkpoint"
    assert sum("done" in line for line in said) == 4
    before = (runs[0].folder / SCORED).stat().st_mtime
    train_and_score_on_ray(runs, ("--episodes", "2"), RayCfg(), said.append)
    assert (runs[0].folder / SCORED).stat().st_mtime == before, "what is there is not done again"


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_are_done(tmp_path):
    pytest.importorskip("ray", reason="scripts/test_ray.sh installs it")
    good, bad = planned(tmp_path, 1, 240), planned(tmp_path, 2, 240, **{"env.num_envs": -1})
    with pytest.raises(GantryError, match=r"1 of 2 runs failed: sac, seed 2: .*ended with 2"):
        train_and_score_on_ray([bad, good], ("--episodes", "2"), RayCfg(retries=1))
    assert (good.folder / SCORED).is_file()
    assert not require_ray().is_initialized()
