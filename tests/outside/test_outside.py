"""A package of somebody else: robot, embodiment, term, task, algorithm and backend that only its entry points name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.observations.builder import make_term, term_info
from gantry_deploy.observations.mirrors import MirrorMap
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_policies.on_policy.symmetry import mirror_actor
from gantry_sim.tasks.registry import find_task

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).with_name("gantry_rover")
TASK = "rover-follow"
LENGTHS = {
    "search": ("--steps", "600k"),
    "ppo": ("--steps", "8192", "--set", "env.num_envs=64"),
    "sac": ("--steps", "600", "--set", "learner.capacity=2000", "--set", "learner.eval_every_steps=0"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run folders of the task by algorithm, each trained when it is first asked for."""
    folder, done = tmp_path_factory.mktemp("runs"), {}

    def trained(algorithm):
        if algorithm not in done:
            path = folder / algorithm
            arguments = ["train", TASK, "--algo", algorithm, "--run-dir", str(path), "--episodes", "10"]
            assert main([*arguments, *LENGTHS[algorithm]]) == 0
            done[algorithm] = path
        return done[algorithm]

    return trained


def test_its_term_is_one_entry():
    info = term_info("wheel_odometry")
    assert (info.frame, info.unit) == ("base", "m/s, rad/s")
    contract = find_task(TASK).contract(find_task(TASK).usual_env())
    # Forward velocity stays and yaw rate turns round; the wheels' actions change places.
    assert mirror_actor(contract) == MirrorMap((0, 1, 3, 2, 4, 5, 6), (1, -1, 1, 1, 1, -1, -1))
    with pytest.raises(UnknownNameError, match="wheel_odometry"):
        make_term("wheel_odometri", 2)


def test_its_simulated_robot_drives_a_circle():
    """Wheels at 4 and 6 rad/s of radius 0.1 m, 0.4 m apart: 0.5 m/s and 0.5 rad/s, a circle of radius 1 m."""
    spec = robot_spec("rover")
    robot = make_backend("rover", spec)
    robot.connect()
    robot.write(replace(JointCommand.damping(spec), vel_rad_s=np.array([4.0, 6.0])))
    for tick in range(1, 201):
        robot.sleep_until(0.01 * tick)
    state = robot.read()
    assert state.lin_vel_base_in_base_m_s == pytest.approx([0.5, 0.0, 0.0], abs=1e-6)
    assert state.ang_vel_base_in_base_rad_s == pytest.approx([0.0, 0.0, 0.5], abs=1e-6)
    start = np.array(state.pos_base_in_world_m)
    for tick in range(201, 201 + round(100 * 4 * np.pi)):
        robot.sleep_until(0.01 * tick)
    assert np.linalg.norm(robot.read().pos_base_in_world_m - start) < 0.02


def test_the_training_environment_and_the_simulated_robot_move_alike():
    env = find_task(TASK).make_env(replace(find_task(TASK).usual_env(), num_envs=1), "cpu", 1)
    robot = make_backend("rover", robot_spec("rover"))
    robot.connect()
    action = torch.tensor([[0.3, -0.8]])
    for tick in range(1, 11):
        env.step(action)
        robot.write(replace(JointCommand.damping(robot.spec), vel_rad_s=10.0 * action[0].double().numpy()))
        robot.sleep_until(tick * env.dt_s)
    assert robot.read().joint_vel_rad_s == pytest.approx(env.speed[0].numpy(), abs=1e-5)


def test_its_scripted_policy_is_evaluated(tmp_path):
    assert main(["eval", TASK, "--scripted", "--episodes", "10", "--json", str(tmp_path / "scores.json")]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["training_model"]["success_rate"]["mean"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", LENGTHS)
def test_its_task_is_trained_evaluated_and_checked(runs, algorithm, capsys):
    run = runs(algorithm)
    scores = json.loads((run / "evaluation.json").read_text())["training_model"]
    assert scores["episodes"] == 10
    if algorithm == "search":
        assert scores["success_rate"]["mean"] >= 0.8
    bundle = load_bundle(run / "bundle")
    assert (bundle.contract.robot, bundle.contract.embodiment) == ("rover", "two_wheels")
    capsys.readouterr()
    code = main(["check", str(run / "bundle"), "--episodes", "2", "--seconds", "2"])
    assert code == 0, capsys.readouterr().out


def test_the_guide_shows_this_package():
    """Every sample of the page on extensions stands in the package, line by line, whatever its indentation."""

    def lines(text):
        return "\n".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"

    samples = re.findall(r"```(?:toml|python)\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)
    files = [lines(path.read_text()) for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml")]
    assert len(samples) == 6
    for sample in samples:
        assert any(lines(sample) in text for text in files), sample
