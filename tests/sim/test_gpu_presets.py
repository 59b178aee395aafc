"""The presets of a GPU as ``scripts/gpu/on_cpu.py`` runs them on a machine without one."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gantry_sim.tasks.registry import find_task

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu" / "on_cpu.py"
TRACKING = "mjlab:Mjlab-Tracking-Flat-Unitree-G1"


@pytest.fixture(scope="module")
def script() -> dict:
    """Names of the script's module."""
    return runpy.run_path(str(SCRIPT))


def test_gantrys_own_presets_are_taken_and_those_of_mjlab_when_asked_for(script):
    own, every = script["gpu_presets"](), script["gpu_presets"](every=True)
    assert {"velocity-flat-go2:gpu-wide", "ame2-g1:gpu", "drive-lane:gpu-bev", "yam-insert:hil-images-gpu"} <= set(own)
    assert not any(name.startswith("mjlab:") for name in own)
    assert every[: len(own)] == own
    assert {f"{TRACKING}:gpu", "mjlab:Mjlab-Cartpole-Balance:gpu"} <= set(every[len(own) :])
    assert not any("Depth" in name for name in every)


def test_a_task_that_follows_a_motion_is_given_one(script, tmp_path):
    preset = script["small"](find_task(TRACKING).preset("gpu"), 3, tmp_path)
    assert preset.env.num_envs == 3
    motion = np.load(preset.env.changes["commands.motion.motion_file"])
    assert motion["joint_pos"].shape[1] == 29
    assert (motion["joint_pos"] == motion["joint_pos"][0]).all()
    rough = script["small"](find_task("mjlab:Mjlab-Velocity-Rough-Unitree-Go1").preset("gpu"), 3, tmp_path)
    assert set(rough.env.changes.values()) == {2}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("velocity-flat-go2", "expected TASK:PRESET"),
        ("velocity-flat-go3:gpu", "Unknown task 'velocity-flat-go3'"),
        ("velocity-flat-go2:gqu", "Unknown preset of velocity-flat-go2 'gqu'"),
        ("mjlab:Mjlab-Velocity-Flat-Unitree-Go1", "mjlab"),
    ],
)
def test_a_name_that_is_no_preset_is_refused_in_a_sentence(script, name, told, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["on_cpu.py", "--only", name])
    assert script["main"]() == 2
    assert told in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.timeout(3600)  # MuJoCo Warp compiles its kernels for a CPU at their first use.
@pytest.mark.parametrize(
    ("name", "simulation"),
    [
        ("velocity-flat-go2:gpu", "Simulation"),
        ("ame2-go2:gpu", "Simulation"),
        ("drive-lane:gpu", "NoneType"),
        ("yam-lift:hil-images-gpu", "Simulation"),
        (f"{TRACKING}:gpu", "Simulation"),
    ],
)
def test_a_preset_of_each_family_steps_and_learns(name, simulation):
    done = subprocess.run([sys.executable, str(SCRIPT), "--only", name], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads(done.stdout.splitlines()[-1])
    assert (row["steps"], row["finite"], row["simulation"]) == (50, True, simulation)
    assert all(np.isfinite(loss) for loss in row["losses"].values())
    assert row["losses"]
    assert row["whole_gib"] > 0.0
