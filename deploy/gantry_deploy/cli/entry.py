"""Entry of the ``gantry`` process: ready for Ctrl-C before anything large is imported."""

from __future__ import annotations

import atexit
import sys

from gantry_deploy.interrupts import EXIT_INTERRUPTED, end_on_interrupt, ignore_interrupts, leave


def main() -> int:
    """Run ``gantry`` with the process's own arguments and return its exit code.

    An interrupted process ends in here, without the seconds that the interpreter takes to leave the learning libraries.
    """
    end_on_interrupt()
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


if __name__ == "__main__":
    sys.exit(main())
