"""``gantry train`` in two processes of torchrun: the run of the first one, refusals, and the loss of the first one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from gantry_deploy.cli.main import main
from gantry_fixtures.torchrun import command, environment, run_together
from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import Launched
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common import processes
from gantry_policies.common.checkpoint import list_checkpoints, load_newest
from gantry_sim.process.together import begun_by_first, own_device
from gantry_sim.training.run_files import LOCK_FILE

CLI = ("-m", "gantry_deploy.cli.main")
RECORDING = Path(__file__).parent / "train_together.py"
ENVS, STEPS = 4, 8
ITERATION = 2 * ENVS * STEPS
"""Control steps of both processes."""
SMALL = {
    "env.num_envs": ENVS,
    "learner.steps_per_env": STEPS,
    "learner.minibatches": 2,
    "learner.epochs": 1,
    "learner.hidden": [8],
    "learner.critic_hidden": [8],
}
SHORT = ("--episodes", "0", "--no-export")


def words(folder, iterations):
    sets = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    return ["train", "drive-race", "--run-dir", str(folder), "--steps", str(iterations * ITERATION), *SHORT, *sets]


def rows_of(folder):
    path = folder / METRICS_FILE
    return [int(row["iteration"]) for row in read_metrics(path)] if path.is_file() else []


@pytest.mark.slow
def test_two_processes_make_one_run_which_one_process_cannot_continue(tmp_path, capsys, one_thread):
    folder = tmp_path / "run"
    done = run_together(2, *CLI, *words(folder, 2))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Training drive-race") == 1, "the second one is silent"
    assert done.stdout.count(f"Trained {2 * ITERATION} steps") == 1
    assert rows_of(folder) == [1, 2]
    assert len(list((folder / "tensorboard").iterdir())) == 1, "the first one alone writes"
    path, state = load_newest(folder / CHECKPOINTS)
    assert (path.name, state["processes"], state["env_steps"]) == ("model_2.pt", 2, 2 * ITERATION)
    before = sorted((file, file.stat().st_mtime_ns) for file in folder.rglob("*") if file.name != LOCK_FILE)
    assert main(["train", "--resume", str(folder), "--steps", "1000", *SHORT]) == 2
    assert "was begun by 2 processes, and there are 1" in capsys.readouterr().err
    after = sorted((file, file.stat().st_mtime_ns) for file in folder.rglob("*") if file.name != LOCK_FILE)
    assert [item for item in after if item[0].name != "config.json"] == [
        item for item in before if item[0].name != "config.json"
    ]


@pytest.mark.soak
def test_the_loss_of_the_first_process_costs_its_time_alone(tmp_path):
    folder, said = tmp_path / "run", tmp_path / "said.txt"
    with said.open("w") as stream:
        training = subprocess.Popen(command(2, *CLI, *words(folder, 40)), env=environment(), stderr=stream)
    while len(rows_of(folder)) < 3:  # pytest's own timeout ends a wait that is in vain
        assert training.poll() is None, said.read_text()
        time.sleep(0.02)
    assert not list_checkpoints(folder / CHECKPOINTS)
    os.kill(int((folder / LOCK_FILE).read_text().split()[0]), signal.SIGKILL)
    assert training.wait() != 0
    path, state = load_newest(folder / CHECKPOINTS)
    assert f"What was learned until then is saved: {path}" in said.read_text()
    assert "Process 1 of 2 has lost another one" in said.read_text()
    # No more than the iteration on the way is lost. Its row is missing where the first process had not written it yet.
    assert state["iteration"] >= rows_of(folder)[-1] - 1
    last = state["iteration"]
    done = run_together(2, RECORDING, tmp_path, "train", "--resume", folder, *SHORT)
    assert done.returncode == 0, done.stderr
    assert rows_of(folder) in (list(range(1, 41)), [row for row in range(1, 41) if row != last])
    assert load_newest(folder / CHECKPOINTS)[1]["env_steps"] == 40 * ITERATION
    first, second = (torch.load(tmp_path / f"record-{rank}.pt", weights_only=True) for rank in (0, 1))
    assert not first["made"]["actor"].isclose(second["made"]["actor"]).all(), "seed + rank"
    assert len(first["drawn"]) == 3
    for one, other in zip(first["drawn"], second["drawn"], strict=True):
        assert not one.equal(other), "a generator goes on as that of the other process does"


def test_each_process_has_the_gpu_of_its_place(monkeypatch):
    assert own_device("cuda:1", Launched()) == "cuda:1"
    assert own_device("cpu", Launched(1, 1, 2)) == "cpu"
    with pytest.raises(GantryError, match="--device is cuda:0 for 2 processes; expected cpu, or cuda"):
        own_device("cuda:0", Launched(1, 1, 2))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device("cuda", Launched(5, 1, 8)) == "cuda:1"
    with pytest.raises(GantryError, match=r"Process 2 of this machine has no GPU: torch sees 2\. .*--nproc-per-node 2"):
        own_device("cuda", Launched(6, 2, 8))


def test_as_many_processes_go_on_as_have_begun():
    processes.require_as_begun(1)
    with pytest.raises(GantryError, match="begun by 4 processes, and there are 1"):
        processes.require_as_begun(4)


@pytest.mark.soak
def test_a_run_that_the_first_process_is_refused_ends_all(tmp_path):
    done = run_together(2, *CLI, "train", "drive-race", "--run-dir", tmp_path / "run", "--set", "env.num_env=4")
    assert done.returncode != 0
    assert "Did you mean" in done.stderr
    assert "The first process could not begin the training; it says why." in done.stderr
    assert not (tmp_path / "run").exists()


def test_alone_the_run_is_the_one_that_is_begun():
    run = object()
    assert begun_by_first(lambda: (run, Path("run"), True)) == (run, Path("run"), True)
