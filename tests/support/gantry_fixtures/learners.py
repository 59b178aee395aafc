"""A learner in a process of its own, which actors connect to."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from gantry_deploy.link.client import learner_status

GANTRY = (sys.executable, "-m", "gantry_deploy.cli.entry")
PATIENCE_S = 240.0
"""How long anything may take on a machine that does much else."""


class Learner:
    """``gantry train --listen`` in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.log")
        self.file = self.log.open("w")
        self.process = subprocess.Popen(
            (*GANTRY, "train", *words, "--listen", "127.0.0.1:0", "--episodes", "0", "--no-export"),
            stdout=self.file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.address = self._until(r"Waiting for actors at (\S+):")

    def _until(self, pattern: str) -> str:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            found = re.search(pattern, self.log.read_text())
            if found is not None:
                return found[1]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        """End the process."""
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE_S)
        self.file.close()
        return code


def until_delivered(address: str, steps: int) -> int:
    """Wait until the learner has acknowledged that many steps; how many it has."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        have = sum(actor.steps for actor in learner_status(address).actors)
        if have >= steps:
            return have
        time.sleep(0.1)
    return have
