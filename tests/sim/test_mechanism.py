"""A cart-pole in MuJoCo: its model, its balance under a linear policy, and what a fault leaves of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.contract.mechanism_spec import MechanismSpec
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Event, SafetyMachine
from gantry_deploy.errors import SafetyError
from gantry_deploy.evaluation.balancing import BalanceScenario
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder
from gantry_fixtures.mechanism import GAINS_N, cartpole_bundle, cartpole_contract
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot

CARTPOLE = robot_spec("cartpole")


@pytest.fixture
def robot():
    robot = MujocoRobot(CARTPOLE, visuals=False)
    robot.connect()
    yield robot
    robot.close()


def test_the_base_is_fixed_and_the_pole_swings(robot):
    """A hanging pole of length 1 m swings at sqrt(m g l / (I + m l^2)) about a cart that is held."""
    assert (robot.model.nq, robot.model.nv) == (2, 2)
    assert robot.pos_base_in_world_m[2] == CARTPOLE.base_height_m
    assert robot.model.body_mass.sum() == pytest.approx(CARTPOLE.mass_kg)
    # Damping alone lets the cart roll, so it is held here as stiffly as allowed.
    robot.reset(joint_pos_rad=np.array([0.0, np.pi - 0.05]))
    robot.write(JointCommand(*(np.zeros(2),) * 4, np.array([50.0, 0.0])))
    angles = []
    for step in range(1, 1000):
        robot.sleep_until(step * 0.004)
        angles.append(robot.read().joint_pos_rad[1] - np.pi)
    crossings = np.flatnonzero(np.diff(np.sign(angles)))
    period_s = 2.0 * np.diff(crossings).mean() * 0.004
    inertia = 0.01759174026 + 0.2 * 0.25  # of the URDF, about the hinge
    assert period_s == pytest.approx(2.0 * np.pi * np.sqrt(inertia / (0.2 * 9.81 * 0.5)), rel=0.05)


def test_efforts_accelerate_the_cart(robot):
    """With the pole hanging the cart and pole weigh between 1 and 1.2 kg along the rail, and damping brakes."""
    robot.reset(joint_pos_rad=np.array([0.0, np.pi]))
    zeros = np.zeros(2)
    robot.write(JointCommand(zeros, zeros, np.array([5.0, 0.0]), zeros, np.array([10.0, 0.0])))
    robot.sleep_until(robot.now_s() + 0.01)
    assert 5.0 / 1.2 * 0.009 < robot.read().joint_vel_rad_s[0] < 5.0 * 0.0101
    robot.sleep_until(robot.now_s() + 5.0)
    assert robot.read().joint_vel_rad_s[0] == pytest.approx(0.5, abs=0.05), "5 N against 10 N s/m"


def test_the_pole_is_held_as_long_as_the_cart_holds_its_place(robot):
    robot.reset(joint_pos_rad=np.array([0.2, 0.4]))
    robot.sleep_until(robot.now_s() + 2.0)
    np.testing.assert_allclose(robot.read().joint_pos_rad, [0.2, 0.4], atol=0.02)
    zeros = np.zeros(2)
    robot.write(JointCommand(zeros, zeros, zeros, zeros, zeros))
    robot.sleep_until(robot.now_s() + 1.0)
    assert robot.read().joint_pos_rad[1] > 1.0, "it falls"


def test_a_policy_starts_only_from_where_training_began(tmp_path):
    """Of the contract: within 0.5 m and 0.3 rad of the default pose, and 0.05 beyond."""
    runner = PolicyRunner(cartpole_bundle(tmp_path / "bundle"), CARTPOLE)
    for angle, begins in ((0.34, True), (0.4, False)):
        robot = MujocoRobot(CARTPOLE, visuals=False)
        robot.connect()
        robot.reset(joint_pos_rad=np.array([0.0, angle]))
        robot.write = lambda command, robot=robot: command  # Whatever is sent, it stays in that pose.
        controller = Controller(robot, runner, SafetyMachine(CARTPOLE))
        controller.tick()
        controller.request(Event.STAND)
        for _ in range(round((controller.stand_duration_s + 0.1) * 60)):
            controller.tick()
            robot.sleep_until(robot.now_s() + 1.0 / 60.0)
        controller.tick()
        if begins:
            controller.request(Event.START)
        else:
            with pytest.raises(SafetyError, match=r"'cart_to_pole' is at 0\.40, and .* trained to start from -0\.30"):
                controller.request(Event.START)
        robot.close()


def test_an_audit_sees_efforts_that_arrive_otherwise(tmp_path, capsys):
    bundle = cartpole_bundle(tmp_path / "bundle")
    for name, share in (("right", 1.0), ("wrong", -0.5)):
        robot = MujocoRobot(CARTPOLE, visuals=False, noise=0.1)
        write = robot.write
        robot.write = lambda command, write=write, share=share: write(
            replace(command, effort_nm=share * command.effort_nm)
        )
        robot.connect()
        with Recorder(tmp_path / f"{name}.mcap", bundle.contract, CARTPOLE, lossless=True) as recorder:
            loop = Controller(robot, PolicyRunner(bundle, CARTPOLE), SafetyMachine(CARTPOLE), recorder)
            loop.run(0.1)
            loop.request("stand")
            loop.run(2.1)
            loop.request("start")
            loop.run(1.0)
        robot.close()
        main(["audit", str(tmp_path / f"{name}.mcap"), str(tmp_path / "bundle")])
        told = capsys.readouterr().out
        assert ("those of the action were sent in 100 % of the ticks" in told) == (name == "right"), told


@pytest.mark.parametrize(("gains", "kept"), [(GAINS_N, 4), ((0.0,) * 4, 0)])
def test_a_linear_policy_balances_and_none_does_not(tmp_path, gains, kept):
    runner = PolicyRunner(cartpole_bundle(tmp_path / "bundle", gains), CARTPOLE)
    result = run_episodes(runner, RolloutConfig(episodes=4, seconds=6.0))
    assert [episode.reason for episode in result.episodes] == [""] * 4
    assert sum(episode.scores["balanced"] for episode in result.episodes) == kept
    starts = np.array(
        [[episode.conditions[f"start_{name}"] for name in CARTPOLE.joint_names] for episode in result.episodes]
    )
    assert (np.abs(starts) <= (0.5, 0.3)).all()
    assert len(np.unique(starts)) == 8
    assert result.scores.success_rate.mean == kept / 4
    assert ("not balanced" in BalanceScenario.line(result.episodes[0])) == (kept == 0)


def test_whole_turns_of_an_endless_joint_do_not_count(tmp_path):
    """The robot's default pose is upright, and so is one turn further on, where this policy was trained."""
    turn = 2.0 * np.pi
    body = MechanismSpec(("slider_to_cart",), (-0.1, turn - 0.1), (0.1, turn + 0.1))
    contract = cartpole_contract(default_pos_rad=(0.0, turn), body=body)
    runner = PolicyRunner(cartpole_bundle(tmp_path / "bundle", contract=contract), CARTPOLE)
    result = run_episodes(runner, RolloutConfig(episodes=1, seconds=4.0))
    assert result.episodes[0].conditions["start_cart_to_pole"] > 6.0
    assert result.episodes[0].scores["balanced"]


