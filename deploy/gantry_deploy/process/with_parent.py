"""Run a command that ends with its parent process: ``python -m gantry_deploy.process.with_parent PID COMMAND...``.

Between fork and exec a child of a process with threads may do next to nothing: it could wait for ever for a lock that
none of them holds any more. So the child becomes this program first, which asks the kernel for a SIGINT at its parent's
death, and then the command. The kernel keeps that wish when one program becomes another.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def ending_with_this(command: Sequence[str]) -> list[str]:
    """A command line, the first word of which is a path, as one that ends with this process, however that ends."""
    return [sys.executable, "-m", "gantry_deploy.process.with_parent", str(os.getpid()), *command]


def main(arguments: list[str]) -> int:
    """Become a command, unless the parent is gone already.

    Args:
        arguments: The parent's process number, as it knows itself, and the command line.

    Returns:
        130, as after Ctrl-C, if the parent is gone; else nothing, since the command takes this process over.

    Raises:
        OSError: If there is no such command.
    """
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
    # The process that adopts orphans need not be process 1, and process 1 may be the parent, as in a container.
    if os.getppid() != int(parent):
        return 128 + signal.SIGINT
    os.execv(command[0], command)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(0)  # Asked to stop before the command has begun, which is no failure of the command.
