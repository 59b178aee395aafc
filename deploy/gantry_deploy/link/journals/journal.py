"""Append-only files of numbered records, each with its SHA-256: an actor's spool and the learner's journal.

A journal is a folder of segments ``00000001.journal``, ... A segment is a magic word and records; the first record has
the number 0 and holds the header that the owner wants at the beginning of each segment. A record is its length, its
number, the SHA-256 of both and of the content, and the content. A segment ends at its first damage, and a process that
goes on after another one begins a segment of its own, so that a torn end stays what it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gantry_deploy.errors import LinkError
from gantry_hardware.files.text import path_text
from gantry_hardware.files.whole_files import folder_reaches_disk

_LOG = logging.getLogger("gantry.link")
MAGIC = b"GANTRYJ1"
"""First bytes of a segment."""
_HEAD = struct.Struct("<IQ32s")
_SIGNED = struct.Struct("<IQ")
_NAME = re.compile(r"(\d{8})\.journal")
HEADER = 0
"""Number of the record at the beginning of a segment."""


class DiskFullError(LinkError):
    """A record does not fit: the disk is full, or the bound of the journal is reached; what was written stays."""


class Record(NamedTuple):
    """Record of a journal."""

    number: int
    """Its number, given by the owner."""
    payload: bytes
    """Its content."""


@dataclass
class _Segment:
    path: Path
    end: int
    """Bytes that may be read."""
    last: int = HEADER
    """Highest number that was read or written."""
    is_known: bool = False
    """Whether all of it was read, or written by this process."""


class Journal:
    """Journal in a folder; any thread may call it.

    Args:
        folder: Created if missing.
        header: Called at the beginning of each segment for its first record.
        segment_bytes: Size from which on the next segment is begun.
        total_bytes: Size of all segments together; more is refused.
        max_record: Largest content of a record; a greater length is damage.

    Raises:
        LinkError: If the folder cannot be read or made.
    """

    def __init__(
        self, folder: Path, header: Callable[[], bytes], *, segment_bytes: int, total_bytes: int, max_record: int
    ) -> None:
        self.folder, self._header, self.max_record = folder, header, max_record
        self._segment_bytes, self.total_bytes = segment_bytes, total_bytes
        self._lock = threading.Lock()
        self._file = -1
        self._segments: dict[int, _Segment] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.iterdir()):
                if match := _NAME.fullmatch(path.name):
                    self._segments[int(match[1])] = _Segment(path, path.stat().st_size)
        except OSError as error:
            raise LinkError(f"The journal {path_text(folder)} cannot be read: {error.strerror}.") from error
        self._next = max(self._segments, default=0) + 1
        self._bytes = sum(segment.end for segment in self._segments.values())

    @property
    def bytes(self) -> int:
        """Size of all segments."""
        return self._bytes

    def append(self, number: int, payload: bytes, *, sync: bool) -> None:
        """Write a record behind the others.

        Args:
            number: Its number, from 1.
            payload: Its content.
            sync: Return only when it has reached the disk; otherwise :meth:`sync` says when.

        Raises:
            DiskFullError: If it does not fit; nothing was written, and a later attempt may succeed.
            LinkError: If the disk has another trouble.
        """
        record = _record(number, payload)
        with self._lock:
            if self._bytes + len(record) > self.total_bytes:
                raise DiskFullError(
                    f"The journal {path_text(self.folder)} has {self._bytes} bytes, and at most {self.total_bytes}."
                )
            try:
                self._write(number, record, sync)
            except OSError as error:
                raise DiskFullError(
                    f"The journal {path_text(self.folder)} cannot be written: {error.strerror}. What is in it stays;"
                    " it goes on as soon as there is space."
                ) from error

    def _write(self, number: int, record: bytes, sync: bool) -> None:
        if self._file >= 0 and self._segments[self._next - 1].end >= self._segment_bytes:
            self._leave()
        if self._file < 0:
            self._begin()
        segment = self._segments[self._next - 1]
        try:
            _write_all(self._file, record)
        except OSError:
            try:  # Whole records alone: the next attempt begins where this one did.
                os.ftruncate(self._file, segment.end)
                os.lseek(self._file, segment.end, os.SEEK_SET)
            except OSError:
                self._leave()
            raise
        if sync:
            try:
                os.fsync(self._file)
            except OSError:  # The kernel may have dropped the pages: nothing more is written behind them.
                self._leave()
                raise
        segment.end += len(record)
        segment.last = max(segment.last, number)
        self._bytes += len(record)

    def _begin(self) -> None:
        path = self.folder / f"{self._next:08d}.journal"
        head = MAGIC + _record(HEADER, self._header())
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, head)
            os.fsync(file)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        folder_reaches_disk(self.folder)
        self._file = file
        self._segments[self._next] = _Segment(path, len(head), is_known=True)
        self._bytes += len(head)
        self._next += 1

    def _leave(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file = -1

    def sync(self) -> None:
        """Wait until everything that was written has reached the disk; other threads may write meanwhile.

        Raises:
            OSError: If the disk does not take it.
        """
        with self._lock:
            if self._file < 0:
                return
            file = os.dup(self._file)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def forget_through(self, number: int) -> None:
        """Remove segments that hold no higher number, as far as that is known; a small present one stays."""
        with self._lock:
            for key, segment in list(self._segments.items()):
                is_present = self._file >= 0 and key == self._next - 1
                if (
                    not segment.is_known
                    or segment.last > number
                    or (is_present and segment.end < self._segment_bytes // 16)
                ):
                    continue
                if is_present:
                    self._leave()
                with contextlib.suppress(OSError):
                    segment.path.unlink(missing_ok=True)
                self._bytes -= segment.end
                del self._segments[key]

    def view(self, key: int) -> tuple[int, Path | None, int, bool]:
        """Segment from a key on: its key, its file, the bytes that may be read, whether others follow.

        Returns:
            The key that was given and None as the file, if there is no such segment.
        """
        with self._lock:
            if key not in self._segments:  # Numbered in the order in which they were added.
                found = next((item for item in self._segments if item >= key), None)
                if found is None:
                    return key, None, 0, False
                key = found
            segment = self._segments[key]
            return key, segment.path, segment.end, key < self._next - 1 or self._file < 0

    def note(self, key: int, number: int, *, is_whole: bool = False) -> None:
        """Remember that a segment holds a number, or that it was read whole, for :meth:`forget_through`."""
        with self._lock:
            if segment := self._segments.get(key):
                segment.last, segment.is_known = max(segment.last, number), segment.is_known or is_whole

    def keys(self) -> list[int]:
        """Keys of the segments, oldest first."""
        with self._lock:
            return sorted(self._segments)

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        with self._lock:
            self._leave()
            self._segments.clear()
            self._bytes = 0
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Close the present segment; readers go on."""
        with self._lock:
            self._leave()


