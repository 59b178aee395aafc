"""Sessions of a run: what is written down of each, and runs that are made longer."""

import json
import os
import re
import signal
import subprocess
from dataclasses import replace

import pytest
import torch

from gantry_deploy.cli import main as cli
from gantry_sim.tasks.registry import find_task
from gantry_sim.training import run_files
from gantry_sim.training.run_folder import RunCfg, create_run, read_run
from gantry_sim.training.train import open_trained, train

GO2 = "velocity-flat-go2"

pytestmark = pytest.mark.usefixtures("one_thread")


def configured(**env):
    preset = find_task(GO2).preset("cpu")
    return RunCfg(find_task(GO2), "cpu", replace(preset, env=replace(preset.env, **env)), "cpu", 1)


def gantry(capsys, *words):
    code = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_session_of_a_run_is_written_down_and_learns_with_as_many_threads(tmp_path):
    learner = replace(find_task(GO2).preset("cpu").learner, total_steps=16 * 24 * 4, hidden=(8,), critic_hidden=(8,))
    cfg = configured(num_envs=16)
    cfg = replace(cfg, preset=replace(cfg.preset, learner=learner), learn_threads=2)
    folder = create_run(cfg, tmp_path / "run")
    stopped = []

    def stop_once(progress):
        if progress.done == 2 and not stopped:
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    assert not train(cfg, folder, on_progress=stop_once)[1]
    assert torch.get_num_threads() == 1
    runner, complete = train(read_run(folder), folder, resume=True)
    assert complete
    assert len(runner.alg._replicas) == 2
    sessions = json.loads((folder / "config.json").read_text())["sessions"]
    assert [session["done"] for session in sessions] == [0, 2]
    assert all(session.keys() == {"done", "git_commit", "started_utc", "machine"} for session in sessions)


def test_a_run_that_is_over_goes_on_if_it_is_made_longer(capsys, tmp_path):
    learner = replace(find_task(GO2).preset("cpu").learner, total_steps=16 * 24 * 2, hidden=(8,), critic_hidden=(8,))
    cfg = configured(num_envs=16)
    folder = create_run(replace(cfg, preset=replace(cfg.preset, learner=learner)), tmp_path / "run")
    assert train(read_run(folder), folder)[0].iteration == 2
    more = [
        "train",
        "--resume",
        "run",
        "--episodes",
        "0",
        "--no-export",
        "--set",
        "learner.guide.imitation_iterations=",
    ]
    assert gantry(capsys, *more[:-1], f"{more[-1]}7000", "--steps", 16 * 24 * 4)[0] == 0
    record = json.loads((folder / "config.json").read_text())
    assert [session["done"] for session in record["sessions"]] == [0, 2]
    assert [entry["was"]["learner.total_steps"] for entry in record["lengthened"]] == [16 * 24 * 2]
    longer = read_run(folder).preset
    assert longer.learner == replace(learner, total_steps=1536, guide=replace(learner.guide, imitation_iterations=7000))
    assert open_trained(folder)[1].done == 4
    code, out, _ = gantry(capsys, "train", "--resume", "run", "--episodes", 0, "--no-export")
    assert (code, "This run is complete: iteration 4 of 4. Nothing was trained." in out) == (0, True)
    assert out.splitlines()[-1] == f"Go further with: gantry train --resume run --steps {2 * 16 * 24 * 4}"
    assert json.loads((folder / "config.json").read_text()) == record

    code, _, err = gantry(capsys, "train", "--resume", "run", "--set", "learner.gamma=0.9")
    assert (code, "only learner.total_steps and learner.guide.imitation_iterations may be raised" in err) == (2, True)

    def refused(*words):
        code, _, err = gantry(capsys, *words)
        return code, err.strip()

    said = "a run can be made longer, not shorter (768)."
    assert refused(*more[:-2], "--steps", "768") == (2, f"Error: learner.total_steps is 1536 in 'run'; {said}")
    assert refused(*more[:-1], f"{more[-1]}many")[0] == 2
    assert json.loads((folder / "config.json").read_text()) == record


def test_only_a_repository_that_tracks_this_package_gives_its_commit(tmp_path, monkeypatch):
    """A virtual environment inside another project's repository must not borrow that one's commit."""

    def git(*words):
        author = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
        subprocess.run(["git", "-C", str(tmp_path), *author, *words], check=True, capture_output=True)

    package = tmp_path / "env" / "gantry_sim" / "run_files.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    monkeypatch.setattr(run_files, "__file__", str(package))
    assert run_files.git_commit() == ""
    git("init")
    (tmp_path / "thesis.tex").write_text("draft")
    git("add", "thesis.tex")
    git("commit", "-m", "Draft")
    assert run_files.git_commit() == ""
    git("add", "env")
    git("commit", "-m", "Package")
    assert re.fullmatch("[0-9a-f]{40}", run_files.git_commit())
    package.write_text("changed")
    assert re.fullmatch("[0-9a-f]{40}-dirty", run_files.git_commit())
