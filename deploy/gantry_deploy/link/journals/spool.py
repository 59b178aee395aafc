"""Actor's spool: steps stay on its disk until the learner has acknowledged them, also those of killed processes."""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from gantry_deploy.errors import LinkError
from gantry_deploy.link.codec import parse
from gantry_deploy.link.journals.journal import DiskFullError, Journal, JournalReader
from gantry_deploy.link.limits import LinkLimits
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.link.service import SOURCE
from gantry_deploy.process.folder_lock import FolderLock
from gantry_deploy.repeated_log import Repeated
from gantry_hardware.files.text import path_text

_LOG = logging.getLogger("gantry.link")


class SpooledSource:
    """Steps of one process in the spool: read in batches, forgotten when they are acknowledged.

    Args:
        name: Random name of the process.
        journal: Its steps.
        limits: Sizes of batches.
    """

    def __init__(self, name: str, journal: Journal, limits: LinkLimits) -> None:
        self.name, self.journal, self._limits = name, journal, limits
        self._reader = JournalReader(journal)
        self._batch: list[pb.NumberedStep] = []
        self._ahead: pb.NumberedStep | None = None
        self.acknowledged = 0
        """Highest number that the learner has."""
        self.done = 0
        """Steps that were read here and that the learner has."""

    def batch(self) -> list[pb.NumberedStep]:
        """Steps to send next; the same again until :meth:`acknowledge` has been told of them."""
        if not self._batch:
            size = 0
            while len(self._batch) < self._limits.batch_steps:
                step = self._ahead or self._read()
                self._ahead = None
                if step is None:
                    break
                if self._batch and size + len(step.step) > self._limits.batch_bytes:
                    self._ahead = step
                    break
                self._batch.append(step)
                size += len(step.step) + 16
        return self._batch

    def _read(self) -> pb.NumberedStep | None:
        while (record := self._reader.read()) is not None:
            if record.number > self.acknowledged:
                return pb.NumberedStep(number=record.number, step=record.payload)
        return None

    def acknowledge(self, number: int) -> None:
        """Take note that the learner has all numbers up to this one."""
        self.acknowledged = max(self.acknowledged, number)
        kept = [step for step in self._batch if step.number > self.acknowledged]
        self.done += len(self._batch) - len(kept)
        self._batch = kept
        self.journal.forget_through(self.acknowledged)

    def is_empty(self) -> bool:
        """Whether nothing is left to be sent that was written so far."""
        return not self.batch()

    def remove(self) -> None:
        """Remove its folder."""
        self._reader.close()
        self.journal.remove()


class Spool:
    """Spool of an actor, with a thread that writes; one process at a time.

    Args:
        folder: Created if missing.
        header: Identity, contract and learner of this process; its source is filled in.
        limits: Bounds.
        added: Called after a step was written.

    Raises:
        LinkError: If the folder is in use or cannot be read.
    """

    def __init__(self, folder: Path, header: pb.SpoolHeader, limits: LinkLimits, added: Callable[[], None]) -> None:
        self._limits, self._added, self._folder = limits, added, folder
        self._folder_lock = FolderLock(folder, "The actor's spool", LinkError)
        header.source = secrets.token_hex(8)
        try:
            self.left = self._left(header)
            self._header = header.SerializeToString()
            self.own = SpooledSource(header.source, self._journal(header.source), limits)
        except BaseException:
            self._folder_lock.release()
            raise
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._queue_bytes, self._number, self._taken = 0, 0, 0
        self._ended, self._synced_s, self._dirty = False, time.monotonic(), False
        self._trouble = Repeated(_LOG)
        self.trouble, self.dropped = "", 0
        self._thread = threading.Thread(target=self._run, name="gantry-spool", daemon=True)
        self._thread.start()

    def _journal(self, source: str) -> Journal:
        return Journal(
            self._folder / source,
            lambda: self._header,
            segment_bytes=self._limits.segment_bytes,
            total_bytes=self._limits.spool_bytes,
            max_record=self._limits.message_bytes,
        )

    def _left(self, own: pb.SpoolHeader) -> list[SpooledSource]:
        """Sources of earlier processes with steps for the same contract; others stay where they are."""
        try:
            folders = [path for path in self._folder.iterdir() if SOURCE.fullmatch(path.name) and path.is_dir()]
        except OSError as error:
            raise LinkError(f"The spool {path_text(self._folder)} cannot be read: {error.strerror}.") from error
        found: list[tuple[int, SpooledSource]] = []
        for folder in folders:
            journal = self._journal(folder.name)
            reader = JournalReader(journal)
            first = reader.read(headers=True)
            reader.close()
            if first is None:
                shutil.rmtree(folder, ignore_errors=True)  # Killed before it wrote anything.
                continue
            header = parse(pb.SpoolHeader, first.payload, "a header of a spool")
            own.order = max(own.order, header.order + 1)
            if (header.identity, header.contract_sha256) != (own.identity, own.contract_sha256):
                _LOG.warning(
                    "%s stays as it is: its steps are of actor '%s' and contract %s, which differ from this session's.",
                    path_text(folder),
                    header.identity,
                    header.contract_sha256,
                )
            elif len(found) < self._limits.actors:
                found.append((header.order, SpooledSource(folder.name, journal, self._limits)))
        return [source for _, source in sorted(found, key=lambda item: item[0])]

    def put(self, data: bytes | None) -> bool:
        """Take the bytes of a step; None for a step that was refused, whose number is left out.

        Returns:
            False if there is no room for it in memory, because the disk has been full for long.
        """
        with self._changed:
            self._number += 1
            if data is None:
                return False
            is_full = self._queue_bytes + len(data) > self._limits.queue_bytes
            if is_full or len(self._queue) >= self._limits.queue_steps or self._ended:
                self.dropped += 1
                return False
            self._queue.append((self._number, data))
            self._queue_bytes += len(data)
            self._taken += 1
            self._changed.notify()
            return True

    @property
    def queued(self) -> int:
        """Steps in memory that are not in the spool yet."""
        with self._changed:
            return len(self._queue)

    @property
    def waiting(self) -> int:
        """Steps of this process that were taken and are not acknowledged."""
        return max(0, self._taken - self.own.done)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue:
                    if self._ended:
                        return
                    self._changed.wait(self._limits.fsync_s or None)
                item = self._queue[0] if self._queue else None
            if item is not None and not self._write(*item):
                with self._changed:
                    if self._ended:
                        return
                    self._changed.wait(self._limits.wait_s)
            self._sync()

    def _write(self, number: int, data: bytes) -> bool:
        journal = self.own.journal
        journal.total_bytes = self._limits.spool_bytes - sum(source.journal.bytes for source in self.left)
        try:
            journal.append(number, data, sync=self._limits.fsync_s == 0.0)
        except (DiskFullError, OSError) as error:
            self.trouble = str(error)
            self._trouble.error(self.trouble)
            return False
        if self.trouble:
            self._trouble.over()
            self.trouble = ""
        self._dirty = True
        with self._changed:
            self._queue.popleft()
            self._queue_bytes -= len(data)
        self._added()
        return True

    def _sync(self) -> None:
        if self._dirty and time.monotonic() - self._synced_s >= self._limits.fsync_s:
            with contextlib.suppress(OSError):  # The next write says so.
                self.own.journal.sync()
            self._synced_s, self._dirty = time.monotonic(), False

    def close(self) -> None:
        """Write what is in memory, remove sources of which everything is acknowledged, and release the folder."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.own.journal.sync()
        self.own.journal.close()
        if self.own.is_empty() and not self.queued:
            self.own.remove()
        self._folder_lock.release()
