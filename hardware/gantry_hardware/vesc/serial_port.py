"""A serial port of Linux: raw bytes, one owner, and messages that say what is wrong with it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import select
import termios
import tty

from gantry_hardware.errors import RobotError

PATTERNS = ("/dev/ttyACM*", "/dev/ttyUSB*", "/dev/serial/by-id/*")
"""Paths of serial adapters."""


class SerialPort:
    """An open port. Reading waits, writing does not.

    Args:
        path: For example ``/dev/ttyACM0``.
        baud: Rate of a port with real lines; USB and pseudo-terminals ignore it.

    Raises:
        RobotError: If the port is not there, is no serial port, may not be opened, or another program has it.
    """

    def __init__(self, path: str, baud: int = 115200) -> None:
        self.path = path
        speed = getattr(termios, f"B{baud}", None)
        if speed is None:
            raise RobotError(f"Port {path}: baud is {baud}, expected a rate of termios such as 115200 or 921600.")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            raise RobotError(_open_text(path, error)) from error
        try:
            self._take(speed)
        except RobotError:
            os.close(self._fd)
            raise

    def read(self, timeout_s: float) -> bytes:
        """Bytes that have come, after at most ``timeout_s``; nothing if none have.

        Raises:
            RobotError: If the port is gone.
        """
        try:
            if not select.select([self._fd], [], [], max(0.0, timeout_s))[0]:
                return b""
            data = os.read(self._fd, 4096)
        except BlockingIOError:
            return b""
        except (OSError, ValueError) as error:
            raise RobotError(f"Port {self.path} is gone ({error}): was it unplugged?") from error
        if not data:
            raise RobotError(f"Port {self.path} is gone (end of file): was it unplugged?")
        return data

    def write(self, data: bytes) -> None:
        """Send bytes at once.

        Raises:
            RobotError: If the port is gone, or does not take them.
        """
        try:
            sent = os.write(self._fd, data)
        except BlockingIOError:
            sent = 0
        except (OSError, ValueError) as error:
            raise RobotError(f"Port {self.path} is gone ({error}): was it unplugged?") from error
        if sent < len(data):
            raise RobotError(f"Port {self.path} took {sent} of {len(data)} bytes: nothing reads at its other end.")

    def close(self) -> None:
        """Release the port; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _take(self, speed: int) -> None:
        """Make it raw, and ours alone."""
        try:
            tty.setraw(self._fd, termios.TCSANOW)
            attributes = termios.tcgetattr(self._fd)
            attributes[2] |= termios.CLOCAL | termios.CREAD
            attributes[4] = attributes[5] = speed
            termios.tcsetattr(self._fd, termios.TCSANOW, attributes)
        except termios.error as error:
            raise RobotError(f"{self.path} is no serial port ({error}). Expected one of {_ports()}.") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RobotError(f"Another program has port {self.path} open. Stop it first.") from error
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._fd, termios.TIOCEXCL)
        termios.tcflush(self._fd, termios.TCIFLUSH)


def _open_text(path: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"There is no port {path}. Expected one of {_ports()}."
    if error.errno == errno.EACCES:
        return (
            f"Port {path} may not be opened: add yourself to its group (sudo usermod -aG dialout $USER), log in again."
        )
    if error.errno == errno.EBUSY:
        return f"Another program has port {path} open. Stop it first."
    return f"Port {path} cannot be opened: {error.strerror}."


def _ports() -> str:
    found = sorted(path for pattern in PATTERNS for path in glob.glob(pattern))
    return ", ".join(found) or "(no serial adapter is plugged in)"
