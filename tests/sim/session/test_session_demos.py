"""Attempts of a correction session as demonstrations of a training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.dataset.notes import COMMAND, POLICY, make_session_notes
from gantry_deploy.errors import DatasetError
from gantry_deploy.session.records.dataset import SessionDataset
from gantry_deploy.session.steps import Actor, SessionStep
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.demos import load_demos, require_demos
from gantry_sim.training.read_demos import read_demos
from gantry_sim.training.run_cfg import RunCfg

TASK = "drive-traffic"
CONTRACT = load_bundle(find_bundle(f"pretrained:{TASK}")).contract
SEED = 3


def attempt(episode: int, length: int, success: bool) -> list[SessionStep]:
    rng = np.random.default_rng(SEED + episode)
    steps = []
    for index in range(length):
        obs = {"state": rng.normal(size=CONTRACT.observation_size).astype(np.float32)}
        action = rng.uniform(-1.0, 1.0, CONTRACT.action_size).astype(np.float32)
        steps.append(SessionStep(episode, index, 0.1 * index, obs, action, action, Actor.POLICY))
    steps[-1] = replace(steps[-1], success=success, terminated=True, reward=float(success), last_obs=steps[-1].obs)
    return steps


def session(folder: Path, outcomes: tuple[bool, ...], values: str = POLICY, contract=CONTRACT, resume=False) -> Path:
    notes = make_session_notes(TASK, contract, values)
    with SessionDataset(folder, None, 10, contract.robot, TASK, notes=notes, resume=resume) as dataset:
        for number, success in enumerate(outcomes):
            for step in attempt(number, 4 + number, success):
                dataset.add(step)
    return folder


def run_of(task: str, **changes: object) -> RunCfg:
    preset = find_task(task).preset("cpu")
    return RunCfg(find_task(task), "cpu", replace(preset, env=replace(preset.env, **changes)), "cpu", 1)


def test_successful_attempts_are_taken_as_they_were_seen(tmp_path, caplog):
    """Policies of this task see three past steps, which datasets of physical values do not hold."""
    with caplog.at_level("INFO"):
        demos = read_demos(session(tmp_path / "s", (False, True, True)), run_of(TASK))
    assert "1 of 3 attempts" in caplog.text
    assert (demos.lengths, demos.terminated) == ((5, 6), (True, True))
    assert demos.reward.tolist() == [0.0] * 4 + [1.0] + [0.0] * 5 + [1.0]
    expected = np.stack([step.obs["state"] for step in attempt(1, 5, True)])
    np.testing.assert_array_equal(demos.obs[STATE][:5].numpy(), expected)
    demos.save(tmp_path)
    copied = load_demos(tmp_path)
    assert copied is not None
    assert torch.equal(copied.action, demos.action)
    require_demos(copied, run_of(TASK), "copy")
    with pytest.raises(GantryError, match=r"'copy' does not fit the task 'drive-traffic': observations"):
        require_demos(copied, run_of(TASK, history=2), "copy")


def test_what_does_not_fit_is_refused_with_the_difference(tmp_path):
    good = session(tmp_path / "s", (True,))
    with pytest.raises(GantryError, match="does not fit the task 'drive-lane': task is 'drive-traffic' there"):
        read_demos(good, run_of("drive-lane"))
    with pytest.raises(GantryError, match="None of the 2 attempts"):
        read_demos(session(tmp_path / "lost", (False, False)), run_of(TASK))
    with pytest.raises(GantryError, match="commands were corrected"):
        read_demos(session(tmp_path / "commands", (True,), COMMAND), run_of(TASK))
    session(good, (True,), resume=True)
    other = replace(CONTRACT, rate_hz=20.0)
    with pytest.raises(DatasetError, match=r"recorded with another policy: rate_hz is 10.0 there, 20.0 here"):
        session(good, (True,), contract=other, resume=True)
