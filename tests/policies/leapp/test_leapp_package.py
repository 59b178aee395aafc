"""The package leapp itself on our folders: `make test-leapp`, which gives it an environment of its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import named_path
from gantry_deploy.leapp.drawn import STEPS, drawn_states
from gantry_deploy.policy.golden import recorded_state
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.robots import robot_spec
from gantry_policies.leapp.export import export_leapp

ROOT = Path(__file__).resolve().parents[3]
OWN = ROOT / ".venv-leapp/bin/python"
PYTHON = str(OWN) if OWN.exists() else sys.executable
SPEC = robot_spec("go2")

pytestmark = pytest.mark.skipif(
    not OWN.exists() and importlib.util.find_spec("leapp") is None, reason="leapp is not installed: make test-leapp"
)


def answers_of_leapp(folder, states, scratch):
    (description,) = folder.glob("*.yaml")
    given = {
        "joint_pos": states["joint_pos_rad"],
        "joint_vel": states["joint_vel_rad_s"],
        "base_rotation": states["quat_base_to_world_wxyz"][:, [1, 2, 3, 0]],
        "base_ang_vel": states["ang_vel_base_in_base_rad_s"],
        "velocity_command": states["command"],
    }
    np.savez(scratch / "steps.npz", reset=states["episode_start"], **given)
    program = [PYTHON, str(Path(__file__).with_name("leapp_program.py")), str(description)]
    done = subprocess.run(
        [*program, str(scratch / "steps.npz"), str(scratch / "answers.npz")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return dict(np.load(scratch / "answers.npz"))


@pytest.mark.parametrize("source", ["pretrained:go2-walk", "a tiny one"])
def test_leapp_gives_the_runtimes_targets_over_100_steps(tmp_path, source, one_thread):
    """Resets in between forget what flowed back, in leapp as in the runtime."""
    tiny = source == "a tiny one"
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(SPEC)) if tiny else load_bundle(named_path(source))
    contract = bundle.contract
    export_leapp(bundle, tmp_path / "leapp")
    limits = tuple(2.0 * item for item in contract.command.lower), tuple(2.0 * item for item in contract.command.upper)
    states = drawn_states(SPEC, contract.default_pos_rad, limits, contract.rate_hz)
    answers = answers_of_leapp(tmp_path / "leapp", states, tmp_path)
    runner, worst = PolicyRunner(bundle, SPEC), 0.0
    for row in range(STEPS):
        if states["episode_start"][row]:
            runner.reset()
        target = runner.step(recorded_state(states, row), states["command"][row]).target.pos_rad
        worst = max(worst, float(np.abs(answers["joint_pos_target"][row] - target).max()))
    print(f"{source}: {STEPS} steps, joint targets of leapp and of the runtime differ by at most {worst:.1e} rad")
    assert worst < 1e-5
    assert np.allclose(answers["joint_pos_kp_gains"], contract.stiffness_nm_rad)
    assert np.allclose(answers["joint_pos_kd_gains"], contract.damping_nm_s_rad)
