"""Identity of a process that outlives its number: a number is given to another process once its owner has ended."""

from __future__ import annotations

import os


def process_identity(pid: int | None = None) -> str:
    """Number and start of a process, for example ``4711:123456``; empty if there is none.

    Args:
        pid: Its number; this process's if None.
    """
    pid = os.getpid() if pid is None else pid
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else f"{pid}:{fields[19]}"  # Start of the process, ticks since boot.


def is_running(identity: str) -> bool:
    """Whether the process with that identity still runs."""
    pid = identity.partition(":")[0]
    return pid.isdecimal() and process_identity(int(pid)) == identity
