"""A policy's own rollouts, and a clone learned further from them, by the real commands."""

import json
import shutil

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.dataset.reader import Dataset
from gantry_policies.common.checkpoint import load_newest

from .conftest import LIFT, TINY_BC, gantry, sets

TINY = (
    *("learner.agent.critic.hidden=[16]", "learner.agent.critic.heads=2", "learner.agent.batch_size=16"),
    *("learner.agent.chunk_steps=4", "learner.agent.n_step=3", "learner.critic_warmup_updates=4"),
    *("learner.log_every_steps=4", "env.num_envs=2"),
)
SHORT = ("--set", "env.episode_s=1.0", "--envs", 2)


@pytest.mark.slow
def test_rollouts_with_failures_are_learned_from_and_the_bundle_plans_as_the_clone_does(made, tmp_path, capsys):
    assert gantry("collect", LIFT, "--policy", made.bc, "--episodes", 3, *SHORT, "--output", "rollouts") == 0
    assert f"policy {made.bc}" in capsys.readouterr().out
    data = Dataset(tmp_path / "rollouts")
    assert data.num_episodes == 3
    frames = [data.frames(row.index) for row in data.episodes]
    assert not any(frame["complementary_info.is_demo"].any() for frame in frames)
    assert not all(frame["next.success"].any() for frame in frames)  # A clone of 20 updates fails, and is kept.
    assert gantry("collect", LIFT, "--policy", made.bc, "--episodes", 4, *SHORT, "--output", "rollouts") == 0
    shutil.copytree(made.bc, tmp_path / "bc")
    words = ["train", LIFT, "--algo", "co-rft", "--demos", "rollouts", "--base", "bc", "--run-dir", "run"]
    short = sets((*TINY, "env.episode_s=1.0"))
    assert gantry(*words, "--steps", 8, "--episodes", 2, "--json", "learner.json", *short) == 0
    result = json.loads((tmp_path / "learner.json").read_text())
    assert (result["algorithm"], result["env_steps"]) == ("co-rft", 0)
    assert result["evaluation"]["training_model"]["episodes"] == 2
    with np.load(tmp_path / "run" / "demos.npz") as file:
        assert file["lengths"].sum() == Dataset(tmp_path / "rollouts").num_frames
    bundle = load_bundle(tmp_path / "run" / "bundle")
    chunk = bundle.contract.chunk
    assert chunk is not None
    assert (chunk.steps, chunk.execute, chunk.residual) == (4, 3, False)
    gantry("check", "run/bundle", "--episodes", 1, "--seconds", 0.1, "--perturbations", "none")
    assert "pass  episodes" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "bc")
    shutil.rmtree(tmp_path / "rollouts")
    assert gantry("train", "--resume", "run", "--steps", 12, "--episodes", 0, "--no-export") == 0
    assert load_newest(tmp_path / "run" / "checkpoints")[1]["counters"]["pretrained"] == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", LIFT, "--algo", "co-rft"], "learns from demonstrations; name a dataset with --demos FOLDER"),
        (
            ["train", LIFT, "--algo", "co-rft", "--demos", "DEMOS"],
            "name the run folder of a cloned one with --base RUN",
        ),
        (["train", LIFT, "--algo", "co-rft", "--base", "BC"], "set learner.agent.chunk_steps=4"),
        (["collect", "yam-push", "--policy", "BC", "--episodes", 2, "--output", "d"], "a policy of task 'yam-lift'"),
        (
            ["collect", LIFT, "--policy", "BC", "--suboptimality", 0.5, "--episodes", 2, "--output", "d"],
            "leave it out with --policy",
        ),
    ],
)
def test_what_is_missing_or_does_not_fit_is_said(words, message, made, capsys):
    where = {"BC": made.bc, "DEMOS": made.demos}
    assert gantry(*[where.get(word, word) for word in words]) == 2
    assert message in capsys.readouterr().err
    assert TINY_BC[-1] == "learner.chunk_steps=4"
