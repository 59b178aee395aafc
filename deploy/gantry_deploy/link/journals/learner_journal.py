"""Learner's journal: steps reach the disk before they are acknowledged, and its sink once per process."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gantry_deploy.errors import LinkError
from gantry_deploy.link.codec import decode_step, parse
from gantry_deploy.link.journals.journal import HEADER, Journal, JournalReader
from gantry_deploy.link.journals.sources import Source, SourceTable
from gantry_deploy.link.limits import LinkLimits
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.process.folder_lock import FolderLock
from gantry_deploy.session.steps import SessionStep

_LOG = logging.getLogger("gantry.link")
LOOK_S = 0.2
"""Longest time after which the thread of the sink looks whether it is to end."""


class StepSink(Protocol):
    """Receiver of steps in the learner."""

    def take(self, actor: str, steps: Sequence[SessionStep]) -> None:
        """Take steps, each once per process, those of one actor in order; called from one thread.

        At the start these are the steps of the whole journal. An attempt of which no more steps come, because its actor
        was killed, is followed by one that begins with index 0.

        Args:
            actor: Identity of the actor.
            steps: Steps, at least one.
        """
        ...


class LearnerJournal:
    """Journal of a learner with the table of its sources; any thread may call it.

    Args:
        folder: Created if missing; one process at a time.
        sink: Receiver of all steps.
        contract_sha256: SHA-256 of the policy's contract; that of the journal must be the same.
        limits: Bounds.

    Raises:
        LinkError: If the folder is in use, cannot be read, or belongs to another contract.
    """

    def __init__(self, folder: Path, sink: StepSink, contract_sha256: str, limits: LinkLimits) -> None:
        self.learner = secrets.token_hex(8)
        self._sink, self._contract, self._limits = sink, contract_sha256, limits
        self._changes = threading.RLock()
        self._added = threading.Condition()
        self._table = SourceTable()
        self._delivered: dict[str, int] = {}
        self._record = 0
        self._backlog = 0
        self.delivered = 0
        self.trouble = ""
        self._ended = False
        self._folder_lock = FolderLock(folder, "The learner's journal", LinkError)
        try:
            self._journal = Journal(
                folder,
                self._header,
                segment_bytes=limits.segment_bytes,
                total_bytes=limits.journal_bytes,
                max_record=2 * limits.message_bytes,
            )
            self._restore()
        except BaseException:
            self._folder_lock.release()
            raise
        self._first_new = max(self._journal.keys(), default=0) + 1
        self._thread = threading.Thread(target=self._deliver, name="gantry-sink", daemon=True)
        self._thread.start()

    def _header(self) -> bytes:
        return pb.JournalHeader(
            learner=self.learner, contract_sha256=self._contract, sources=self._table.states()
        ).SerializeToString()

    def _restore(self) -> None:
        """Read the table: the header of the last segment that has one, and the records behind it."""
        for key in reversed(self._journal.keys()):
            reader = JournalReader(self._journal, key)
            first = reader.read(headers=True)
            if first is None or first.number != HEADER:
                reader.close()
                continue
            header = parse(pb.JournalHeader, first.payload, "a header of a journal")
            if header.contract_sha256 != self._contract:
                reader.close()
                raise LinkError(
                    f"The journal {self._journal.folder} holds steps of the contract {header.contract_sha256}, and this"
                    f" learner has {self._contract}. Give it a folder of its own."
                )
            self.learner = header.learner
            self._table.load(header.sources)
            while (record := reader.read(headers=True)) is not None:
                self._record = max(self._record, record.number)
                if record.number != HEADER:
                    self._table.apply(parse(pb.JournalRecord, record.payload, "a record of a journal"))
            reader.close()
            return

    def join(self, identity: str, source: str) -> bool:
        """Make a source the owner of an identity.

        Returns:
            False if a later one has replaced it.

        Raises:
            LinkError: If the source belongs to another actor, or there are too many.
            DiskFullError: If the journal cannot take note of it.
        """
        with self._changes:
            self._table.check_new(source, identity, self._limits.actors)
            if self._table.owner(identity) == source:
                return True
            known = self._table.sources.get(source)
            if known is not None and known.is_replaced:
                return False
            self._append(pb.JournalRecord(identity=identity, source=source))
            return True

    def standing(self, identity: str, source: str) -> pb.Verdict:
        """Verdict on a caller: the identity's owner, replaced, or not known."""
        with self._changes:
            if self._table.owner(identity) == source:
                return pb.ACCEPTED
            known = self._table.sources.get(source)
            return pb.REPLACED if known is not None and known.is_replaced else pb.JOIN_FIRST

    def take(self, identity: str, owner: str, source: str, steps: Sequence[pb.NumberedStep]) -> tuple[pb.Verdict, int]:
        """Write those steps to the disk that are not there yet.

        Args:
            identity: Name of the actor.
            owner: Source that sends; nothing is taken unless it has the identity now.
            source: Source of the steps.
            steps: Steps with rising numbers; none to see how things stand.

        Returns:
            Verdict on the sender, and the highest number of the source on the disk.

        Raises:
            LinkError: If the source belongs to another actor, or there are too many.
            DiskFullError: If the disk does not take them; none was taken.
        """
        with self._changes:
            verdict = self.standing(identity, owner)
            if steps and verdict == pb.ACCEPTED:
                self._table.check_new(source, identity, self._limits.actors)
                if new := self._table.new_steps(source, steps):
                    self._append(pb.JournalRecord(identity=identity, source=source, steps=new))
            return verdict, self._table.highest(source)

    def _append(self, record: pb.JournalRecord) -> None:
        payload = record.SerializeToString()
        self._journal.append(self._record + 1, payload, sync=True)
        self._record += 1
        self._table.apply(record)
        with self._added:
            self._backlog += len(payload)
            self._added.notify()

    def highest(self, source: str) -> int:
        """Highest number of a source on the disk; 0 for one that is not known."""
        with self._changes:
            return self._table.highest(source)

    def by_identity(self) -> dict[str, tuple[str, list[Source]]]:
        """Owner and sources of each actor."""
        with self._changes:
            return {
                identity: (
                    self._table.owner(identity),
                    [item for item in self._table.sources.values() if item.identity == identity],
                )
                for identity in self._table.identities()
            }

    @property
    def bytes(self) -> int:
        """Size on the disk."""
        return self._journal.bytes

    def backlog_share(self) -> float:
        """Steps that came since the start and that the sink has not taken, as a share of what is allowed."""
        with self._added:
            return self._backlog / self._limits.backlog_bytes

    def _deliver(self) -> None:
        reader = JournalReader(self._journal)
        try:
            while not self._ended:
                record = reader.read()
                if record is not None:
                    self._hand_over(record.payload)
                    with self._added:
                        if reader.key >= self._first_new:
                            self._backlog -= len(record.payload)
                    continue
                with self._added:
                    self._added.wait(LOOK_S)
        except Exception as error:
            self.trouble = f"The learner's sink has failed and takes no more steps: {error}"
            _LOG.exception("%s. What comes is kept in the journal.", self.trouble)
        finally:
            reader.close()

    def _hand_over(self, payload: bytes) -> None:
        record = parse(pb.JournalRecord, payload, "a record of a journal")
        highest = self._delivered.get(record.source, 0)
        new = [step for step in record.steps if step.number > highest]
        if not new:
            return
        steps = [decode_step(step.step, self._limits.message_bytes) for step in new]
        self._sink.take(record.identity, steps)
        self._delivered[record.source] = new[-1].number
        self.delivered += len(steps)

    def close(self) -> None:
        """End the thread of the sink, after the record that it is at, and let other processes have the folder."""
        self._ended = True
        with self._added:
            self._added.notify()
        self._thread.join()
        self._journal.close()
        self._folder_lock.release()
