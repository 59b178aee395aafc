"""A fake Unitree robot in a process of its own, for tests and measurements."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from gantry_deploy.process.domains import free_domain
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import parse_json_object

ENDING_S = 20.0
"""Time in which the process ends by itself; at its end Cyclone hangs now and then."""


class FakeProcess:
    """``python -m gantry_sim.unitree.fake``, ready when this is made.

    Args:
        robot: ``go2`` or ``g1``.
        options: Further options of the command line.
        domain: DDS domain; a free one if not given.
    """

    def __init__(self, robot: str = "go2", *options: str, domain: int | None = None) -> None:
        self.domain = free_domain() if domain is None else domain
        command = [sys.executable, "-m", "gantry_sim.unitree.fake", "--robot", robot, "--domain", str(self.domain)]
        self._process = subprocess.Popen([*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self._answer()

    def say(self, line: str) -> dict[str, Any]:
        """The answer to a line.

        Raises:
            GantryError: If the fake does not understand it, with its words, or has ended.
        """
        if self._process.stdin is None:
            raise GantryError("The fake robot has no input.")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if not answer["ok"]:
            raise GantryError(answer["error"])
        return answer

    def report(self) -> dict[str, Any]:
        """Everything that it has noted so far."""
        return self.say("report")["report"]

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.terminate()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self) -> dict[str, Any]:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise GantryError(f"The fake robot ended with code {self._process.poll()}.")
        return parse_json_object(line, "The fake robot's line", allow_nan=True)
