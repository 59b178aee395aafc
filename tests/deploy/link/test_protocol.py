"""The generated messages belong to ``corrections.proto``, and what is missing is said."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "make_protocol.py"


def test_the_committed_messages_are_those_of_the_protocol(tmp_path):
    pytest.importorskip("grpc_tools")
    script = runpy.run_path(str(SCRIPT))
    script["generate"](tmp_path)
    for name in script["NAMES"]:
        assert (tmp_path / name).read_text() == (script["SOURCE"] / name).read_text(), f"run {SCRIPT.name}"


@pytest.mark.parametrize("package", ["grpc", "safetensors", "google.protobuf", "cryptography"])
def test_a_missing_package_is_named_with_its_extra(package):
    code = f"import sys; sys.modules[{package!r}] = None; import gantry_deploy.link"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"Module '{package}' is not installed" in done.stderr
    assert "pip install 'gantry-rl[corrections]'" in done.stderr
