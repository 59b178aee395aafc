"""The simulated arm that is told in words: the scene of training, its verdicts, and bundles through the commands."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Provenance
from gantry_deploy.policy.runner import PolicyRunner
from gantry_fixtures.arm import arm_bundle, told_contract, told_plan
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.model.capabilities import HasTask, capability
from gantry_hardware.robots import robot_spec
from gantry_policies.common.batched_env import STATE
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.language.instructions import instruction_spec
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.persons.device import ScriptedPerson
from gantry_sim.tasks.manipulation.presets import TELL

pytestmark = pytest.mark.usefixtures("one_thread")

YAM = robot_spec("yam")
SEED = 7


@pytest.fixture
def robot():
    robot = BenchRobot(YAM, task="yam-tell", seed=SEED, vary=False)
    robot.connect()
    yield robot
    robot.close()


@pytest.fixture(scope="module")
def grasping(tmp_path_factory):
    """A bundle that lifts the red cube, whatever it is told, and that no training made."""
    contract = told_contract(YAM, instruction_spec(), provenance=Provenance(task="yam-tell-pick"))
    weight, bias = told_plan()
    return arm_bundle(tmp_path_factory.mktemp("told") / "b", contract, weight=weight, bias=bias, steps=60).path


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A policy that has hardly learned, exported by the real commands."""
    folder = tmp_path_factory.mktemp("told")
    collect = ["collect", "yam-tell", "--episodes", "4", "--envs", "4", "--output", str(folder / "demos")]
    assert main(collect) == 0
    small = ["learner.network.hidden=[16]", "learner.batch_size=32"]
    words = ["train", "yam-tell", "--demos", str(folder / "demos"), "--run-dir", str(folder / "run"), "--steps", "20"]
    main([*words, "--episodes", "2", *(word for change in small for word in ("--set", change))])
    return folder / "run" / "bundle"


def put(robot, name, place):
    address = int(robot.model.joint(name).qposadr[0])
    robot.data.qpos[address : address + 3] = place
    robot.data.qvel[:] = 0.0
    mujoco.mj_forward(robot.model, robot.data)


def test_it_keeps_every_promise_of_a_robot():
    check_backend(BenchRobot(YAM, task="yam-tell"))


def test_it_sees_and_is_told_the_same_as_training(robot, tmp_path):
    """The observation of the first environment, built here by the runtime from the robot's own readings."""
    assert capability(robot, HasTask) is not None
    cfg = replace(LAYOUTS["yam-tell"](), num_envs=1, randomize=replace(LAYOUTS["yam-tell"]().randomize, start_m=0.0))
    env = ArmStepEnv(cfg, SEED)
    runner = PolicyRunner(arm_bundle(tmp_path / "b", TELL.contract(cfg), steps=2), YAM)
    for _ in range(3):
        seen = env.reset()[STATE][0].numpy()
        assert env.texts() == [robot.instruction]
        runner.reset()
        runner.instruct(robot.instruction)
        built = runner.step(robot.read(), np.zeros(0)).observation
        np.testing.assert_allclose(built, seen, atol=2e-4)
        assert robot.goal_in_base_m is None
        assert robot.read().object_pose_in_base is None
        robot.reset()
    env.close()


def test_it_judges_by_what_is_asked_for(robot):
    """Put into the closed hand, only the thing that is asked for counts; another thing ends the episode."""
    hand = robot._bench._ee(robot.data)[0]
    assert robot.ask("Pick up the red cube!")
    assert robot.instruction == "Pick up the red cube!"
    assert not robot.task_done
    put(robot, "object", hand)
    assert robot.task_done
    assert not robot.task_lost
    assert robot.ask("lift the cylinder")
    assert not robot.task_done
    assert robot.task_lost  # The red cube is not where it lay.
    robot.reset()
    assert not robot.task_lost


def test_a_zone_counts_where_it_is_asked_for(robot):
    assert robot.ask("push the blue one to the white disc")
    zones = robot.read().extra["zones_pos_m"].reshape(2, 3)
    put(robot, "object_2", (*zones[0][:2], 0.02))
    assert not robot.task_done
    put(robot, "object_2", (*zones[1][:2], 0.02))
    assert robot.task_done
    assert robot.ask("push the blue one to the yellow disc")
    assert not robot.task_done


