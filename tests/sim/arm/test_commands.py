"""Arms by the real commands: demonstrations, a clone, a residual on it, its scores, bundle and check; and mistakes."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.dataset import DatasetWriter
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.replay import replay_episode
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.robots import robot_spec
from gantry_policies.common.checkpoint import load_newest
from gantry_sim.cli.common import ProgressBar

from .conftest import LIFT, RESFIT, TINY_RL, gantry, sets


def test_demonstrations_are_whole_successful_episodes_and_more_of_them_are_others(made, tmp_path, capsys):
    told = json.loads(made.told.read_text())
    assert (told["episodes"], told["tried"], told["success_rate"]) == (4, 4, 1.0)
    shutil.copytree(made.demos, tmp_path / "demos")
    assert gantry("collect", LIFT, "--episodes", 6, "--envs", 4, "--output", "demos") == 0
    assert "2 episodes tried, 100.0 % with success" in capsys.readouterr().out
    data = Dataset(tmp_path / "demos")
    assert data.num_episodes == 6
    assert data.tasks == ["lift a cube"]
    for row in data.episodes:
        frames = data.frames(row.index)
        assert frames["next.success"].reshape(-1).tolist() == [False] * (row.length - 1) + [True]
        assert frames["next.reward"].sum() == 1.0
    starts = {tuple(data.frames(row.index)["observation.state"][0]) for row in data.episodes}
    assert len(starts) == 6
    assert gantry("collect", LIFT, "--episodes", 6, "--output", "demos") == 0
    assert "Nothing to do." in capsys.readouterr().out


def test_demonstrations_of_pictures_tell_where_the_named_thing_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["collect", "yam-tell-pick", "--images", "--episodes", 1, "--envs", 1, "--output", "demos"]
    assert gantry(*words, "--set", "env.image_px=20") == 0
    data = Dataset(tmp_path / "demos")
    known = data.info.features["observation.environment_state"]
    assert known.names == ("object.x", "object.y", "object.z", "goal.x", "goal.y", "goal.z")
    height = data.frames(0)["observation.environment_state"][:, 2]
    assert height[0] == pytest.approx(0.02, abs=1e-3)
    assert 0.08 < height[-1] < 0.13, "before the step that brings it 10 cm above where it lay"


def interrupt_once(monkeypatch, phase):
    """Ctrl-C as soon as a training says that it is in a phase."""
    pending = [True]

    def update(self, progress):
        if pending and progress.phase == phase:
            pending.clear()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "update", update)


def rows_of(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in rows]


def test_an_interrupted_residual_training_goes_on_exactly_without_its_sources(made, tmp_path, capsys, monkeypatch):
    bc = shutil.copytree(made.bc, tmp_path / "bc")
    words = ["train", LIFT, "--preset", "resfit", "--base", bc, "--steps", 96, "--episodes", 0, "--no-export"]
    assert gantry(*words, "--run-dir", "whole", *sets(RESFIT)) == 0
    interrupt_once(monkeypatch, "learn")
    assert gantry(*words, "--run-dir", "parts", *sets(RESFIT)) == 130
    assert "Continue with: gantry train --resume parts" in capsys.readouterr().err
    (_, half), (_, whole) = (load_newest(tmp_path / name / "checkpoints") for name in ("parts", "whole"))
    assert half["collector"]["env_steps"] < whole["collector"]["env_steps"] == 96
    shutil.rmtree(bc)
    assert gantry("train", "--resume", "parts", "--episodes", 0, "--no-export") == 0
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    (_, parts) = load_newest(tmp_path / "parts" / "checkpoints")
    for name, value in whole["learner"]["networks"]["critic"].items():
        assert torch.equal(value, parts["learner"]["networks"]["critic"][name]), name
    assert len(json.loads((tmp_path / "parts" / "config.json").read_text())["sessions"]) == 2


@pytest.mark.slow
def test_a_residual_is_scored_exported_checked_and_filmed(made, tmp_path, capsys):
    words = ["train", LIFT, "--preset", "resfit", "--base", made.bc, "--run-dir", "run", "--steps", 64]
    assert gantry(*words, "--episodes", 4, "--json", "learner.json", *sets(RESFIT)) == 0
    result = json.loads((tmp_path / "learner.json").read_text())
    scores = result["evaluation"]["training_model"]
    assert scores["episodes"] == 4
    assert scores["success_once"]["low"] <= scores["success_once"]["mean"] <= scores["success_once"]["high"]
    # The correction is at most 0.2 of a range that is itself at most 1.2 wide on either side.
    assert 0.0 <= scores["mean_residual"] <= 0.24
    assert scores["mean_base_action"] > 0.0
    bundle = load_bundle(tmp_path / "run" / "bundle")
    chunk = bundle.contract.chunk
    assert chunk is not None
    assert (chunk.steps, chunk.execute, chunk.residual) == (4, 3, True)
    assert bundle.card is not None
    assert bundle.card["evaluation"]["training_model"]["mean_residual"] == scores["mean_residual"]
    # Exit code 1, here and below: it does not do what the task asks for. The bundle acts as the run does.
    assert gantry("check", "run/bundle", "--episodes", 1, "--seconds", 0.3, "--perturbations", "none") == 1
    assert "pass  episodes" in capsys.readouterr().out
    assert gantry("eval", "run/bundle", "--episodes", 4, "--json", "bundle.json") == 1
    again = json.loads((tmp_path / "bundle.json").read_text())["training_model"]
    assert again["mean_base_action"] == pytest.approx(scores["mean_base_action"], abs=1e-3)
    assert again["mean_residual"] == pytest.approx(scores["mean_residual"], abs=1e-3)
    assert gantry("play", "run", "--video", "run.mp4", "--seconds", 0.1) == 0
    assert (tmp_path / "run.mp4").stat().st_size > 1000


@pytest.mark.slow
def test_rlpd_learns_from_the_same_demonstrations_and_its_bundle_plans_nothing(made, tmp_path, capsys):
    words = ["train", LIFT, "--preset", "rlpd", "--demos", made.demos, "--run-dir", "run", "--steps", 40]
    assert gantry(*words, "--episodes", 0, *sets(TINY_RL)) == 0
    assert load_bundle(tmp_path / "run" / "bundle").contract.chunk is None
    gantry("check", "run/bundle", "--episodes", 1, "--seconds", 0.1, "--perturbations", "none")
    assert "pass  episodes" in capsys.readouterr().out
    with np.load(tmp_path / "run" / "demos.npz") as file:
        assert file["lengths"].sum() == Dataset(made.demos).num_frames


@pytest.mark.filterwarnings("ignore:'Pendulum-v1' ended an episode without a word on success")
def test_an_environment_of_gymnasium_is_trained_and_scored_alike_and_not_exported(capsys):
    pytest.importorskip("gymnasium")
    tiny = (*TINY_RL[:3], "learner.warmup_steps=16", "learner.eval_every_steps=0", "env.num_envs=2", "env.processes=0")
    words = ["train", "gym:Pendulum-v1", "--preset", "sac", "--run-dir", "run", "--steps", 24, "--episodes", 2]
    assert gantry(*words, *sets((*tiny, "env.max_episode_steps=5"))) == 0
    assert gantry("eval", "run", "--episodes", 2) == 0
    assert "2 held-out episodes of gym:Pendulum-v1" in capsys.readouterr().out
    assert gantry("export", "run") == 2
    assert "has no contract" in capsys.readouterr().err


def test_an_expert_is_scored_like_a_policy(capsys):
    assert gantry("eval", LIFT, "--scripted", "--episodes", 4) == 0
    out = capsys.readouterr().out
    assert "4 held-out episodes of yam-lift" in out
    assert "success rate         1.000" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "yam-lft"], "Unknown task 'yam-lft'. Did you mean 'yam-lift'?"),
        (["train", LIFT], "Preset 'bc' learns from demonstrations; name a dataset with --demos FOLDER."),
        (["train", LIFT, "--demos", "dems"], "--demos: there is no dataset in 'dems'. Did you mean 'demos'?"),
        (["train", LIFT, "--demos", "demos"], "'demos' is no dataset"),
        (["train", LIFT, "--preset", "resfitt"], "Did you mean 'resfit'?"),
        (["train", LIFT, "--preset", "resfit", "--demos", "demos"], "name the run folder of a cloned one with --base"),
        (["train", LIFT, "--preset", "resfit", "--base", "no"], "'no' is no run folder"),
        (["train", LIFT, "--preset", "sac", "--demos", "demos"], "learns from no demonstrations"),
        (["train", LIFT, "--demos", "demos", "--set", "learner.step=3"], "Unknown field 'step'. Did you mean 'steps'?"),
        (["train", LIFT, "--demos", "demos", "--set", "steps=3"], "Did you mean 'learner.steps'?"),
        (["train", LIFT, "--demos", "demos", "--minutes", 1], "Cloning ends after a number of updates"),
        (["train", LIFT, "--algo", "ppo", "--teacher", "scripted"], "demonstrates, and guides no learner"),
        (["train", LIFT, "--algo", "sak"], "Unknown algorithm 'sak'. Did you mean 'sac'?"),
        (["train", LIFT, "--algo", "ppo", "--preset", "sac"], "Preset 'sac' is one of sac; leave out --preset"),
        (["train", LIFT, "--demos", "demos", "--seed", 10007], "Seed 10007 is held out for evaluation"),
        (["train", "velocity-flat-go2", "--demos", "demos"], "Preset 'cpu' learns from no demonstrations"),
        (["train", "--resume", "demos"], "'demos' is no run folder"),
        (["collect", "yam-lft", "--episodes", 3, "--output", "d"], "Did you mean 'yam-lift'?"),
        (["collect", LIFT, "--episodes", 0, "--output", "d"], "--episodes is 0, expected at least 1."),
        (
            ["collect", LIFT, "--episodes", 3, "--suboptimality", 2, "--output", "d"],
            "--suboptimality is 2, expected 0 to 1.",
        ),
        (["collect", LIFT, "--episodes", 3, "--output", "d", "--set", "env.acton=joint"], "Did you mean 'action'?"),
        (["collect", LIFT, "--episodes", 3, "--seed", 10007, "--output", "d"], "held out for evaluation"),
        (["collect", LIFT, "--episodes", 3, "--output", "demos"], "holds no dataset"),
        (["eval", "yam-lft", "--scripted"], "Did you mean 'yam-lift'?"),
        (["eval", LIFT, "--scripted", 3], "--scripted is 3, expected a suboptimality from 0 to 1."),
        (["eval", LIFT], "There is no run folder and no bundle at yam-lift."),
        (["tasks", LIFT, "--preset", "rlp"], "Did you mean 'rlpd'?"),
    ],
)
def test_a_mistake_is_one_message_and_nothing_is_written(tmp_path, capsys, words, message):
    (tmp_path / "demos").mkdir()
    (tmp_path / "demos" / "notes.txt").touch()
    assert gantry(*words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("Error: ")
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demos"]


def rewritten(source, folder, change=lambda frame: frame, **changes):
    """A dataset of the same frames as another program would write it."""
    data = Dataset(source)
    options = {"fps": data.fps, "robot_type": data.robot_type, "features": data.features, **changes}
    with DatasetWriter(folder, **options) as writer:
        for row in data.episodes:
            for frame in data.iter_frames(row.index):
                writer.add_frame(change(frame))
            writer.end_episode(row.tasks[0])
    return folder


def changed_action(frame):
    return {**frame, "action": frame["action"] * 100.0}


def collect_push(folder):
    assert gantry("collect", "yam-push", "--episodes", 1, "--envs", 1, "--output", folder) == 0


@pytest.mark.parametrize("preset", ["bc", "rlpd", "wsrl"])
def test_every_learner_refuses_demonstrations_of_another_task_rate_robot_or_range(made, tmp_path, capsys, preset):
    cases = {
        "push": (
            lambda folder: gantry("collect", "yam-push", "--episodes", 1, "--envs", 1, "--output", folder),
            "yam-push",
        ),
        "rate": (lambda folder: rewritten(made.demos, folder, fps=60), "rate is 60 Hz there, 20 Hz here"),
        "robot": (lambda folder: rewritten(made.demos, folder, robot_type="so100_follower"), "'so100_follower' there"),
        "range": (lambda folder: rewritten(made.demos, folder, changed_action), "takes -0.02 to 0.02 m"),
    }
    for name, (make, message) in cases.items():
        make(tmp_path / name)
        task = "yam-pick-place" if name == "push" else LIFT
        assert gantry("train", task, "--preset", preset, "--demos", tmp_path / name, "--run-dir", "run") == 2
        err = capsys.readouterr().err
        assert message in err
        if name == "range":
            assert "in frame" in err
            assert "'delta_" in err or "'gripper.pos'" in err
        assert not (tmp_path / "run").exists()


def test_a_residual_does_not_take_the_demonstrations_of_another_task(made, tmp_path, capsys):
    words = ["train", LIFT, "--preset", "resfit", "--base", made.bc, "--run-dir", "run", *sets(RESFIT)]
    assert gantry(*words, "--demos", rewritten(made.demos, tmp_path / "rate", fps=60)) == 2
    assert "rate is 60 Hz there, 20 Hz here" in capsys.readouterr().err
    bc = shutil.copytree(made.bc, tmp_path / "bc")
    with np.load(bc / "demos.npz") as file:
        arrays = dict(file)
    arrays["described"] = np.array(str(arrays["described"]).replace("yam-lift", "yam-push"))
    np.savez(bc / "demos.npz", **arrays)
    assert gantry("train", LIFT, "--preset", "resfit", "--base", bc, "--run-dir", "run", *sets(RESFIT)) == 2
    assert "task is 'yam-push' there, 'yam-lift' here" in capsys.readouterr().err
    assert gantry("train", "--resume", bc) == 2
    assert "task is 'yam-push' there, 'yam-lift' here" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_was_changed_since_it_was_collected_teaches_nothing(made, tmp_path, capsys):
    folder = shutil.copytree(made.demos, tmp_path / "demos")
    info = json.loads((folder / "meta/info.json").read_text())
    (folder / "meta/info.json").write_text(json.dumps(info))  # The same description in other bytes.
    assert gantry("train", LIFT, "--demos", folder, "--run-dir", "run") == 2
    assert "its content has changed" in capsys.readouterr().err
    assert gantry("collect", LIFT, "--episodes", 9, "--output", folder) == 2
    assert "its content has changed" in capsys.readouterr().err
    assert gantry("data", "replay", folder, "--backend", "mock") == 2
    assert gantry("data", "check", folder) == 1
    capsys.readouterr()
    assert gantry("data", "check", folder, "--accept-changes") == 0
    assert "is intact" in capsys.readouterr().out


def test_datasets_hold_physical_values_and_old_ones_are_collected_anew(made, tmp_path, capsys):
    data = Dataset(made.demos)
    state = data.features["observation.state"]
    assert state.names == (*(f"joint{i}.pos" for i in range(1, 7)), "gripper.pos")
    assert state.unit_of_each == ("rad",) * 6 + ("m",)
    frames = data.frames(0)
    spec = robot_spec("yam")
    off = np.abs(frames["observation.state"][0] - spec.array("default_rad")).max()
    assert off < 0.2, "rad where the joints are, and not relative to the default pose"
    measured = np.diff(frames["observation.state"][:, :6], axis=0) * data.fps
    between = 0.5 * (frames["observation.velocity"][1:, :6] + frames["observation.velocity"][:-1, :6])
    assert np.corrcoef(measured.ravel(), between.ravel())[0, 1] > 0.9
    ratio = float((measured * between).sum() / (between**2).sum())
    assert 0.5 < ratio < 2.0, "rad/s, and not a fifth of it"  # At the end of a step joints are slower than within it.
    assert np.abs(frames["action"][:, :3]).max() <= 0.02 + 1e-9
    assert "license: unknown" in (made.demos / "README.md").read_text()
    folder = shutil.copytree(made.demos, tmp_path / "demos")
    notes = json.loads((folder / "gantry.json").read_text())
    (folder / "gantry.json").write_text(json.dumps({"task": notes["task"], "env": notes["env"]}))
    assert gantry("data", "check", folder, "--accept-changes") == 1
    assert "older version of Gantry" in capsys.readouterr().out
    assert gantry("train", LIFT, "--demos", folder, "--run-dir", "run") == 2
    assert "collect it anew" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["mock", "mujoco", "workbench"])
def test_what_collect_writes_is_replayed_through_the_policys_decoder(made, tmp_path, capsys, backend):
    assert gantry("data", "replay", made.demos, "--backend", backend, "--json", "told.json") == 0
    told = json.loads((tmp_path / "told.json").read_text())["robot"]
    assert told["actions"] == Dataset(made.demos).episodes[0].length
    assert told["mean_tracking_error_rad"] < 0.1


def test_replayed_steps_lead_where_they_led(made):
    robot = make_backend("mock", robot_spec("yam"))
    robot.connect()
    data = Dataset(made.demos)
    replayed = replay_episode(data, 0, robot)
    recorded = data.frames(0, ["observation.state"])["observation.state"]
    reached = replayed.measured_rad[-1]
    moved = np.abs(recorded[-1] - recorded[0])[:6].max()
    assert np.abs(reached - recorded[-1])[:6].max() < 0.5 * moved  # The mock follows at once.
    last = robot.commands[-1]
    assert last.stiffness_nm_rad.min() > 0.0, "an arm holds at the end, where a damped one would fall"


def test_a_full_disk_ends_collect_with_a_message(tmp_path):
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); "
        "from gantry_deploy.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["collect", LIFT, "--episodes", "2", "--envs", "2", "--output", str(tmp_path / "d")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("Error: ")
    assert "could not be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rate_that_is_no_whole_number_is_not_rounded(tmp_path, capsys):
    words = ["collect", LIFT, "--episodes", 1, "--output", "d", "--set", "env.rate_hz=12.5"]
    assert gantry(*words) == 2
    assert "env.rate_hz is 12.5; a dataset holds a whole number of frames per second" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_sources_that_do_not_fit_are_refused_with_what_differs(made, tmp_path, capsys):
    joint = ["--set", "env.action=joint"]
    assert gantry("collect", LIFT, "--episodes", 9, "--output", made.demos, *joint) == 2
    assert "env.action is 'ee' there, 'joint' here" in capsys.readouterr().err
    assert gantry("train", LIFT, "--demos", made.demos, *joint) == 2
    assert "'action' lacks joint1.delta" in capsys.readouterr().err
    assert gantry("train", LIFT, "--preset", "resfit", "--base", made.bc, *joint) == 2
    assert "was trained with another" in capsys.readouterr().err
    assert gantry("train", "yam-push", "--preset", "resfit", "--base", made.bc) == 2
    assert "goal_from_object here" in capsys.readouterr().err
    assert gantry("train", LIFT, "--demos", made.demos, "--run-dir", made.bc) == 2
    assert "already holds a run. Continue it with --resume" in capsys.readouterr().err
    assert gantry("eval", made.bc, "--suite", "ame2") == 2
    assert gantry("play", made.bc, "--command", "0,0,0", "--video", "x.mp4") == 2
    assert gantry("eval", made.bc, "--seed", 1, "--episodes", 2) == 2
    assert "held-out episodes need another" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
