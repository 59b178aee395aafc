"""Processes of torchrun that run a Python script of a test, or one process without it."""

from __future__ import annotations

import os
import subprocess
import sys

VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that torchrun sets."""


def command(count: int, *words: object) -> list[str]:
    """The command that runs a script and its arguments, or ``-m`` and a module with its own, so many times."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [sys.executable, *([] if count == 1 else launcher), *map(str, words)]


def environment() -> dict[str, str]:
    """Variables of a process that no launcher has started, with one thread for each."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES} | {"OMP_NUM_THREADS": "1"}


def run_together(count: int, *words: object) -> subprocess.CompletedProcess[str]:
    """The processes after they have ended, with what they said."""
    return subprocess.run(
        command(count, *words), env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
