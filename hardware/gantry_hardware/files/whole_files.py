"""Files that are written whole or not at all: a full disk, a kill or a power cut leaves the old content or the new."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file beside its place and move it there; what a link leads to is written, and devices directly.

    Raises:
        OSError: If it cannot be written; what was there stays as it was.
    """
    with whole_file(path) as file:
        file.write(data)


def write_whole_json(path: str | Path, value: Any, *, indent: int = 1) -> None:
    """The same of plain data as JSON.

    Raises:
        OSError: If it cannot be written.
        TypeError: If the data holds what JSON does not know; nothing is written then.
    """
    write_whole(path, (json.dumps(value, indent=indent) + "\n").encode())


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its place when the block ends without an error, after it has reached the disk.

    A kill can leave a hidden file ``.NAME.PID.tmp`` beside the place, which counts for nothing; the next writer of the
    same file removes it.

    Args:
        path: Where; what a link leads to is replaced, not the link, and a device is written directly.

    Raises:
        OSError: If it cannot be written; what was there stays as it was.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
    remove_stale(target.parent, target.name[:200])
    try:
        with temporary.open("wb") as file:
            yield file
            reach_disk(file)
        with contextlib.suppress(OSError):  # no file there yet, or on a disk without permissions
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:  # A full disk does not say which file it was.
            error.filename = os.fspath(path)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder_reaches_disk(target.parent)


def is_temporary(name: str) -> bool:
    """Whether a file of this name was left by a writer that was killed, and counts for nothing."""
    return re.fullmatch(r"\..+\.\d+\.tmp", name) is not None


def remove_stale(folder: str | Path, name: str = "") -> None:
    """Remove what writers that were killed left in a folder; files of processes that still run stay.

    Args:
        folder: The folder.
        name: Of the file that they wrote; every one's if empty.
    """
    prefix = f".{name}." if name else "."
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            if not is_temporary(path.name) or not path.name.startswith(prefix):
                continue
            if not _is_running(int(path.name.split(".")[-2])):
                path.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It runs, and belongs to another user.
        return True
    return True


def reach_disk(file: IO[Any]) -> None:
    """Wait until what was written to a file is on the disk.

    Raises:
        OSError: If the disk does not take it.
    """
    file.flush()
    os.fsync(file.fileno())


def folder_reaches_disk(folder: str | Path) -> None:
    """Wait until the names in a folder are on the disk, as far as the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
