"""The file below a recording: whole records only, also on a disk that fills up, and on the disk when it is closed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from pathlib import Path

from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.records import DataEnd, Footer
from mcap.writer import MCAP0_MAGIC


class Sink:
    """An unbuffered file that never keeps half a record: a failed write is undone.

    Args:
        path: Of the file, which is replaced.

    Raises:
        OSError: If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by the recorder's thread
        self._position = 0
        self._marks: deque[int] = deque(maxlen=4)
        self._data_ended = False

    def write(self, data: bytes) -> int:
        """Write all of the data, or nothing.

        Raises:
            OSError: If there is no room; the file is as it was before.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._cut(self._position)
            raise
        self._marks.append(self._position)
        self._position += len(data)
        self._data_ended = len(data) > 0 and data[0] == Opcode.DATA_END
        return len(data)

    def tell(self) -> int:
        """Offset of the next write, in bytes."""
        return self._position

    def flush(self) -> None:
        """Nothing is buffered."""

    def to_disk(self) -> None:
        """Wait until all that was written is on the disk, and the file's name in its folder.

        Raises:
            OSError: If the disk refuses it.
        """
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            return  # A device or a pipe has no disk below it.
        os.fsync(self._file.fileno())
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def end_early(self) -> None:
        """Close the file in the shortest valid way; if even that does not fit, give up the newest records for it."""
        if self._position == 0:
            return
        while True:
            builder = RecordBuilder()
            if not self._data_ended:
                DataEnd(0).write(builder)
            Footer(summary_start=0, summary_offset_start=0, summary_crc=0).write(builder)
            try:
                self.write(builder.end() + MCAP0_MAGIC)
                return
            except OSError:
                if len(self._marks) == 0 or self._marks[-1] == 0:
                    return
                self._position, self._data_ended = self._marks.pop(), False
                self._cut(self._position)

    def _cut(self, position: int) -> None:
        with contextlib.suppress(OSError):
            self._file.seek(position)
            self._file.truncate(position)
