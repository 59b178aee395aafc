"""LEAPP folders in this runtime, against numbers computed by hand in double precision."""

import argparse

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("safetensors")

import onnx

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.commands import IMPORT_LEAPP
from gantry_deploy.cli.main import main
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.control.safety_config import safety_config
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.errors import LeappError, PolicyError, SafetyError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.leapp.importing import import_leapp
from gantry_deploy.leapp.settings import LeappSettings
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.policy.policy import open_policy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_fixtures.leapp import JOINTS, KD, KP, NODE, QUAT, targets_by_hand, write_leapp
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.robots import robot_spec

SPEC = robot_spec("go2")
GO2 = LeappSettings("go2")
STEPS = 100
WXYZ = {"qw": 0, "qx": 1, "qy": 2, "qz": 3}


def drawn_state(rng, step):
    """A state of the robot in its own joint order, FR first."""
    quat = np.array([1.0, *rng.uniform(-0.4, 0.4, 3)])
    return RobotState(
        stamp_s=0.02 * step,
        joint_pos_rad=SPEC.array("default_rad") + rng.uniform(-0.4, 0.4, 12),
        joint_vel_rad_s=rng.uniform(-3.0, 3.0, 12),
        joint_effort_nm=np.zeros(12),
        quat_base_to_world_wxyz=quat / np.linalg.norm(quat),
        ang_vel_base_in_base_rad_s=rng.uniform(-1.0, 1.0, 3),
        lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, 9.81]),
    )


def by_hand(state, command, kept, quat_names=QUAT, joints=JOINTS):
    """Targets (12,) in the robot's order within its limits, and what flows back."""
    place = [SPEC.joint_names.index(name) for name in joints]
    signals = {
        "ang": state.ang_vel_base_in_base_rad_s,
        "quat": state.quat_base_to_world_wxyz[[WXYZ[name] for name in quat_names]],
        "command": command,
        "pos": state.joint_pos_rad[place],
        "vel": state.joint_vel_rad_s[place],
    }
    targets, following = targets_by_hand(signals, kept)
    mine = np.empty(12)
    mine[place] = targets
    return np.clip(mine, SPEC.array("lower_rad"), SPEC.array("upper_rad")), following


def followed(runner, initial=0.0, seed=7, **orders):
    """Largest difference between the runtime's targets and those by hand over 100 steps."""
    rng, kept, worst = np.random.default_rng(seed), np.full(12, initial), 0.0
    runner.reset()
    for step in range(STEPS):
        state, command = drawn_state(rng, step), rng.uniform(-1.0, 1.0, 3)
        expected, kept = by_hand(state, command, kept, **orders)
        worst = max(worst, np.abs(runner.step(state, command).target.pos_rad - expected).max())
    return worst


def test_the_runtime_gives_the_targets_of_the_graph_joint_by_joint(tmp_path):
    """Joints FL first in the folder and FR first on the robot, a quaternion with w last, and what flows back."""
    bundle = import_leapp(write_leapp(tmp_path / NODE), GO2).bundle
    runner = PolicyRunner(bundle, SPEC)
    assert followed(runner) < 1e-5
    assert followed(runner, seed=8) < 1e-5  # a reset forgets what flowed back
    command = runner.step(drawn_state(np.random.default_rng(1), 0), np.zeros(3)).target
    assert np.array_equal(command.stiffness_nm_rad, np.full(12, KP))
    assert np.array_equal(command.damping_nm_s_rad, np.full(12, KD))
    assert bundle.contract.rate_hz == 50.0
    # Without feedback, or with another order, the same comparison fails by far.
    assert followed(runner, joints=SPEC.joint_names) > 0.01
    assert followed(runner, initial=1.0) > 0.01


def test_first_values_of_what_flows_back_are_those_of_the_file(tmp_path):
    bundle = import_leapp(write_leapp(tmp_path / NODE, initial=0.7), GO2).bundle
    assert followed(PolicyRunner(bundle, SPEC), initial=0.7) < 1e-5
    assert bundle.contract.graph.states[0].initial == pytest.approx([0.7] * 12)


@pytest.mark.parametrize("names", [["qw", "qx", "qy", "qz"], ["qz", "qw", "qx", "qy"]])
def test_the_quaternion_is_read_by_its_element_names(tmp_path, names):
    def change(told):
        told["models"][NODE]["inputs"][1]["element_names"] = [names]

    runner = PolicyRunner(import_leapp(write_leapp(tmp_path / NODE, change=change), GO2).bundle, SPEC)
    assert followed(runner, quat_names=names) < 1e-5
    assert followed(runner) > 0.01


def test_joints_are_matched_by_name_in_each_tensor_by_itself(tmp_path):
    """The velocities alone come in another order than positions and targets."""
    turned = [*JOINTS[6:], *JOINTS[:6]]

    def change(told):
        told["models"][NODE]["inputs"][4]["element_names"] = [turned]

    graph = import_leapp(write_leapp(tmp_path / NODE, change=change), GO2).bundle.contract.graph
    order = {item.name: [SPEC.joint_names[i] for i in item.order] for item in graph.inputs}
    assert order["vel"] == turned
    assert order["pos"] == list(JOINTS)
    assert [JOINTS[i] for i in graph.order] == list(SPEC.joint_names)


