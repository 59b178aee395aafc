"""Entry of the ``gantry`` process: ready for Ctrl-C before anything large is imported."""

from __future__ import annotations

import sys

from gantry_deploy.interrupts import EXIT_INTERRUPTED, end_on_interrupt, leave


def main() -> int:
    """Run ``gantry`` with the process's own arguments and return its exit code.

    An interrupted process ends in here, without the seconds that the interpreter takes to leave the learning libraries.
    """
    end_on_interrupt()
    try:
        from gantry_deploy.cli.main import main as run

        code = run()
    except KeyboardInterrupt:  # A second one, while the first was being answered.
        code = EXIT_INTERRUPTED
    return leave(code) if code == EXIT_INTERRUPTED else code


if __name__ == "__main__":
    sys.exit(main())
