"""Nodes that hear this machine alone are not started where its loopback interface is down."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from gantry_bringup.loopback import loopback_trouble, require_loopback
from gantry_bringup.parts import NodeSpec

ALONE = ("unshare", "--net", "--map-root-user")
"""Runs a command in a network of its own, whose only interface, loopback, is down."""
ASK = "from gantry_bringup.loopback import loopback_trouble; print(loopback_trouble())"
LAUNCH = (sys.executable, "-m", "gantry_deploy.cli.main", "launch")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def alone():
    """Skips where the kernel gives nobody a network of their own."""
    if shutil.which(ALONE[0]) is None or run(*ALONE, "true").returncode != 0:
        pytest.skip("networks of one's own are not allowed here")


def test_a_working_loopback_is_none_to_complain_of():
    assert loopback_trouble() == ""
    quiet = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    require_loopback([NodeSpec("gantry_ros", "policy_node", "policy_node", environment=quiet)])


def test_the_trouble_of_a_loopback_that_is_down_is_told(alone):
    assert run(*ALONE, sys.executable, "-c", ASK).stdout == "Network is unreachable\n"


@pytest.mark.parametrize(
    ("inherited", "own", "refused"),
    [
        ("", "", False),
        ("", "SUBNET", False),
        ("", "LOCALHOST", True),
        ("LOCALHOST", "", True),
        ("LOCALHOST", "SUBNET", False),
        ("SUBNET", "LOCALHOST", True),
    ],
)
def test_it_counts_only_for_nodes_that_need_it(alone, inherited, own, refused):
    variable = "ROS_AUTOMATIC_DISCOVERY_RANGE"
    source = (
        "from gantry_bringup.loopback import require_loopback\nfrom gantry_bringup.parts import NodeSpec\n"
        f"require_loopback([NodeSpec('gantry_ros', 'a', 'a', environment={ {variable: own} if own else {} })])"
    )
    environment = [f"{variable}={inherited}"] if inherited else ["-u", variable]
    result = run("env", *environment, *ALONE, sys.executable, "-c", source)
    assert ("nothing comes through to 127.0.0.1 (Network is unreachable)" in result.stderr) == refused
    assert result.returncode == int(refused), result.stderr


@pytest.mark.ros
def test_a_launch_says_so_and_starts_nothing(alone):
    pytest.importorskip("rclpy")
    result = run(*ALONE, *LAUNCH, "sim_walk", "bundle:=pretrained:go2-walk", "backend:=mock")
    assert (result.returncode, result.stdout) == (2, "")
    assert "'ip link set lo up'" in result.stderr
    assert result.stderr.count("\n") == 1
