"""Exclusive use of a folder by one process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from gantry_deploy.errors import LinkError
from gantry_hardware.files.text import path_text


class FolderLock:
    """Exclusive use of a folder by one process, until it ends in whatever way.

    Args:
        folder: Created if missing.
        what: Name of the folder's use in the message.

    Raises:
        LinkError: If another process has it, with the number of the process.
    """

    def __init__(self, folder: Path, what: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LinkError(f"{what} {path_text(folder)} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise LinkError(
                f"{what} {path_text(folder)} is in use by process {owner or '(unknown)'}; each process needs its own."
            ) from error
        with contextlib.suppress(OSError):  # A full disk.
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let other processes have the folder."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
