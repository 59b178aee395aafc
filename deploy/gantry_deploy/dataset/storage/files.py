"""Files that change all together or not at all, whatever happens to the process on the way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gantry_deploy.errors import DatasetError

TEMPORARY = ".unfinished"
"""Ends the names of files that are being written; readers, LeRobot's among them, pass over them."""


class FolderLock:
    """One writer per folder, across processes; the lock goes with the process that holds it.

    Raises:
        DatasetError: If another process, or this one, writes into the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise DatasetError(f"'{folder}' is being written by another process; one writer at a time.") from error

    def release(self) -> None:
        """Let others write; may be called twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def replace_files(folder: Path, files: Mapping[str, bytes], last: str, first: str | None = None) -> None:
    """Write files of a folder so that either all are new or, as far as ``last`` tells, none is.

    Everything is first written beside its place and flushed to the disk, which is where a full disk shows. Then it is
    moved into place, ``last`` at the very end: a reader that trusts only that file never sees half of a change.
    Ctrl-C and SIGTERM wait until it is done.

    Args:
        folder: Of the dataset.
        files: Content by path within the folder.
        last: The one of them that makes the others count.
        first: The one of them that is in place before any other; the first of ``files`` if not given.

    Raises:
        DatasetError: If something could not be written; then nothing has changed.
    """
    order = [*([] if first is None else [first]), *(name for name in files if name not in (first, last)), last]
    temporaries = [folder / f"{name}{TEMPORARY}" for name in order]
    with interrupts_later():
        try:
            for name, temporary in zip(order, temporaries, strict=True):
                make_folder(temporary.parent)
                _write(temporary, files[name])
        except OSError as error:
            for temporary in temporaries:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
            raise DatasetError(
                f"'{folder}' could not be written: {error.strerror or error}. Nothing in it has changed."
            ) from error
        try:
            for name, temporary in zip(order[:-1], temporaries[:-1], strict=True):
                os.replace(temporary, folder / name)
                if name == first:
                    _flush_folders({temporary.parent})
            _flush_folders({path.parent for path in temporaries})
            os.replace(temporaries[-1], folder / last)
            _flush_folders({temporaries[-1].parent})
        except OSError as error:
            raise DatasetError(f"'{folder}' could not be updated: {error.strerror or error}.") from error


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, flushed to the disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    _flush_folders({path.parent for path in missing})


def remove_leftovers(folder: Path) -> list[str]:
    """Delete what a killed writer left unfinished; returns the paths within the folder."""
    leftovers = sorted(folder.rglob(f"*{TEMPORARY}"))
    for path in leftovers:
        path.unlink(missing_ok=True)
    return [str(path.relative_to(folder)) for path in leftovers]


@contextlib.contextmanager
def interrupts_later() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the end of the block; in other threads than the main one they never come."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, Any]] = []
    previous = {
        number: signal.signal(number, lambda *arguments: waiting.append(arguments))
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not None
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number, _ in waiting[:1]:
            signal.raise_signal(number)


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _flush_folders(folders: set[Path]) -> None:
    for folder in folders:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
