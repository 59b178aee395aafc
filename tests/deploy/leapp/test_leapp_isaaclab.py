"""A LEAPP folder that Isaac Lab 3.0.0 wrote itself, of its flat Go2 with a random policy, against Isaac Lab's steps.

`python tests/sim/isaaclab/leapp_program.py FOLDER` made both, in the environment of `make test-isaaclab`.
"""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("safetensors")

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.policy.runner import PolicyRunner
from gantry_fixtures.leapp import JOINTS, difference_to_isaaclab_rad
from gantry_hardware.robots import robot_spec

HERE = Path(__file__).with_name("isaaclab_go2")
FOLDER = str(HERE / "Isaac-Velocity-Flat-UnitreeGo2")
GAINS = ("--robot", "go2", "--stiffness", "25", "--damping", "0.5")


def test_its_gains_of_zero_are_refused(tmp_path, capsys):
    output = tmp_path / "bundle"
    assert main(["import-leapp", FOLDER, "--robot", "go2", "--output", str(output)]) == 2
    told = capsys.readouterr().err
    assert "'joint_pos_kp_gains', the bundle's kp, is not above 0" in told
    assert "--stiffness" in told
    assert main(["run", FOLDER, "--robot", "go2", "--backend", "mock", "--duration", "0.2"]) == 2
    assert not output.exists()


def test_with_gains_the_runtime_gives_isaac_labs_targets(tmp_path):
    """Over 100 steps; joints come in PhysX's order and quaternions with w last."""
    assert main(["import-leapp", FOLDER, *GAINS, "--output", str(tmp_path / "bundle")]) == 0
    runner = PolicyRunner(load_bundle(tmp_path / "bundle"), robot_spec("go2"))
    steps = dict(np.load(HERE / "steps.npz"))
    assert len(steps["reset"]) == 100
    assert difference_to_isaaclab_rad(runner, steps) < 1e-5
    assert np.ptp(steps["joint_pos_target"], axis=0).min() > 0.05  # Every joint's target moves.
    assert difference_to_isaaclab_rad(runner, steps, JOINTS) > 0.1
    forgotten = {**steps, "reset": np.ones(100, bool)}
    assert difference_to_isaaclab_rad(runner, forgotten) > 1e-3  # What flows back matters.


def test_with_gains_it_runs(capsys):
    assert main(["run", FOLDER, *GAINS, "--backend", "mock", "--duration", "0.2"]) == 0
    assert "completed" in capsys.readouterr().out
