"""``gantry launch`` as processes whose lines are followed, and which are gone afterwards whatever happens."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from gantry_deploy.process.interrupts import starting_uninterrupted
from gantry_deploy.process.with_parent import ending_with_this

STOP_TIMEOUT_S = 25.0
"""Time that the nodes may take to end once they are asked to."""


@contextlib.contextmanager
def launched(
    name: str, arguments: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[queue.Queue[str | None]]:
    """Run a launch description and yield the lines of its nodes, None at their end.

    Args:
        name: Name of the description.
        arguments: Its arguments.
        environment: Environment variables of the processes.
    """
    command = [sys.executable, "-m", "gantry_deploy.cli.entry", "launch", name]
    command += [f"{key}:={value}" for key, value in arguments.items()]
    with starting_uninterrupted():
        process = subprocess.Popen(
            ending_with_this(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(environment),
            # Ctrl-C reaches this process alone, which then ends the launch, and that its nodes.
            start_new_session=True,
        )
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read_lines, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield lines
    finally:
        with _uninterrupted():
            _end(process)
            reader.join(STOP_TIMEOUT_S)


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip())
    lines.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not interrupt the clearing up, or processes would stay behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
