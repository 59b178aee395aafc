"""Scheduling of the control loop."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from gantry_hardware.errors import GantryError


def prepare_thread(priority: int, cpu: int) -> None:
    """Give the calling thread a real-time priority and a core of its own.

    The process's other threads come right below it: one of them may hold the interpreter's lock when the loop wakes up,
    and a holder that waits for a core behind ordinary processes would make the loop wait as long.

    Args:
        priority: Of SCHED_FIFO, 1 to 99; 0 leaves the scheduler alone.
        cpu: Core to pin to; negative for any.

    Raises:
        GantryError: If the machine does not allow it, or has no such core.
    """
    try:
        if cpu >= 0:
            os.sched_setaffinity(0, {cpu})
        if priority > 0:
            for thread in os.listdir("/proc/self/task"):
                with contextlib.suppress(ProcessLookupError):  # It has ended since.
                    os.sched_setscheduler(int(thread), os.SCHED_FIFO, os.sched_param(max(1, priority - 1)))
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError as error:
        raise GantryError(
            f"Real-time priority {priority} is not allowed here ({error.strerror}). Allow it with an 'rtprio' line in "
            "/etc/security/limits.conf, or set realtime_priority to 0."
        ) from error
    except (OSError, ValueError) as error:
        cores = sorted(os.sched_getaffinity(0))
        raise GantryError(
            f"realtime_priority {priority} and cpu {cpu} are refused: {error}. Priorities go from 1 to 99, "
            f"this process may use the cores {', '.join(map(str, cores))}."
        ) from error


@contextlib.contextmanager
def realtime_thread(priority: int) -> Iterator[None]:
    """Give the calling thread a real-time priority for a while; 0 changes nothing.

    Raises:
        GantryError: If the machine does not allow it.
    """
    if priority <= 0:
        yield
        return
    scheduler, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    prepare_thread(priority, cpu=-1)
    try:
        yield
    finally:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread), scheduler, parameters)
