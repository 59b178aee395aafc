"""The arm at its workbench as a robot backend: the same beginnings as in training, and whole tasks through the loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Acceptance, Provenance
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.policy.runner import PolicyRunner
from gantry_fixtures.arm import arm_bundle, arm_contract_for, grasping_contract, grasping_plan
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.tasks.manipulation.draws import Draws
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.rules import RULES

YAM = robot_spec("yam")
GRIPPER = YAM.num_joints - 1


def test_it_keeps_every_promise_of_a_robot():
    check_backend(BenchRobot(YAM))


@pytest.mark.parametrize("task", ["yam-pick-place", "yam-push"])
def test_things_lie_where_the_first_environment_of_training_has_them(task):
    """The rule and the draws of training, asked here as its environment asks them."""
    robot, cfg = BenchRobot(YAM, task=task, seed=7), LAYOUTS[task]()
    robot.connect()
    for episode in range(3):
        draws = Draws(7, [0], [episode], "cpu")
        draws.index(256)
        start = RULES[cfg.task](cfg).start(draws, torch.zeros(1, 3))
        pose = robot.read().object_pose_in_base
        np.testing.assert_allclose(pose[:3], start.things_in_base[0, 0, :3], atol=1e-6)
        np.testing.assert_allclose(pose[3:], start.things_in_base[0, 0, 3:], atol=1e-6)
        np.testing.assert_allclose(robot.goal_in_base_m, start.goal_m[0], atol=1e-6)
        robot.reset()
    robot.reset(seed=7)
    draws = Draws(7, [0], [0], "cpu")
    draws.index(256)
    start = RULES[cfg.task](cfg).start(draws, torch.zeros(1, 3))
    np.testing.assert_allclose(robot.read().object_pose_in_base[:3], start.things_in_base[0, 0, :3], atol=1e-6)


def bring_to_policy(robot, runner):
    robot.connect()
    loop = Controller(robot, runner, SafetyMachine(YAM))
    loop.tick()
    loop.request("stand")
    loop.run(2.1)
    loop.request("start")
    return loop


def test_a_plan_made_at_the_first_look_lifts_the_cube(tmp_path):
    weight, bias = grasping_plan()
    runner = PolicyRunner(arm_bundle(tmp_path / "b", grasping_contract(YAM), weight=weight, bias=bias, steps=2), YAM)
    for seed in (0, 1):
        robot = BenchRobot(YAM, seed=seed)
        loop = bring_to_policy(robot, runner)
        assert not robot.task_done
        loop.run(2.55)
        assert loop.safety.mode is Mode.POLICY
        assert robot.task_done
        assert robot.read().object_pose_in_base[2] > 0.12


def test_a_peg_in_the_hand_is_held_until_the_policy_begins(tmp_path):
    runner = PolicyRunner(arm_bundle(tmp_path / "b", arm_contract_for(YAM), steps=2), YAM)
    robot = BenchRobot(YAM, task="yam-insert")
    robot.connect()
    before = robot.read().object_pose_in_base
    loop = Controller(robot, runner, SafetyMachine(YAM))
    loop.tick()
    loop.request("stand")
    loop.run(3.0)
    np.testing.assert_allclose(robot.read().object_pose_in_base[:3], before[:3], atol=0.01)
    assert not robot.task_lost


def test_what_cannot_be_laid_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'yam-lift'"):
        BenchRobot(YAM, task="yam-lif")
    with pytest.raises(GantryError, match="has no Chain"):
        BenchRobot(robot_spec("go2"))


def test_the_command_line_runs_and_checks_an_arms_bundle(tmp_path, capsys):
    """Every stage of the gate, then episodes on the workbench of the task that the contract names; then one run."""
    contract = grasping_contract(
        YAM, provenance=Provenance(task="yam-lift"), acceptance=Acceptance(min_success_rate=0.5)
    )
    weight, bias = grasping_plan()
    path = str(arm_bundle(tmp_path / "b", contract, weight=weight, bias=bias, steps=60).path)
    assert main(["check", path, "--episodes", "2", "--noise", "0.5", "--perturbations", "heavy_object"]) == 0
    told = capsys.readouterr().out
    assert "pass  episodes" in told
    assert "2/2  done after 2." in told
    assert "1.000, 95 % interval" in told
    card = load_bundle(path).card
    assert card["check"]["scores"]["success_rate"]["mean"] == 1.0
    assert card["check"]["conditions"]["backend"] == "workbench"
    assert main(["run", path, "--duration", "2.5"]) == 0
    assert "the task was done after" in capsys.readouterr().out
    # Without a policy that does anything, nothing is done.
    idle = str(arm_bundle(tmp_path / "idle", contract, weight=0.0 * weight, bias=0.0 * bias, steps=2).path)
    assert main(["check", idle, "--episodes", "1", "--seconds", "1", "--no-card", "--perturbations", "none"]) == 1
    assert "not done in 1.0 s" in capsys.readouterr().out
