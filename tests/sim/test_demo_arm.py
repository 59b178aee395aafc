"""The demo of an arm: what it reads back from episodes, what it judges, its page, and learning in miniature."""

import json
import os
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
from gantry_sim.cli.arm_train import ArmDisplay

from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Acceptance, ChunkSpec, Provenance
from gantry_deploy.testing.arm import arm_bundle, grasping_contract, grasping_plan
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.demo.arm.episodes import Trial, read_trials
from gantry_sim.demo.arm.learning import BASE, RESIDUAL, Display, Recipe, corrections, looks
from gantry_sim.demo.arm.measured import measure_arm
from gantry_sim.demo.arm.outcome import arm_result
from gantry_sim.demo.arm.pipeline import ArmDemo, ArmDemoConfig, write_arm_outcome
from gantry_sim.training.demos import load_demos

YAM = robot_spec("yam")
ADDED = (0.01, -0.02, 0.03, -0.04)
"""What the correction of the bundle below adds to every action."""
MUTE = Display(*[lambda *_: None] * 3, share=lambda _: lambda _: None)


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
    recipe = Recipe(episodes=0)
    config = ArmDemoConfig(folder / "out", recipe, folder / "given", False, 2, video=False, realtime=False)
    return ArmDemo(config, MUTE).run()


def test_the_recording_tells_what_the_base_wanted_and_what_was_added(outcome):
    found = outcome.measured
    assert len(found.episodes) == 2
    assert outcome.rerun < 1e-6
    assert found.labels == ["forward", "left", "up", "gripper"]
    for episode in found.episodes:
        assert len(episode.time_s) == len(episode.action) > 20
        np.testing.assert_allclose(np.diff(episode.time_s), 0.05, atol=1e-6)
        wanted = np.clip(episode.base_action + np.array(ADDED, np.float32), -1.0, 1.0)
        np.testing.assert_allclose(episode.action, wanted, atol=1e-6)
        # The plan is linear in where the object is from the hand when it is first seen: across in ten steps.
        np.testing.assert_allclose(episode.base_action[:10, :2], [episode.observation[0, :2] / 0.2] * 10, atol=1e-5)
        assert episode.done_after_s == pytest.approx(episode.time_s[-1], abs=1e-6)
        # Until the object lies 10 cm higher, and then the arm is held for a while.
        raised = episode.shown_object_pose_in_base[:, 2] - episode.shown_object_pose_in_base[0, 2]
        assert raised[: len(episode.time_s) - 1].max() < 0.1 <= raised[len(episode.time_s) - 1] + 1e-4
        assert episode.shown_s[-1] - episode.time_s[-1] == pytest.approx(0.7, abs=0.11)
    first, second = (episode.shown_object_pose_in_base[0, :2] for episode in found.episodes)
    assert np.linalg.norm(first - second) > 0.01


def test_the_page_stands_alone_and_shows_base_against_correction(outcome):
    assert outcome.passed
    page = (outcome.folder / "report.html").read_text()
    assert "A YAM knows how to lift a cube, and does it in one process" in page
    assert page.count("<svg") == 4
    assert "mean |base action| and |correction|" in page
    assert "Not over ROS 2: it was asked to do without." in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", page), "it asks nothing of the network"
    result = json.loads((outcome.folder / "demo.json").read_text())
    assert result["passed"] is True
    assert result["episodes"]["success"]["mean"] == 1.0
    assert result["episodes"]["each"][0]["max_correction"] <= 0.041
    assert result["episodes"]["timing"]["network"]["count"] == sum(len(e.time_s) for e in outcome.measured.episodes)


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        (lambda o: {"asked": 3}, "in one process: success"),
        (lambda o: {"walk": replace(o.walk, completed=False, trouble="the arm is hot")}, "in one process: faults"),
        (lambda o: {"stages": [*o.stages, replace(o.stages[0], passed=False)]}, "check: manifest"),
        (lambda o: {"measured": None}, "in one process: success"),
    ],
)
def test_one_miss_is_a_no_and_the_page_says_which(outcome, tmp_path, change, missed):
    worse = replace(outcome, folder=tmp_path, **change(outcome))
    assert worse.missed == [missed]
    assert arm_result(worse)["passed"] is False
    # Without figures, which take seconds.
    page = write_arm_outcome(replace(worse, measured=None)).read_text()
    assert missed in page
    assert worse.walk.trouble in page


def test_an_episode_that_nobody_saw_to_its_end_is_not_done(outcome):
    seen = read_trials(outcome.folder)
    assert [trial.done for trial in seen] == [True, True]
    found = measure_arm(outcome.walk.recording, seen[:1])
    assert [episode.trial.done for episode in found.episodes] == [True, False]
    assert found.episodes[1].done_after_s is None
    assert read_trials(outcome.folder / "nowhere") == ()
    with pytest.raises(GantryError, match="cannot be read"):
        measure_arm(outcome.folder / "no.mcap", (Trial(True),))


@pytest.mark.slow
def test_from_nothing_and_ctrl_c_while_the_correction_is_learned(tmp_path, monkeypatch, capsys):
    def update(self, progress):
        if progress.phase == "learn" and progress.env_steps >= 32:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ArmDisplay, "update", update)
    output = tmp_path / "out"
    words = ["--demos", "2", "--clone-updates", "5", "--steps", "96", "--episodes", "2", "--output", str(output)]
    assert main(["demo", "--arm", *words]) == 130
    said = capsys.readouterr().out
    assert "[4/9] Learn a correction by trying, 96 steps" in said
    assert f"gantry train --resume {output / RESIDUAL}" in said
    demos = load_demos(output / BASE)
    assert demos is not None
    assert len(demos.lengths) == 2
    assert json.loads((output / BASE / "evaluation.json").read_text())["episodes"] == 2
    assert [look["env_steps"] for look in looks(output / RESIDUAL)] == [0]
    assert [row["env_steps"] for row in corrections(output / RESIDUAL)][-1] == 32
    assert not (output / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "--seconds", "5"], "--seconds belongs to policies that walk"),
        (["--arm", "--pretrained"], "--pretrained belongs to"),
        (["--arm", "--task", "velocity-flat-go2"], "yam-lift"),
        (["--task", "yam-lift", "--suboptimality", "2"], "--suboptimality is 2, expected 0 to 1"),
        (["--arm", "--trials", "0"], "--trials is 0"),
        (["--arm", "--seed", "10007"], "10007"),
        (["--demos", "30"], "ask for one with --arm"),
        (["--arm", "--bundle", "no/such"], "no/such"),
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
    assert "with --bundle nothing is learned" in capsys.readouterr().err
    assert main(["demo", "--arm", "--bundle", given, "--output", str(outcome.folder)]) == 2
    assert "in use" in capsys.readouterr().err
