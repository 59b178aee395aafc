"""Files that carry the SHA-256 of their content: written whole or not at all, and refused if a single bit has changed.

The sum stands in the last 80 bytes, after the content, so that file and sum are replaced in one step. Readers of zip
archives (numpy, torch) pass over it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import whole_file

_MARK = b"\nGANTRY-SHA256 "
_TRAILER_SIZE = len(_MARK) + 64 + 1
_PIECE = 1 << 20
_ZIP_END, _ZIP_END_SIZE = b"PK\x05\x06", 22
"""Signature and size of the record that ends a zip archive without a comment."""


class DamagedFileError(GantryError):
    """A file is not as it was written; the text says why, without the file's name and without a full stop."""


def write_checked(path: Path, write: Callable[[BinaryIO], object]) -> str:
    """Write a file beside its place, its sum at the end, force it onto the disk, and move it to its place.

    Args:
        path: The file; its folder is created if missing.
        write: Writes the content to a stream that cannot seek.

    Returns:
        SHA-256 of the content, 64 hexadecimal digits.

    Raises:
        OSError: If it cannot be written; what was there stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        stream = _SummingStream(file)
        write(cast(BinaryIO, stream))
        digest = stream.sum.hexdigest()
        file.write(_trailer(digest))
    return digest


def read_checked(path: Path) -> bytes:
    """The content of a file, compared with its sum.

    Raises:
        FileNotFoundError: If it is missing.
        DamagedFileError: If it cannot be read, is cut short, or differs from what was written.
    """
    with _reading():
        data = path.read_bytes()
        body, trailer = data[:-_TRAILER_SIZE], data[-_TRAILER_SIZE:]
        if trailer.startswith(_MARK):
            _compare(hashlib.sha256(body).hexdigest(), trailer)
            return body
        _require_whole_archive(path)
        return data


def verify(path: Path) -> str:
    """Compare a file of any size with its sum.

    Returns:
        SHA-256 of the content; empty where an archive of an older version has no sum, only those of its entries.

    Raises:
        FileNotFoundError: If it is missing.
        DamagedFileError: If it cannot be read, is cut short, or differs from what was written.
    """
    with _reading(), path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - _TRAILER_SIZE
        found = hashlib.sha256()
        while left > 0:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise DamagedFileError("cut short while it was read")
            found.update(piece)
            left -= len(piece)
        trailer = file.read()
        if trailer.startswith(_MARK):
            _compare(found.hexdigest(), trailer)
            return found.hexdigest()
    _require_whole_archive(path)
    return ""


def _trailer(digest: str) -> bytes:
    return _MARK + digest.encode() + b"\n"


def _compare(digest: str, trailer: bytes) -> None:
    if trailer != _trailer(digest):
        raise DamagedFileError("its content does not match its SHA-256")


def _require_whole_archive(path: Path) -> None:
    """Accept an archive without a sum, as older versions wrote them, if its end and every entry's CRC are right."""
    with _reading(), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not zipfile.is_zipfile(file):
            raise DamagedFileError(f"cut short, or no such file: {size} bytes without the end that one has")
        file.seek(max(0, size - _ZIP_END_SIZE))
        end = file.read()
        if not end.startswith(_ZIP_END) or end[-2:] != b"\0\0":
            raise DamagedFileError("its SHA-256 is damaged")
        try:
            with zipfile.ZipFile(file) as archive:
                wrong = archive.testzip()
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
            raise DamagedFileError(str(error).strip().removesuffix(".") or type(error).__name__) from error
        if wrong is not None:
            raise DamagedFileError(f"its part '{wrong}' does not match its checksum")


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(error.strerror or str(error)) from error


class _SummingStream:
    """Passes bytes on and sums them up; without ``seek``, so that nothing written is changed afterwards."""

    def __init__(self, file: IO[bytes]) -> None:
        self.sum = hashlib.sha256()
        self._file = file

    def write(self, data: bytes) -> int:
        """Write and sum."""
        self.sum.update(data)
        return self._file.write(data)

    def read(self, size: int = -1) -> bytes:
        """Refused; numpy takes for a file only what has it."""
        raise io.UnsupportedOperation("read")

    def flush(self) -> None:
        """Pass on what is buffered."""
        self._file.flush()
