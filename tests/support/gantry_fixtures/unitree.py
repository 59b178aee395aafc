"""A fake Unitree robot in a process of its own, and a loop that runs on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyConfig, SafetyMachine
from gantry_deploy.process.domains import free_domain
from gantry_hardware.robots import robot_spec

PATIENCE_S = 60.0
PATIENT = SafetyConfig(state_timeout_s=1.0, max_missed_deadlines=1000, stand_duration_s=0.1, stand_tolerance_rad=3.0)
"""A busy machine is no fault; standing takes a moment."""


class FakeProcess:
    """``python -m gantry_sim.unitree.fake`` in a free domain."""

    def __init__(self, robot: str = "go2", *options: str, domain: int | None = None):
        self.domain = free_domain() if domain is None else domain
        command = [sys.executable, "-m", "gantry_sim.unitree.fake", "--robot", robot, "--domain", str(self.domain)]
        command += ["--command-timeout-ms", "1000", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._answer()["ready"]

    def say(self, line: str) -> dict[str, Any]:
        """The answer to a line; the fake must understand it."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert answer["ok"], answer
        return answer

    def refused(self, line: str) -> str:
        """The error that a line is answered with."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert not answer["ok"], answer
        return answer["error"]

    def report(self) -> dict[str, Any]:
        """What the fake has noted so far."""
        return self.say("report")["report"]

    def quit(self) -> dict[str, Any]:
        """End it; its last report."""
        self._process.stdin.write("quit\n")
        self._process.stdin.flush()
        report = self._answer()["report"]
        self.close()
        return report

    def close(self) -> None:
        """End it whatever it does."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        assert line, f"the fake ended with {self._process.poll()}"
        return json.loads(line)


def wait_for(what, condition, patience_s=PATIENCE_S):
    """Poll until a condition gives something true, which is returned."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come about within {patience_s:g} s")


def controller(robot, runner=None, config=PATIENT):
    """A loop over a connected robot."""
    return Controller(robot, runner, SafetyMachine(robot.spec, config), rate_hz=50.0)


def unitree_robot(fake, name="go2", **options):
    """The driver, not connected."""
    from gantry_hardware.unitree.robot import UnitreeRobot

    return UnitreeRobot(robot_spec(name), interface="lo", domain=fake.domain, command_timeout_s=1.0, **options)


def run_until(loop, mode: Mode, patience_s=PATIENCE_S):
    """Run the loop until it is in a mode."""
    end_s = time.monotonic() + patience_s

    def look(report):
        if report.mode is mode or time.monotonic() > end_s:
            loop.stop()

    loop.run(on_tick=look)
    assert loop.safety.mode is mode, f"{loop.safety.mode}: {loop.safety.fault}"
