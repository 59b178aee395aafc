"""A learner and an actor as real processes: steps go one way, weights the other, and both can be killed."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.dataset import Dataset
from gantry_deploy.flash.status import STATUS_VARIABLE, read_status
from gantry_fixtures.learners import GANTRY, PATIENCE_S, Learner, until_delivered

pytestmark = pytest.mark.slow


def act(address: str, folder: Path, *words: str) -> dict:
    """``gantry session start`` to its end; its result."""
    told = folder / f"session-{time.monotonic_ns()}.json"
    command = (*GANTRY, "session", "start", "--learner", address, "--spool", str(folder / "spool"), "--speed", "0")
    done = subprocess.run((*command, "--json", str(told), *words), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(told.read_text())


def test_steps_go_to_the_learner_and_weights_come_back_also_after_it_was_killed(tmp_path):
    run = tmp_path / "run"
    learner = Learner(run, "yam-lift", "--preset", "hil-serl", "--run-dir", str(run), "--set", "learner.save_every_s=1")
    first = act(
        learner.address, tmp_path, "--device", "scripted", "--attempts", "6", "--dataset", str(tmp_path / "data")
    )
    assert first["attempts"] == 6
    assert "Actor 'robot' has joined from" in learner.log.read_text()
    assert first["steps_by_person"] > 0
    assert until_delivered(learner.address, first["steps"]) == first["steps"]
    deadline_s = time.monotonic() + PATIENCE_S
    while not list((run / "checkpoints").glob("model_[1-9]*.pt")) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    learner.end(signal.SIGKILL)

    learner = Learner(run, "--resume", str(run))
    assert until_delivered(learner.address, first["steps"]) == first["steps"], "the journal brings every step again"
    second = act(learner.address, tmp_path, "--device", "none", "--attempts", "3")
    assert until_delivered(learner.address, first["steps"] + second["steps"]) == first["steps"] + second["steps"]
    assert second["learner"]["parameters_version"] > first["learner"]["parameters_version"]
    assert learner.end() in (0, 130)

    dataset = Dataset(tmp_path / "data")
    assert len(dataset.episodes) == 6
    assert sum(row.length for row in dataset.episodes) == first["steps"]
    assert load_bundle(run / "session-bundle").contract.robot == "yam"


def test_without_a_learner_a_session_says_why(tmp_path):
    command = (*GANTRY, "session", "start", "--learner", "127.0.0.1:9", "--spool", str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_session_that_a_service_started_tells_its_status(tmp_path):
    """Software is not changed under a robot in a session."""
    status = tmp_path / "status.json"
    command = (*GANTRY, "session", "start", "pretrained:yam-pick-place", "--device", "scripted")
    command = (*command, "--duration", "6", "--speed", "0")
    environment = {**os.environ, STATUS_VARIABLE: str(status)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    written = read_status(status)
    assert written is not None, done.stdout + done.stderr
    assert written.mode in ("STAND", "POLICY")
    assert written.ticks > 50
