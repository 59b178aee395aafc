"""The page for programs that know nothing of Gantry: its program, as it is there, repeats what training recorded."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import copy_bundle, load_bundle, write_bundle
from gantry_deploy.bundle.locate import find_bundle

PAGE = Path(__file__).resolve().parents[2] / "docs" / "onnx.md"


def program():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "gantry_deploy" not in code
    return code


def run(bundle):
    done = subprocess.run([sys.executable, "-c", program(), str(bundle)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps, difference = re.fullmatch(r"(\d+) steps, largest difference (\S+)\n", done.stdout).groups()
    return int(steps), float(difference)


@pytest.mark.parametrize(
    "name", ["go2-walk", "yam-pick-place", pytest.param("ame2-go2-student", marks=pytest.mark.soak)]
)
def test_the_program_of_the_page_repeats_the_recorded_steps(name):
    bundle = find_bundle(f"pretrained:{name}")
    steps, difference = run(bundle)
    assert steps == len(load_bundle(bundle).golden["action"])
    assert difference < 1e-5


def test_it_would_show_a_forgotten_scale(tmp_path):
    """The recorded speeds as if they had gone in raw."""
    found = load_bundle(find_bundle("pretrained:yam-pick-place"))
    (scale,) = {term.scale for term in found.contract.observations if term.name == "joint_vel"}
    golden = dict(found.golden) | {"joint_vel_rad_s": found.golden["joint_vel_rad_s"] * scale}
    parts = {"contract": found.contract, "model_bytes": found.model_bytes, "base_bytes": found.base_bytes}
    write_bundle(tmp_path / "raw", golden=golden, **parts)
    assert run(tmp_path / "raw")[1] > 0.01
    assert scale != 1.0


def test_every_term_of_every_policy_is_its_scaled_signal():
    """The page's formula against what training recorded, for signals that are recorded as they are."""
    signals = {
        "joint_vel": "joint_vel_rad_s",
        "base_ang_vel": "ang_vel_base_in_base_rad_s",
        "last_action": "last_action",
    }
    seen = set()
    for name in ("go2-walk", "yam-pick-place"):
        bundle = load_bundle(find_bundle(f"pretrained:{name}"))
        column = 0
        for term in bundle.contract.observations:
            if term.name in signals and term.history == 1:
                value = bundle.golden[signals[term.name]].astype(np.float64)
                bound = np.inf if term.clip is None else term.clip
                x = bundle.golden["observation"][:, column : column + term.size]
                np.testing.assert_allclose(x, term.scale * np.clip(value, -bound, bound), atol=1e-5)
                seen.add((term.name, term.scale))
            column += term.size * term.history
    assert {scale for _, scale in seen} - {1.0}


def test_the_program_reads_a_copy_of_a_bundle(tmp_path):
    copy = copy_bundle(find_bundle("pretrained:go2-walk"), tmp_path / "copy of a bundle")
    assert run(copy)[1] < 1e-5
