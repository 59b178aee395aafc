"""Status file of a running runtime, written several times a second: mode, fault, missed deadlines.

It tells whether a policy runs, before the robot's software is changed under it, and the service that watches the first
run of a release reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.control.modes import Mode
from gantry_deploy.control.ticks import TickReport
from gantry_deploy.errors import FlashError
from gantry_deploy.process.identity import is_running, process_identity
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.files.structured import from_plain

PERIOD_S = 0.2
"""Time between two writes."""
STATUS_VARIABLE = "GANTRY_STATUS_FILE"
"""Environment variable by which the service names the file to runtimes that have no option for it."""
SILENCE_S = 5.0
"""A status that is older says nothing of the present."""


@dataclass(frozen=True)
class Status:
    """Newest words of a runtime."""

    process: str
    """Identity of the process (:func:`gantry_deploy.process.identity.process_identity`)."""
    mode: str
    """Mode of the controller."""
    fault: str
    """Reason of the damping, in DAMP; empty otherwise."""
    ticks: int
    """Ticks of the loop so far."""
    missed_deadlines: int
    """Number of late ones."""
    stamp_s: float
    """Time of the newest tick, on the system's monotonic clock."""
    bundle: str = ""
    """Path of the policy's bundle."""

    @property
    def age_s(self) -> float:
        """Time since the newest tick."""
        return time.monotonic() - self.stamp_s


class StatusPublisher:
    """Writes a controller's status into a file, from a thread of its own, so that the loop never waits for a disk.

    Args:
        path: The file; its folder exists.
        bundle: Path of the policy's bundle, for people.
    """

    def __init__(self, path: Path, bundle: str = "") -> None:
        self._path, self._bundle = path, bundle
        self._process = process_identity()
        self._newest: dict[str, Any] | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="status", daemon=True)
        self._thread.start()

    def note(self, report: TickReport, counts: dict[str, int]) -> None:
        """Take note of a tick.

        Args:
            report: The tick.
            counts: ``ticks`` and ``missed_deadlines`` so far.
        """
        fault = report.fault.text if report.fault is not None and report.mode is Mode.DAMP else ""
        self._newest = {
            "process": self._process,
            "mode": report.mode.value,
            "fault": fault,
            "ticks": counts["ticks"],
            "missed_deadlines": counts["missed_deadlines"],
            "stamp_s": time.monotonic(),
            "bundle": self._bundle,
        }

    def close(self) -> None:
        """Write the newest status once more, and end."""
        self._done.set()
        self._thread.join()

    def _write_on(self) -> None:
        written = None
        while True:
            last = self._done.wait(PERIOD_S)
            newest = self._newest
            if newest is not None and newest is not written:
                self._write(newest)
                written = newest
            if last:
                return

    def _write(self, status: dict[str, Any]) -> None:
        # Without waiting for the disk: after a power cut nothing runs, and the file says nothing.
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(status))
            os.replace(temporary, self._path)


def publisher_for_service(bundle: str = "") -> StatusPublisher | None:
    """A publisher into the file that the service has named; None where no service started this process."""
    path = os.environ.get(STATUS_VARIABLE)
    return StatusPublisher(Path(path), bundle) if path else None


def read_status(path: Path) -> Status | None:
    """The status in a file; None if there is none, or none that makes sense."""
    try:
        return from_plain(Status, read_json_object(path, error=FlashError), "the status", FlashError)
    except (OSError, GantryError):
        return None


def running_status(path: Path) -> Status | None:
    """The same of a process that still runs; None otherwise."""
    status = read_status(path)
    return status if status is not None and is_running(status.process) else None


def unsafe_reason(path: Path) -> str:
    """Reason against changing the robot's software now, from the status in a file; empty if there is none.

    A robot is let go only where nothing is powered: in PASSIVE, or where no runtime runs.
    """
    status = running_status(path)
    if status is None:
        return ""
    pid = status.process.partition(":")[0]
    if status.age_s > SILENCE_S:
        return f"the runtime (process {pid}) has not said anything for {status.age_s:.0f} s; end it first"
    if status.mode == Mode.PASSIVE.value:
        return ""
    if status.mode == Mode.POLICY.value:
        return f"a policy is running (process {pid}); stop it first"
    return f"the robot is in {status.mode} (process {pid}), held by the runtime; let it come to rest in PASSIVE first"