class JournalReader:
    """Reader of a journal's records, oldest first, that may go on while records are added.

    Args:
        journal: The journal.
        start: Key of the segment to begin with.
    """

    def __init__(self, journal: Journal, start: int = 0) -> None:
        self._journal, self._key, self._offset = journal, start, 0
        self._file = -1
        self._open_key = -1

    @property
    def key(self) -> int:
        """Key of the segment that is being read."""
        return self._key

    def read(self, *, headers: bool = False) -> Record | None:
        """Next record; None while there is none.

        Args:
            headers: Return the headers of segments as well, numbered :data:`HEADER`.
        """
        while True:
            key, path, end, is_left = self._journal.view(self._key)
            if path is None:
                self.close()
                return None
            if key != self._key:
                self._key, self._offset = key, 0
            if self._offset >= end:
                if not is_left:
                    return None
                self._journal.note(key, HEADER, is_whole=True)
                self._key, self._offset = key + 1, 0
                continue
            record = self._at(path, end)
            if record is None:
                self._offset = end
                continue
            self._journal.note(key, record.number)
            if record.number != HEADER or headers:
                return record

    def _at(self, path: Path, end: int) -> Record | None:
        try:
            if self._open_key != self._key:
                self.close()
                self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._open_key = self._key
            if self._offset == 0:
                if os.pread(self._file, len(MAGIC), 0) != MAGIC:
                    return self._damage(path, end, "no segment of a journal")
                self._offset = len(MAGIC)
            head = os.pread(self._file, _HEAD.size, self._offset)
            if len(head) < _HEAD.size:
                return self._damage(path, end, "a torn record")
            length, number, digest = _HEAD.unpack(head)
            if length > min(self._journal.max_record, end - self._offset - _HEAD.size):
                return self._damage(path, end, f"a record of {length} bytes")
            payload = os.pread(self._file, length, self._offset + _HEAD.size)
        except OSError as error:
            return self._damage(path, end, error.strerror or "it cannot be read")
        if _digest(number, payload) != digest:
            return self._damage(path, end, "a record whose SHA-256 differs")
        self._offset += _HEAD.size + length
        return Record(number, payload)

    def _damage(self, path: Path, end: int, what: str) -> None:
        _LOG.warning(
            "%s ends at byte %d of %d: %s. What follows in this file is not read.",
            path_text(path),
            self._offset,
            end,
            what,
        )

    def close(self) -> None:
        """Close the file that is being read."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._open_key = -1, -1


def _record(number: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), number, _digest(number, payload)) + payload


def _digest(number: int, payload: bytes) -> bytes:
    digest = hashlib.sha256(_SIGNED.pack(len(payload), number))
    digest.update(payload)
    return digest.digest()


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
