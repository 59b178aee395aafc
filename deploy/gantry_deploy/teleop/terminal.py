"""Terminal that hands over each key at once, and gets its settings back however the process ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import termios
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from gantry_deploy.errors import TeleopError
from gantry_deploy.process.interrupts import EndAtOnce

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_INPUT, _LOCAL, _CHARACTERS = 0, 3, 6  # Places in what termios.tcgetattr returns.


class CbreakTerminal:
    """Terminal in cbreak mode: no echo and no lines, but Ctrl-C still interrupts.

    Ctrl-Z and Ctrl-S do nothing meanwhile: a process that is suspended, or blocked by its output, guards no robot.
    Settings come back with :meth:`close`, at the end of the interpreter, and at signals that would end the process
    without it: those with the system's own action, and those whose handler ends the process at once. Any other handler
    is left alone, as its program ends in order.

    Args:
        fd: File descriptor of the terminal.
        what: Its name in messages.
    """

    def __init__(self, fd: int, what: str = "standard input") -> None:
        self.fd, self._what = fd, what
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}

    def open(self) -> None:
        """Change the settings.

        Raises:
            TeleopError: If it is no terminal, or this process is in the background.
        """
        if self.fd < 0 or not os.isatty(self.fd):
            raise TeleopError(
                f"The keyboard needs a terminal, and {self._what} is none. Start it in a terminal (over SSH: ssh -t), "
                "or choose another device."
            )
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self.fd) != os.getpgrp():
                raise TeleopError("The keyboard cannot be read in the background; bring the process back with 'fg'.")
        try:
            before = termios.tcgetattr(self.fd)
            changed = [*before[:_CHARACTERS], list(before[_CHARACTERS])]
            changed[_INPUT] &= ~termios.IXON
            changed[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
            changed[_CHARACTERS][termios.VMIN], changed[_CHARACTERS][termios.VTIME] = 1, 0
            changed[_CHARACTERS][termios.VSUSP] = os.fpathconf(self.fd, "PC_VDISABLE").to_bytes(1, "little")
            self._before = before
            atexit.register(self.close)
            self._guard()
            _set(self.fd, changed)
        except (termios.error, OSError) as error:
            self.close()
            raise TeleopError(f"The settings of {self._what} cannot be changed: {error}.") from error

    def close(self) -> None:
        """Restore the settings; may be called twice."""
        self._restore()
        for number, own in self._handlers.items():
            before, handler = own
            if signal.getsignal(number) is handler:
                signal.signal(number, before)
        self._handlers = {}
        atexit.unregister(self.close)

    def _restore(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            with contextlib.suppress(termios.error, OSError):  # The terminal may be gone.
                _set(self.fd, before)

    def _guard(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Only the main thread may have handlers; what is left is the end of the interpreter.
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is signal.SIG_DFL or isinstance(before, EndAtOnce):
                handler = self._handler(before)
                self._handlers[number] = (before, handler)
                signal.signal(number, handler)

    def _handler(self, before: Any) -> Callable[[int, FrameType | None], None]:
        def end(number: int, frame: FrameType | None) -> None:
            self._restore()
            if callable(before):
                before(number, frame)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        return end


def _set(fd: int, settings: list[Any]) -> None:
    """Change settings at once, also from the background, where the terminal would stop this process for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        termios.tcsetattr(fd, termios.TCSANOW, settings)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
