"""Operator's devices in tests: a file that is plugged in and unplugged, and waiting for what a reader makes of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
"""Longest wait; only a failure ever takes it."""
JS_BUTTON, JS_AXIS, JS_INITIAL = 1, 2, 0x80
"""Types of events of the Linux joystick API."""


def js_event(kind: int, number: int, value: int) -> bytes:
    """An event of a joystick."""
    return struct.pack("<IhBB", 12345, value, kind, number)


def js_beginning(**pressed: int) -> bytes:
    """First events of an Xbox pad: 8 axes with the triggers at rest, and 11 buttons, of which ``rb`` may be held."""
    axes = [js_event(JS_AXIS | JS_INITIAL, number, -32767 if number in (2, 5) else 0) for number in range(8)]
    held = {5: pressed.get("rb", 0)}
    return b"".join([*axes, *(js_event(JS_BUTTON | JS_INITIAL, number, held.get(number, 0)) for number in range(11))])


class Plug:
    """A FIFO in the place of a device file: what is written is what the driver would say.

    Args:
        path: Of the FIFO, which is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._fd: int | None = None

    def plug_in(self) -> None:
        """Open it for writing, as soon as it is read."""

        def opened() -> bool:
            with contextlib.suppress(OSError):  # Nothing reads yet.
                self._fd = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            return self._fd is not None

        wait_for(opened)

    def send(self, data: bytes) -> None:
        """Write bytes; plugs in anew if the reader has closed its end."""
        if self._fd is None:
            self.plug_in()
        assert self._fd is not None
        try:
            os.write(self._fd, data)
        except BrokenPipeError:
            self.unplug()
            self.send(data)

    def send_alone(self, data: bytes) -> None:
        """Write bytes and wait until they have been read, so that one read gives one report."""
        self.send(data)
        assert self._fd is not None
        fd = self._fd
        wait_for(lambda: struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0] == 0)

    def unplug(self) -> None:
        """Close it."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def wait_for(condition: Callable[[], Any]) -> Any:
    """Value of ``condition()``, as soon as it is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(0.005)
    return value
