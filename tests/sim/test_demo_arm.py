"""The demo of an arm: what it reads back from episodes, what it judges, its page, and learning in miniature."""

import json
import os
import re
import signal
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Acceptance, ChunkSpec, Provenance
from gantry_deploy.control.supervised_run import SETTLE_S
from gantry_fixtures.arm import arm_bundle, grasping_contract, grasping_plan
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.cli.common import ProgressBar
from gantry_sim.demo.measured import Trial, measure_episodes, read_trials
from gantry_sim.demo.pipeline import Demo, write_outcome
from gantry_sim.demo.rollout import TRIALS
from gantry_sim.demo.scenario import DemoConfig, Display
from gantry_sim.demo.scenarios.arm import Arm
from gantry_sim.demo.scenarios.arm_page import labels
from gantry_sim.demo.stages import BASE, RESIDUAL, metrics_of
from gantry_sim.training.demos import load_demos

YAM = robot_spec("yam")
ADDED = (0.01, -0.02, 0.03, -0.04)
"""What the correction of the bundle below adds to every action."""


def correcting_bundle(folder):
    """A blind plan that grasps and lifts, as the base of a correction that is always the same."""
    contract, (weight, bias) = grasping_contract(YAM), grasping_plan()
    assert contract.chunk is not None
    steps = contract.chunk.steps
    contract = replace(
        contract,
        chunk=ChunkSpec(steps, steps, residual=True),
        acceptance=Acceptance(min_success_rate=0.8),
        provenance=Provenance(task="yam-lift", preset="by hand"),
    )
    base, none = {"weight": weight, "bias": bias}, np.zeros((contract.observation_size, 4))
    return arm_bundle(folder, contract, base=base, steps=2, weight=none, bias=np.array(ADDED))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Of a demo of that bundle, in this process."""
    folder = tmp_path_factory.mktemp("demo")
    correcting_bundle(folder / "given")
    config = DemoConfig(folder / "out", folder / "given", ros=False, episodes=0, video=False, realtime=False)
    return Demo(Arm(trials=2), config, Display()).run()


def rolled_out(outcome, **changes):
    """The same outcome with other recorded episodes."""
    return replace(outcome, recorded=(replace(outcome.recorded[0], **changes),))


def test_the_recording_tells_what_the_base_wanted_and_what_was_added(outcome):
    (found,) = outcome.recorded
    assert len(found.episodes) == 2
    assert found.rerun < 1e-6
    assert labels(outcome.bundle.contract) == ["forward", "left", "up", "gripper"]
    for episode in found.episodes:
        assert len(episode.time_s) == len(episode.action) > 20
        np.testing.assert_allclose(np.diff(episode.time_s), 0.05, atol=1e-6)
        wanted = np.clip(episode.base_action + np.array(ADDED, np.float32), -1.0, 1.0)
        np.testing.assert_allclose(episode.action, wanted, atol=1e-6)
        # The plan is linear in where the object is from the hand when it is first seen: across in ten steps.
        np.testing.assert_allclose(episode.base_action[:10, :2], [episode.observation[0, :2] / 0.2] * 10, atol=1e-5)
        assert episode.done_after_s == pytest.approx(episode.time_s[-1], abs=1e-6)
        # Until the object lies 10 cm higher, and then the arm is held for a while.
        raised = episode.shown_things_in_base[:, 0, 2] - episode.shown_things_in_base[0, 0, 2]
        assert raised[: len(episode.time_s) - 1].max() < 0.1 <= raised[len(episode.time_s) - 1] + 1e-4
        assert episode.shown_s[-1] - episode.time_s[-1] == pytest.approx(SETTLE_S, abs=0.11)
    first, second = (episode.shown_things_in_base[0, 0, :2] for episode in found.episodes)
    assert np.linalg.norm(first - second) > 0.01


def test_the_page_stands_alone_and_shows_base_against_correction(outcome):
    assert outcome.passed
    page = (outcome.config.output / "report.html").read_text()
    assert "A YAM knows how to lift a cube, and does it in one process" in page
    assert page.count("<svg") == 4
    assert "mean |base action| and |correction|" in page
    assert "Not over ROS 2: it was asked to do without." in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", page), "it asks nothing of the network"
    result = json.loads((outcome.config.output / "demo.json").read_text())
    assert result["passed"] is True
    (rollout,) = result["rollouts"]
    assert rollout["success"]["mean"] == 1.0
    assert rollout["episodes"][0]["max_correction"] <= 0.041
    assert rollout["timing"]["network"]["count"] == sum(len(e.time_s) for e in outcome.recorded[0].episodes)


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        (lambda one: replace(one, scenario=Arm(trials=3)), "in one process: success"),
        (
            lambda one: rolled_out(
                one, rollout=replace(one.recorded[0].rollout, completed=False, trouble="the arm is hot")
            ),
            "in one process: faults",
        ),
        (
            lambda one: replace(one, gate=replace(one.gate, stages=(replace(one.gate.stages[0], passed=False),))),
            "check: manifest",
        ),
        (lambda one: rolled_out(one, episodes=()), "in one process: success"),
    ],
)
def test_one_miss_is_a_no_and_the_page_says_which(outcome, tmp_path, change, missed):
    worse = change(replace(outcome, config=replace(outcome.config, output=tmp_path)))
    assert worse.missed == [missed]
    assert worse.result()["passed"] is False
    # Without figures, which take seconds.
    page = write_outcome(rolled_out(worse, episodes=())).read_text()
    assert missed in page
    assert worse.recorded[0].rollout.trouble in page


def test_an_episode_that_nobody_saw_to_its_end_is_not_done(outcome):
    seen = read_trials(outcome.config.output / TRIALS)
    assert [trial.done for trial in seen] == [True, True]
    found = measure_episodes(outcome.recorded[0].rollout.recording, seen[:1])
    assert [episode.trial.done for episode in found] == [True, False]
    assert found[1].done_after_s is None
    assert read_trials(outcome.config.output / "nowhere" / TRIALS) == ()
    with pytest.raises(GantryError, match="cannot be read"):
        measure_episodes(outcome.config.output / "no.mcap", (Trial(True),))


@pytest.mark.slow
def test_from_nothing_and_ctrl_c_while_the_correction_is_learned(tmp_path, monkeypatch, capsys):
    def update(self, progress):
        if progress.phase == "learn" and progress.env_steps >= 32:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "update", update)
    output = tmp_path / "out"
    words = ["--demos", "2", "--clone-updates", "5", "--steps", "96", "--episodes", "2", "--output", str(output)]
    assert main(["demo", "--arm", *words]) == 130
    said = capsys.readouterr().out
    assert "[4/9] Learn a correction by trying, 96 steps" in said
    assert f"gantry train --resume {output / RESIDUAL}" in said
    demos = load_demos(output / BASE)
    assert demos is not None
    assert len(demos.lengths) == 2
    assert json.loads((output / BASE / "evaluation.json").read_text())["training_model"]["episodes"] == 2
    assert [look["env_steps"] for look in metrics_of(output / RESIDUAL, "eval")] == [0]
    assert [row["env_steps"] for row in metrics_of(output / RESIDUAL, "train")][-1] == 32
    assert not (output / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "--seconds", "5"], "--seconds belongs to demos of policies that follow velocities"),
        (["--arm", "--pretrained"], "--pretrained belongs to"),
        (["--arm", "--task", "velocity-flat-go2"], "yam-lift"),
        (["--task", "yam-lift", "--suboptimality", "2"], "--suboptimality is 2, expected 0 to 1"),
        (["--arm", "--trials", "0"], "--trials is 0"),
        (["--arm", "--seed", "10007"], "10007"),
        (["--demos", "30"], "Ask for an arm with --arm"),
        (["--arm", "--bundle", "no/such"], "no/such"),
        (["--arm", "--bundle", "pretrained:ame2-go2-student"], "is a policy for demos of policies that walk to goals"),
        (["--bundle", "pretrained:drive-race"], "There is no demo of embodiment 'car'"),
        (["--task", "drive-lane"], "There is no demo of embodiment 'car', which 'drive-lane' has"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(tmp_path, capsys, arguments, message):
    output = tmp_path / "demo"
    assert main(["demo", *arguments, "--output", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_learning_is_not_asked_of_a_finished_policy(outcome, capsys):
    given = str(outcome.bundle.path)
    assert main(["demo", "--bundle", given, "--steps", "100"]) == 2
    assert "is about learning; --bundle, --language and --pretrained train nothing" in capsys.readouterr().err
    assert main(["demo", "--arm", "--bundle", given, "--output", str(outcome.config.output)]) == 2
    assert "in use" in capsys.readouterr().err