@pytest.mark.parametrize("text", ["pick up the cube", "dance", "push the red cube"])
def test_words_that_say_nothing_in_the_scene_change_nothing(robot, text):
    before = robot.instruction
    assert not robot.ask(text)
    assert robot.instruction == before
    single = BenchRobot(YAM, task="yam-lift")
    assert not single.ask("pick up the red cube")
    assert single.instruction == ""


def test_both_cameras_show_every_thing():
    """From ahead, the colour of each thing and zone is somewhere in the picture."""
    robot = BenchRobot(YAM, task="yam-tell", seed=SEED, pictures_px=96)
    robot.connect()
    pictures = robot.read_pictures()
    assert set(pictures) == {"wrist", "front"}
    pixels = pictures["front"].pixels.reshape(3, -1).astype(int)
    red, green, blue = pixels
    robot.close()
    assert ((red > 2 * green) & (red > 2 * blue)).sum() > 20
    assert ((green > 2 * red) & (green > 1.5 * blue)).sum() > 20
    assert ((blue > 2 * red) & (blue > 1.5 * green)).sum() > 20
    assert ((red > 2 * blue) & (green > 1.5 * blue)).sum() > 20


@pytest.mark.slow
def test_an_instructed_policy_is_exported_whole(learned, capsys):
    """Recorded tokens and things lead to the recorded observations; nothing marks the thing that is asked for."""
    words = ["check", str(learned), "--episodes", "2", "--seconds", "1", "--no-card", "--perturbations", "none"]
    assert main(words) == 1  # It does nothing yet, and that is all that is wrong.
    told = capsys.readouterr().out
    assert "pass  observation" in told
    assert "pass  episodes" in told
    golden = load_bundle(learned).golden
    assert golden["extra/instruction"].shape[1] == 16
    assert "object_pose_in_base" not in golden
    assert load_bundle(learned).contract.instruction == TELL.contract(TELL.usual_env()).instruction


def test_the_gate_instructs_with_the_words_of_each_episode(grasping, capsys):
    """It lifts the red cube in every episode, which is asked for in some."""
    words = ["check", str(grasping), "--episodes", "6", "--seconds", "3", "--no-card", "--perturbations", "none"]
    main(words)
    told = capsys.readouterr().out
    assert "pass  episodes" in told
    assert "6/6" in told
    assert "done after 2." in told
    assert "the object is out of reach, or another thing was moved" in told


def test_a_run_is_told_what_to_do(grasping, capsys):
    assert main(["run", str(grasping), "--duration", "2.5", "--instruction", "pick up the red cube"]) == 0
    assert "the task was done after" in capsys.readouterr().out
    assert main(["run", str(grasping), "--duration", "0.2"]) == 0
    assert "instruction: " in capsys.readouterr().out
    words = ["run", str(grasping), "--duration", "0.2", "--instruction"]
    assert main([*words, "lift the cylindre"]) == 0
    told = capsys.readouterr().out
    assert "not trained on 'cylindre' (did you mean 'cylinder'?)" in told
    assert "judged by the scene's own instruction" in told
    assert main([*words, "lift the cylinder"]) == 0
    assert "judged by" not in capsys.readouterr().out
    assert main([*words, "fetch"]) == 2
    assert "knows no word of the instruction 'fetch'" in capsys.readouterr().err
    assert main(["run", str(grasping), "--duration", "0.2", "--backend", "mock"]) == 2
    assert "--instruction is missing: what to do, in words, for example 'pick up" in capsys.readouterr().err
    assert main(["run", "pretrained:go2-walk", "--duration", "0.2", "--instruction", "sit"]) == 2
    assert "takes no instructions" in capsys.readouterr().err


def test_a_scripted_person_says_that_it_cannot_read(grasping):
    with pytest.raises(UnknownNameError, match="task of device 'scripted'"):
        ScriptedPerson(load_bundle(grasping).contract, "yam-tell")
