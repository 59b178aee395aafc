"""Evaluating a bundle leaves no file behind."""

import os
import subprocess
import sys

import pytest

CODE = """
import hashlib, os, tempfile
from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_sim.training.policies import trained_env
from gantry_sim.tasks.registry import find_task

bundle = load_bundle(find_bundle("pretrained:ame2-go2-student"))
task = find_task(bundle.contract.provenance.task)
paths = {trained_env(bundle, task).student_map.mapper for _ in range(3)}
(path,) = paths
assert open(path, "rb").read() == bundle.mapper_bytes
print(len(os.listdir(tempfile.gettempdir())))
"""


@pytest.mark.slow
def test_a_mapper_is_unpacked_once_and_removed(tmp_path):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("gantry-")] == []
