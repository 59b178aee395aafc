"""LEAPP folders that Isaac Lab itself writes, in the robot's runtime and in MuJoCo. `make test-isaaclab` runs them."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.policy.runner import PolicyRunner
from gantry_fixtures.leapp import difference_to_isaaclab_rad
from gantry_hardware.robots import robot_spec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("isaaclab_tasks") is None or find_spec("leapp") is None,
        reason="needs Isaac Lab 3 and leapp: make test-isaaclab",
    ),
]

PROGRAM = Path(__file__).with_name("leapp_program.py")
GAINS = ("--stiffness", "25", "--damping", "0.5")


def exported(folder, actuators):
    """Folder of the bundle, and the steps of the same policy in Isaac Lab."""
    words = [sys.executable, str(PROGRAM), str(folder), actuators]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(folder / "Isaac-Velocity-Flat-UnitreeGo2"), dict(np.load(folder / "steps.npz"))


def test_the_stock_tasks_bundle_runs_with_gains_given(tmp_path, capsys):
    """Newton runs the actuators, so that the bundle's gains are zero: refused, and taken with those of the task."""
    folder, steps = exported(tmp_path, "newton")
    bundle = tmp_path / "bundle"
    assert main(["import-leapp", folder, "--robot", "go2", "--output", str(bundle)]) == 2
    assert "'joint_pos_kp_gains', the bundle's kp, is not above 0" in capsys.readouterr().err
    assert main(["import-leapp", folder, "--robot", "go2", *GAINS, "--output", str(bundle)]) == 0
    runner = PolicyRunner(load_bundle(bundle), robot_spec("go2"))
    difference = difference_to_isaaclab_rad(runner, steps)
    print(f"{len(steps['reset'])} steps, largest difference of joint targets {difference:.1e} rad")
    assert difference < 1e-5
    assert np.ptp(steps["joint_pos_target"], axis=0).min() > 0.05
    capsys.readouterr()
    code = main(["check", folder, "--robot", "go2", *GAINS, "--episodes", "1", "--seconds", "2", "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    # A random policy does not walk, but nothing of the bundle is refused.
    assert (code, report["verdict"]) == (1, "failed")
    static = {stage["name"]: stage["passed"] for stage in report["stages"]}
    assert all(static[name] for name in ("network", "observation", "joint targets", "memory")), static
    words = ["run", folder, "--robot", "go2", *GAINS, "--duration", "1", "--command", "0.5,0,0", "--json", "-"]
    code, told = main(words), json.loads(capsys.readouterr().out)
    modes, fault = [step["mode"] for step in told["modes"]], told["statistics"]["fault"]
    # The policy acts; it ends standing again, or, if it stumbles, damped for a named fault.
    assert modes[:2] == ["STAND", "POLICY"], told
    assert told["statistics"]["read_errors"] == told["statistics"]["write_errors"] == 0
    if told["completed"]:
        assert (code, modes[2:], fault) == (0, ["STAND"], None), told
    else:
        assert (code, modes[2:]) == (1, ["DAMP"]), told
        assert fault, told


def test_the_bundle_of_isaac_labs_actuators_has_the_tasks_gains(tmp_path):
    folder, steps = exported(tmp_path, "models")
    assert main(["import-leapp", folder, "--robot", "go2", "--output", str(tmp_path / "bundle")]) == 0
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.contract.stiffness_nm_rad == pytest.approx((25.0,) * 12)
    assert bundle.contract.damping_nm_s_rad == pytest.approx((0.5,) * 12)
    assert difference_to_isaaclab_rad(PolicyRunner(bundle, robot_spec("go2")), steps) < 1e-5