def test_commands_take_such_a_bundle(tmp_path, capsys):
    bundle = str(tmp_path / "bundle")
    cartpole_bundle(tmp_path / "bundle")
    words = ["--episodes", "2", "--seconds", "4", "--perturbations", "late,weak", "--json", str(tmp_path / "told.json")]
    assert main(["check", bundle, *words]) == 0
    told = json.loads((tmp_path / "told.json").read_text())
    capsys.readouterr()
    assert told["verdict"] == "passed"
    assert set(told["perturbed"]["results"]) == {"late", "weak"}
    assert main(["check", bundle, "--episodes", "1", "--seconds", "1"]) == 2
    assert "expected more than 1 s" in capsys.readouterr().err
    assert main(["run", bundle, "--duration", "2", "--option", "noise=0.1"]) == 0
    assert "completed" in capsys.readouterr().out
    assert main(["inspect", bundle]) == 0
    assert "slider_to_cart" in capsys.readouterr().out
    film = tmp_path / "film.mp4"
    assert main(["play", bundle, "--video", str(film), "--seconds", "2"]) == 0
    assert "1 episode, 1 balanced at the end" in capsys.readouterr().out
    assert film.read_bytes()[4:8] == b"ftyp"
    assert main(["play", bundle, "--video", str(film), "--command", "0,0,0"]) == 2
    assert "neither --command nor --attention" in capsys.readouterr().err
