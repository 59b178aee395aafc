"""What a ROS 2 installation is told of the packages: every node is an executable, every needed package is named."""

from __future__ import annotations

import re
from pathlib import Path

from gantry_ros import __main__ as entries

PACKAGE = Path(__file__).parents[2] / "ros_ws" / "src" / "gantry_ros"


def test_every_node_is_an_executable_of_its_package():
    scripts = re.findall(r'"(\w+) = gantry_ros\.__main__:(\w+)"', (PACKAGE / "setup.py").read_text())
    assert scripts == [(name, name) for name in entries.EXECUTABLES]
    for name in entries.EXECUTABLES:
        assert callable(getattr(entries, name))
        assert (PACKAGE / "gantry_ros" / f"{name}.py").is_file()


def test_every_package_whose_messages_are_needed_is_a_dependency():
    """Those that are imported where they are used, inside of functions, are used where they are installed."""
    sources = "\n".join(path.read_text() for path in (PACKAGE / "gantry_ros").glob("*.py"))
    needed = set(re.findall(r"^from (\w+)\.(?:msg|srv) import", sources, re.MULTILINE))
    named = set(re.findall(r"<exec_depend>(\w+)</exec_depend>", (PACKAGE / "package.xml").read_text()))
    assert named == needed | {"rclpy"}
