"""Exclusive use of a folder by one process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import path_text

_MOST_BYTES = 4096
"""Of what a holder says of itself."""


class FolderLock:
    """Exclusive use of a folder by one process, until it ends in whatever way.

    Args:
        folder: Created if missing.
        what: Name of the folder's use in the message.
        error: Class of the errors.
        name: File in the folder that is locked; a folder may have several uses.
        holder: Text for other processes that find it locked; the number of this process if empty.

    Raises:
        GantryError: Of class ``error``, if another process has it, with what that process said of itself.
    """

    def __init__(
        self, folder: Path, what: str, error: type[GantryError], *, name: str = ".lock", holder: str = ""
    ) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise error(f"{what} {path_text(folder)} cannot be used: {problem.strerror}.") from problem
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            owner = read_holder(folder, name)
            os.close(self._file)
            owner = f"process {owner or '(unknown)'}" if not owner or owner.isdecimal() else owner
            raise error(
                f"{what} {path_text(folder)} is in use by {owner}; only one process may use it at a time."
            ) from problem
        with contextlib.suppress(OSError):  # A full disk.
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, (holder or str(os.getpid())).encode()[:_MOST_BYTES], 0)

    def release(self) -> None:
        """Let other processes have the folder."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def read_holder(folder: Path, name: str = ".lock") -> str:
    """Text that the newest holder of a folder said of itself; empty if there was none."""
    try:
        with open(folder / name, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
