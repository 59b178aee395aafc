"""What a ROS 2 installation is told of the packages: every node is an executable, every needed package is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gantry_ros import __main__ as entries

PACKAGE = Path(__file__).parents[2] / "ros_ws" / "src" / "gantry_ros"


def test_every_node_is_an_executable_of_its_package():
    scripts = re.findall(r'"(\w+) = gantry_ros\.__main__:(\w+)"', (PACKAGE / "setup.py").read_text())
    assert scripts == [(name, name) for name in entries.EXECUTABLES]
    for name in entries.EXECUTABLES:
        assert callable(getattr(entries, name))
        assert (PACKAGE / "gantry_ros" / "nodes" / f"{name}.py").is_file()


def test_every_package_whose_messages_are_needed_is_a_dependency():
    """Those that are imported where they are used, inside of functions, are used where they are installed."""
    sources = "\n".join(path.read_text() for path in (PACKAGE / "gantry_ros").rglob("*.py"))
    needed = set(re.findall(r"^from (\w+)\.(?:msg|srv) import", sources, re.MULTILINE))
    named = set(re.findall(r"<exec_depend>(\w+)</exec_depend>", (PACKAGE / "package.xml").read_text()))
    assert named == needed | {"rclpy"}


@pytest.mark.parametrize("name", ["gantry_ros", "gantry_bringup"])
def test_colcon_installs_every_module(tmp_path, name):
    folder = PACKAGE.parent / name
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)],
        cwd=folder,
        check=True,
        timeout=300,
    )
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")}
    assert installed == {str(path.relative_to(folder)) for path in (folder / name).rglob("*.py")}
