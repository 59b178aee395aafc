"""A cloned policy and its demonstrations, made once by the real commands on tiny settings."""

import os
from types import SimpleNamespace

import pytest

from gantry_deploy.cli import main as cli

LIFT = "yam-lift"
TINY_BC = ("learner.network.hidden=[16]", "learner.batch_size=32", "learner.execute_steps=3", "learner.chunk_steps=4")
TINY_RL = (
    *("learner.agent.actor.hidden=[16]", "learner.agent.critic.hidden=[16]", "learner.agent.batch_size=16"),
    *("learner.warmup_steps=24", "learner.log_every_steps=16", "learner.eval_every_steps=0", "env.num_envs=4"),
    "env.episode_s=0.5",
)
RESFIT = (*TINY_RL, "learner.critic_warmup_updates=2")


def gantry(*words):
    """The command's exit code."""
    return cli.main([str(word) for word in words])


def sets(changes):
    return [word for change in changes for word in ("--set", change)]


@pytest.fixture(autouse=True)
def here(one_thread):
    """Everything is written below the temporary folder, by one thread."""


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Folders of demonstrations and of a run that cloned them; tests leave them as they are."""
    folder = tmp_path_factory.mktemp("arm")
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert gantry("collect", LIFT, "--episodes", 4, "--envs", 4, "--output", "demos", "--json", "demos.json") == 0
        words = ["train", LIFT, "--demos", "demos", "--run-dir", "bc", "--steps", 20, "--episodes", 0, "--no-export"]
        assert gantry(*words, *sets(TINY_BC)) == 0
    finally:
        os.chdir(before)
    return SimpleNamespace(demos=folder / "demos", bc=folder / "bc", told=folder / "demos.json")
