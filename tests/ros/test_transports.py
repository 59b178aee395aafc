"""Nodes share no memory with others, real processes over real DDS."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_deploy.process.transports import (  # noqa: E402
    OF_THIS_MACHINE,
    PROFILE_VARIABLE,
    RANGE_VARIABLE,
)
from gantry_ros.testing import NodeProcess, isolated_environment  # noqa: E402


@pytest.mark.parametrize("heard", ["LOCALHOST", "SUBNET"])
def test_a_node_opens_no_segment_that_a_killed_one_could_leave_behind(tmp_path, heard):
    environment = {**isolated_environment(), RANGE_VARIABLE: heard, PROFILE_VARIABLE: ""}
    log = tmp_path / "robot.log"
    with NodeProcess("sim_robot_node", environment, log, robot="go2", backend="mock") as robot:
        robot.wait_for_output("on backend 'mock'")
        folder = Path(f"/proc/{robot.pid}")
        assert "libfastrtps" in (folder / "maps").read_text()
        assert not re.findall(r"/dev/shm/\S*fastrtps\S*", (folder / "maps").read_text())
        addresses = udp_addresses(robot.pid)
        assert addresses
        if heard == "LOCALHOST":
            assert addresses == {"127.0.0.1"}
        else:
            assert addresses != {"127.0.0.1"}


def udp_addresses(pid):
    """Local addresses at which a process takes datagrams, from the kernel's table."""
    sockets = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
            sockets.add(os.readlink(path))
    found = set()
    for line in Path(f"/proc/{pid}/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if f"socket:[{fields[9]}]" in sockets:
            number = bytes.fromhex(fields[1].partition(":")[0])
            found.add(".".join(str(byte) for byte in reversed(number)))
    return found


def test_isolated_nodes_share_no_memory_in_an_environment_that_keeps_to_this_machine_either(monkeypatch):
    monkeypatch.setenv("ROS_LOCALHOST_ONLY", "1")  # The older variable, over which ROS 2 ignores the range.
    environment = {**os.environ, **isolated_environment()}
    assert environment["ROS_LOCALHOST_ONLY"] != "1"
    assert environment[PROFILE_VARIABLE] == OF_THIS_MACHINE
    assert environment[RANGE_VARIABLE] == "SYSTEM_DEFAULT"
