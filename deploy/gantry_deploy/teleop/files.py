"""Device files: a thread that reads one, notices that the device is gone, and opens it again when it is back."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from gantry_deploy.errors import TeleopError
from gantry_hardware.errors import GantryError

RETRY_S = 0.2
"""Time between two attempts to open a device that is gone, s."""
_CHUNK = 4096


class FileListener(Protocol):
    """Receiver of a device file's bytes; called from the reader's thread, except for the first :meth:`opened`."""

    def opened(self) -> None:
        """The device is there, at first or again."""
        ...

    def take(self, data: bytes) -> None:
        """Take bytes as one read returned them.

        Raises:
            TeleopError: If they make no sense; the device is then opened anew.
        """
        ...

    def lost(self, reason: str) -> None:
        """The device is gone."""
        ...


class FileReader:
    """Reader thread of one device file.

    Args:
        name: Of the thread.
        open_file: Opens the device without blocking and returns its descriptor, or raises TeleopError or OSError.
        listener: Takes what is read.
    """

    def __init__(self, name: str, open_file: Callable[[], int], listener: FileListener) -> None:
        self._name, self._open_file, self._listener = name, open_file, listener
        self._fd: int | None = None
        self._wake: tuple[int, int] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the device and start the thread.

        Raises:
            TeleopError: If it cannot be opened.
        """
        if self._thread is not None:
            return
        try:
            self._fd = self._open_file()
        except OSError as error:
            raise TeleopError(f"{self._name} cannot be opened: {error}.") from error
        self._listener.opened()
        self._wake = os.pipe()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(self._wake[0],), name=self._name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the device; may be called twice."""
        thread, wake = self._thread, self._wake
        if thread is None or wake is None:
            return
        self._stop.set()
        os.write(wake[1], b"\0")
        thread.join()
        for fd in wake:
            os.close(fd)
        self._thread = self._wake = None

    def _run(self, wake: int) -> None:
        reason = "closed"
        try:
            while not self._stop.is_set():
                if self._fd is None:
                    self._stop.wait(RETRY_S)
                    self._open_again()
                    continue
                if wake in readable((self._fd, wake), None):
                    return
                self._read()
        except BaseException as error:
            reason = f"its reader failed: {error}"
            raise
        finally:
            self._lose(reason)

    def _open_again(self) -> None:
        try:
            self._fd = self._open_file()
        except (OSError, GantryError):
            return
        self._listener.opened()

    def _read(self) -> None:
        assert self._fd is not None
        try:
            data = os.read(self._fd, _CHUNK)
            if data:
                self._listener.take(data)
            else:
                self._lose("it was unplugged")
        except BlockingIOError:
            return
        except (OSError, GantryError) as error:
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
        self._listener.lost(reason)


def readable(fds: Sequence[int], timeout_s: float | None) -> list[int]:
    """Descriptors that can be read without waiting, or have come to an end.

    Args:
        fds: To look at.
        timeout_s: Longest wait, s; None for no end.
    """
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return [fd for fd, _ in poller.poll(None if timeout_s is None else timeout_s * 1e3)]
