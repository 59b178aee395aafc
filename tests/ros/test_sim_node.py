"""What simulated robots' nodes share: they leave when asked to, even while they load."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_hardware.errors import GantryError, RobotError  # noqa: E402
from gantry_ros import __main__ as entries  # noqa: E402
from gantry_ros.nodes.sim_node import run_node  # noqa: E402
from gantry_ros.runtime import availability  # noqa: E402


def loads(number, error=None):
    """Loads a simulator, until the operator asks it to stop in the middle; whatever it loads may make of it."""

    def make(host, values):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            if error is None:
                raise
            raise error from None
        pytest.fail("it went on loading")

    return make


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("error", [None, RobotError("Backend 'road' cannot be loaded here.")])
def test_a_node_that_loads_leaves_when_it_is_asked_to(own_rig, number, error):
    handler = signal.getsignal(number)
    assert run_node("loads", (), loads(number, error), []) == 0
    assert signal.getsignal(number) is handler


def test_what_cannot_be_loaded_is_refused(own_rig):
    def make(host, values):
        raise GantryError("There is no such car.")

    with pytest.raises(GantryError, match="no such car"):
        run_node("refuses", (), make, [])


@pytest.mark.parametrize("executable", ["policy_node", "sim_car_node"])
def test_a_node_leaves_without_a_traceback_while_its_modules_are_imported(executable):
    """The interpreter tells of every import; the signal comes when ROS's own begin."""
    command = [sys.executable, "-X", "importtime", "-m", "gantry_ros", executable]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        next(line for line in lines if "rclpy" in line)
        process.send_signal(signal.SIGINT)
        told = [line for line in lines if not line.startswith("import time:")]
    assert told == [f"{executable}: interrupted while loading\n"]
    assert process.returncode == 0


def test_ros_that_makes_an_error_of_its_own_of_an_interruption_was_interrupted(capsys, monkeypatch):
    """Extension modules do: whatever stops their initialization is an ImportError."""

    def load():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise GantryError("rclpy cannot load its libraries (initialization failed).") from error

    monkeypatch.setattr(availability, "require_ros", load)
    assert entries.start("policy_node", []) == 0
    assert capsys.readouterr().err == "policy_node: interrupted while loading\n"


def test_ros_that_cannot_be_loaded_is_refused(capsys, monkeypatch):
    def load():
        raise GantryError("ROS 2 is not installed in this Python.")

    monkeypatch.setattr(availability, "require_ros", load)
    assert entries.start("policy_node", []) == 2
    assert capsys.readouterr().err == "policy_node: ROS 2 is not installed in this Python.\n"
