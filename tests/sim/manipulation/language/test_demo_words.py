"""The demo of an arm that is told in words: sentences that a person types, episodes, recording and page."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Acceptance, Provenance
from gantry_deploy.errors import InstructionError
from gantry_deploy.recording.reader import read_recording
from gantry_fixtures.arm import arm_bundle, grasping_contract, grasping_plan, told_contract, told_plan
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.cli.demo import TOLD
from gantry_sim.demo.pipeline import Demo
from gantry_sim.demo.scenario import DemoConfig, Display
from gantry_sim.demo.scenarios.arm import Arm
from gantry_sim.demo.scenarios.arm_words import choose_instructions, scene_text
from gantry_sim.demo.stages import EPISODES_SEED
from gantry_sim.tasks.manipulation.language.instructions import instruction_spec
from gantry_sim.tasks.manipulation.workbench import WORKBENCHES

pytestmark = pytest.mark.usefixtures("one_thread")

YAM, TASK, RED = robot_spec("yam"), "yam-tell-pick", "Pick up the red cube!"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Lifts the red cube, whatever it is told."""
    provenance, acceptance = Provenance(task=TASK, preset="by hand"), Acceptance(min_success_rate=0.5)
    contract = told_contract(YAM, instruction_spec(), provenance=provenance, acceptance=acceptance)
    weight, bias = told_plan()
    return arm_bundle(tmp_path_factory.mktemp("told") / "b", contract, weight=weight, bias=bias, steps=60).path


def own_sentences(count):
    """What the task asks for in the scenes of the recorded episodes."""
    robot, found = BenchRobot(YAM, task=TASK, seed=EPISODES_SEED), []
    robot.connect()
    for _ in range(count):
        robot.reset()
        found.append(robot.instruction)
    robot.close()
    return found


def test_a_scene_is_told_from_left_to_right():
    things = np.array([[0.30, -0.1, 0.02], [0.30, 0.1, 0.02], [0.25, 0.0, 0.02]])
    zones = np.array([[0.4, 0.05, 0.0], [0.4, -0.1, 0.0]])
    told = scene_text(things, zones, WORKBENCHES["tell"])
    behind = "behind them yellow disc, white disc"
    assert told == f"green cube (32 cm away), blue cylinder (25 cm away), red cube (32 cm away); {behind}"


def test_a_person_is_asked_until_it_says_one_thing(bundle, tmp_path):
    lines, said = iter(["fetch beer", "pick up the cube", "lift the redd thing", RED, ""]), []

    def read(prompt):
        said.append(prompt)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    told = choose_instructions(TASK, load_bundle(bundle), 4, (), tmp_path, said.append, read)
    assert told == (RED, *own_sentences(4)[1:])
    text = "\n".join(said)
    assert "The policy knows no word of the instruction 'fetch beer'" in text
    assert text.count("That does not say one thing in this scene.") == 2
    assert "'redd' (did you mean 'red'?)" in text
    assert text.count("Episode ") == 3, "after the end of the input nobody is asked"
    assert (tmp_path / "scene.png").stat().st_size > 10_000


def test_given_sentences_are_taken_where_they_say_one_thing(bundle, tmp_path):
    said = []
    told = choose_instructions(TASK, load_bundle(bundle), 2, ("take the cube", RED), tmp_path, said.append)
    assert told == (own_sentences(1)[0], RED)
    assert len(said) == 1
    assert "'take the cube' does not say one thing in its scene" in said[0]


def test_episodes_follow_what_they_are_told(bundle, tmp_path):
    scenario = Arm(trials=2, instructions=(RED, "pick up the cylinder"))
    config = DemoConfig(tmp_path / "out", bundle, ros=False, episodes=0, video=False, realtime=False)
    outcome = Demo(scenario, config, Display()).run()
    first, second = outcome.recorded[0].episodes
    assert (first.instruction, first.trial.done) == (RED, True)
    assert (second.instruction, second.trial.done) == ("pick up the cylinder", False)
    # The red cube is the bench's first thing; it was lifted, and of the others' places nothing changed.
    raised = first.shown_things_in_base[:, :, 2] - first.shown_things_in_base[0, :, 2]
    assert raised[:, 0].max() > 0.09
    assert np.abs(raised[:, 1:]).max() < 0.01
    assert first.fixtures_in_base_m.shape == (2, 3)
    recording = read_recording(tmp_path / "out" / "walk.mcap")
    assert set(recording["/instruction"]["data"].tolist()) == {RED, "pick up the cylinder"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert RED in page
    assert "pick up the cylinder" in page
    rows = json.loads((tmp_path / "out" / "demo.json").read_text())["rollouts"][0]["episodes"]
    assert [row["instruction"] for row in rows] == [RED, "pick up the cylinder"]


def test_what_it_could_not_follow_is_refused(bundle, tmp_path, capsys):
    with pytest.raises(InstructionError, match="'fetch beer'"):
        Arm(instructions=("fetch beer",)).require(load_bundle(bundle))
    weight, bias = grasping_plan()
    contract = replace(grasping_contract(YAM), provenance=Provenance(task="yam-lift"))
    deaf = arm_bundle(tmp_path / "deaf", contract, steps=2, weight=weight, bias=bias).path
    with pytest.raises(InstructionError, match="takes no instructions"):
        Arm(instructions=(RED,)).require(load_bundle(deaf))
    assert main(["demo", "--language", "--bundle", str(deaf)]) == 2
    assert "takes no instructions; leave the option out" in capsys.readouterr().err
    assert main(["demo", "--language", "--task", "yam-tell"]) == 2
    assert "shows a finished policy that is told in words; leave out --task" in capsys.readouterr().err
    assert main(["demo", "--instruction", RED]) == 2
    assert "--instruction belongs to demos of arms" in capsys.readouterr().err


@pytest.mark.slow
def test_the_packaged_policy_looks_and_does_what_it_is_told_and_its_episodes_are_filmed(tmp_path):
    said = ("pick up the red cube", "put the cylinder on the white disc")
    config = DemoConfig(tmp_path / "out", find_bundle(TOLD), ros=False, episodes=0, realtime=False)
    outcome = Demo(Arm(trials=2, instructions=said), config, Display()).run()
    recorded = outcome.recorded[0]
    assert tuple(episode.instruction for episode in recorded.episodes) == said
    assert any(episode.trial.done for episode in recorded.episodes)
    assert recorded.rerun is None, "pictures are not recorded"
    assert (tmp_path / "out" / "walk.mp4").stat().st_size > 10_000
