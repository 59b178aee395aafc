"""`gantry serve` in a process of its own, driven by openpi-client in another, with the packages that it asks for."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle.locate import named_path
from gantry_deploy.openpi.served import ServedPolicy
from gantry_fixtures.openpi import serve_process

ROOT = Path(__file__).parents[3]
OWN = ROOT / ".venv-openpi/bin/python"
"""Environment of `make test-openpi`: openpi-client asks for numpy 1."""
PYTHON = str(OWN) if OWN.exists() else sys.executable

pytestmark = pytest.mark.skipif(
    not OWN.exists() and importlib.util.find_spec("openpi_client") is None,
    reason="openpi-client is not installed; `make test-openpi` installs it",
)


def ask(port, sizes, **more):
    words = [PYTHON, str(Path(__file__).with_name("openpi_program.py"))]
    done = subprocess.run(
        [*words, str(port), "5", json.dumps(sizes), json.dumps(more)], capture_output=True, text=True, timeout=120
    )
    return done, json.loads(done.stdout) if done.returncode == 0 else None


def observations(sizes):
    """The observations that the program draws, in its order."""
    rng = np.random.default_rng(5)
    for _ in range(3):
        yield {
            key: (rng.integers(0, 256, shape) if kind == "uint8" else rng.normal(0.0, 0.1, shape)).astype(kind)
            for key, (kind, shape) in sizes.items()
        }


SIZES = {
    "observation/state": ("float32", (14,)),
    "observation/images/wrist": ("uint8", (6, 6, 3)),
    "observation/images/front": ("uint8", (6, 6, 3)),
}


def test_openpi_client_gets_the_plans_that_the_bundle_makes(plan_bundle):
    with serve_process(plan_bundle.path) as (_, port):
        done, found = ask(port, SIZES, prompt="pick it up")
    assert done.returncode == 0, done.stderr
    metadata, answers, timings, dtype, single = found
    assert (metadata["gantry"]["horizon"], metadata["gantry"]["action_size"]) == (5, 4)
    assert timings == [["infer_ms"], ["infer_ms", "prev_total_ms"], ["infer_ms", "prev_total_ms"]]
    assert dtype == "float32"
    client = ServedPolicy(plan_bundle).client()
    expected = [client.infer(observation)["actions"] for observation in observations(SIZES)]
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-6)
    assert len({tuple(np.ravel(answer)) for answer in answers}) == 3
    np.testing.assert_allclose(single, expected[2][0], rtol=1e-5, atol=1e-6)


def test_openpi_client_steps_an_arm_by_measured_joints_with_a_key(step_bundle, tmp_path):
    key = tmp_path / "key.txt"
    key.write_text("a-key-of-enough-letters\n")
    sizes = {"observation/joint_position": ("float64", (7,))}
    with serve_process(step_bundle.path, "--api-key-file", str(key), "--instruction", "reach") as (_, port):
        done, found = ask(port, sizes, api_key="a-key-of-enough-letters", prompt="reach")
        without, _ = ask(port, sizes, prompt="reach")
        other, _ = ask(port, sizes, api_key="a-key-of-enough-letters", prompt="wipe")
    assert done.returncode == 0, done.stderr
    assert np.shape(found[1]) == (3, 1, 4)
    assert "HTTP 401" in without.stderr
    assert "RuntimeError: Error in inference server" in other.stderr
    assert "'prompt' is 'wipe'; this policy does one task: 'reach'." in other.stderr


def test_the_example_of_the_guide_runs(tmp_path):
    """Its program, as it stands there but for the port, with the bundle that it names."""
    path = pretrained_path()
    text = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    block = text.partition("```python\n")[2].partition("```")[0]
    assert "openpi_client" in block
    with serve_process(path) as (_, port):
        program = tmp_path / "program.py"
        program.write_text(block.replace("8000", str(port)))
        done = subprocess.run([PYTHON, str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("['joint1', ")
    assert len(lines) == 6
    assert all(line.startswith("(1, 4) ") for line in lines[1:])
    assert "prev_total_ms" in lines[-1]


def pretrained_path():
    if importlib.util.find_spec("gantry_sim") is None:
        pytest.skip("no bundle comes along: gantry_sim is not installed")
    return named_path("pretrained:yam-pick-place")
