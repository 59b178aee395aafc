"""Becomes a node that ends with the process that launched it: ``python -m gantry_bringup.with_parent PID COMMAND...``.

Between fork and exec a child of a process with threads may do next to nothing without risking to wait for ever for a lock
that none of them holds any more. So the child becomes this program first, which asks the kernel for a SIGINT at its
parent's death, and then the node. The kernel keeps that wish when one program becomes another.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


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
    # Whoever adopts orphans need not be process 1, and process 1 may be the parent, as in a container.
    if os.getppid() != int(parent):
        return 128 + signal.SIGINT
    os.execv(command[0], command)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(0)  # Asked to stop before the node has begun, which is no failure of the node.