def test_a_copy_of_the_policy_remembers_for_itself(tmp_path):
    bundle = import_leapp(write_leapp(tmp_path / NODE), GO2).bundle
    observation = bundle.golden["observation"][:1]
    policy = open_policy(bundle)
    first = policy(observation).action
    other = policy.copy()
    assert np.array_equal(other(observation).action, first)
    assert not np.array_equal(policy(observation).action, first)
    policy.reset()
    assert np.array_equal(policy(observation).action, first)


def test_an_imported_bundle_is_one_like_any_other(tmp_path):
    folder, output = write_leapp(tmp_path / NODE), tmp_path / "bundle"
    parser = argparse.ArgumentParser()
    IMPORT_LEAPP.add_arguments(parser)
    args = parser.parse_args([str(folder), "--robot", "go2", "--output", str(output), "--command-limits", "2,1,1.5"])
    assert IMPORT_LEAPP.run(args) == 0
    stages = []
    bundle, runner = check_static(lambda: load_bundle(output), stages.append)
    assert all(stage.passed and not stage.skipped for stage in stages)
    assert {"network", "observation", "joint targets", "memory"} <= {stage.name for stage in stages}
    assert followed(runner) < 1e-5
    assert bundle.contract.command.upper == (2.0, 1.0, 1.5)
    assert bundle.card["leapp"]["golden"].startswith("drawn states")
    # The graph is the folder's own; the contract stands beside it in the metadata.
    mine = onnx.load_from_string(bundle.model_bytes)
    assert mine.graph == onnx.load(folder / f"{NODE}.onnx").graph
    assert [item.key for item in mine.metadata_props] == ["gantry_contract"]


def test_a_folder_runs_and_is_inspected_only_after_import(tmp_path, capsys):
    folder = str(write_leapp(tmp_path / NODE))
    assert main(["run", folder, "--robot", "go2", "--backend", "mock", "--duration", "0.2"]) == 0
    assert "completed" in capsys.readouterr().out
    assert main(["run", folder, "--robot", "go3", "--backend", "mock"]) == 2
    assert "Did you mean 'go2'?" in capsys.readouterr().err
    assert main(["run", folder, "--backend", "mock"]) == 2
    assert "does not say its robot" in capsys.readouterr().err
    assert main(["inspect", folder]) == 2
    assert "gantry import-leapp" in capsys.readouterr().err


def test_options_of_leapp_are_refused_for_a_bundle(tmp_path, capsys):
    from gantry_deploy.testing.legs import tiny_bundle

    tiny_bundle(tmp_path / "bundle")
    assert main(["run", str(tmp_path / "bundle"), "--stiffness", "25"]) == 2
    assert "--stiffness" in capsys.readouterr().err


def test_gains_of_the_command_line_take_the_place_of_zeros(tmp_path):
    folder = write_leapp(tmp_path / NODE, kp=0.0, kd=0.0)
    with pytest.raises(LeappError, match=r"'kp_gains', the bundle's kp, is not above 0 for FR_hip_joint.*--stiffness"):
        import_leapp(folder, GO2)
    with pytest.raises(LeappError, match=r"'kd_gains'.*--damping"):
        import_leapp(folder, LeappSettings("go2", stiffness_nm_rad=(25.0,)))
    each = tuple(20.0 + i for i in range(12))
    contract = import_leapp(folder, LeappSettings("go2", each, (0.5,))).bundle.contract
    assert contract.stiffness_nm_rad == each
    assert contract.damping_nm_s_rad == (0.5,) * 12
    with pytest.raises(LeappError, match="--stiffness has 3 numbers, expected 1 or 12"):
        import_leapp(folder, LeappSettings("go2", (1.0, 2.0, 3.0), (0.5,)))


def test_a_folder_without_gains_needs_some(tmp_path):
    folder = write_leapp(tmp_path / NODE, gains=False)
    with pytest.raises(LeappError, match="no output of kind 'kp'"):
        import_leapp(folder, GO2)
    assert import_leapp(folder, LeappSettings("go2", (25.0,), (0.5,))).difference_rad < 1e-5


def lin_vel(told):
    told["models"][NODE]["inputs"][0] |= {
        "kind": "state/body/linear_velocity",
        "isaaclab_connection": "state:robot:root_lin_vel_b",
    }


def test_a_velocity_that_the_robot_does_not_estimate_is_named_before_anything_moves(tmp_path):
    bundle = import_leapp(write_leapp(tmp_path / NODE, change=lin_vel), GO2).bundle
    assert bundle.contract.observations[0].name == "base_lin_vel"
    robot = MockRobot(SPEC)
    robot.connect()
    robot.override(lin_vel_base_in_base_m_s=None)
    loop = Controller(robot, PolicyRunner(bundle, SPEC), SafetyMachine(SPEC, safety_config({})))
    session = WalkSession(loop, np.zeros(3), 1.0, say=lambda line: None)
    with pytest.raises(SafetyError, match="observes the base's linear velocity, and the robot has no estimator"):
        session.run()
    assert all(not command.stiffness_nm_rad.any() for command in robot.commands)
    seeing = MockRobot(SPEC)
    seeing.connect()
    loop = Controller(seeing, PolicyRunner(bundle, SPEC), SafetyMachine(SPEC, safety_config({})))
    session = WalkSession(loop, np.zeros(3), 0.2, say=lambda line: None)
    session.run()
    assert session.completed


def test_what_asks_by_observations_alone_does_not_take_such_a_network(tmp_path):
    bundle = import_leapp(write_leapp(tmp_path / NODE), GO2).bundle
    with pytest.raises(PolicyError, match="takes raw signals"):
        OnnxPolicy(bundle.model_bytes, bundle.contract)
