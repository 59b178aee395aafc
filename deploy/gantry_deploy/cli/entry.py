"""Entry of the ``gantry`` process: ready for Ctrl-C before anything large is imported."""

from __future__ import annotations

import atexit
import os
import sys

from gantry_deploy.process.interrupts import EXIT_INTERRUPTED, end_on_interrupt, ignore_interrupts, leave
from gantry_deploy.process.transports import use_udp


def main() -> int:
    """Run ``gantry`` with the process's own arguments and return its exit code.

    An interrupted process ends in here, without the seconds that the interpreter takes to leave the learning libraries.
    """
    end_on_interrupt()
    _open_streams()
    use_udp()
    atexit.register(ignore_interrupts)  # Runs last, as it is the first.
    try:
        from gantry_deploy.cli.main import main as run

        code = run()
    except KeyboardInterrupt:  # A second one, while the first was being answered.
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:
        leave(code)
    end_on_interrupt("", code)  # What was done stands, however late it is interrupted.
    return code


def _open_streams() -> None:
    """Give a process that was started without standard streams, as by cron, ones that take everything and hold nothing.

    Files that it opens would otherwise get their numbers, and what it prints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number is this one.
            setattr(sys, name, open(number, mode, closefd=False, encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
