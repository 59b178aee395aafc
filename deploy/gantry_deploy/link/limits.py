"""Deadlines and bounds of the link; nothing on either side waits or grows beyond them."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_deploy.errors import LinkError
from gantry_hardware.files.bounds import Range, check_fields

_RANGES = {
    "call_deadline_s": Range(0.1, 600.0),
    "deadline_most_s": Range(1.0, 3600.0),
    "retry_first_s": Range(0.01, 10.0),
    "retry_most_s": Range(0.01, 60.0),
    "refused_retry_s": Range(0.1, 600.0),
    "heartbeat_s": Range(0.05, 60.0),
    "silent_s": Range(0.1, 600.0),
    "fsync_s": Range(0.0, 60.0),
    "wait_s": Range(0.01, 60.0),
    "message_bytes": Range(2**16, 64 * 2**20),
    "piece_bytes": Range(2**10, 32 * 2**20),
    "step_bytes": Range(2**10, 32 * 2**20),
    "batch_bytes": Range(2**10, 32 * 2**20),
    "batch_steps": Range(1, 4096),
    "queue_bytes": Range(2**10, 2**32),
    "queue_steps": Range(1, 2**20),
    "segment_bytes": Range(2**12, 2**32),
    "spool_bytes": Range(2**12, 2**42),
    "journal_bytes": Range(2**12, 2**46),
    "backlog_bytes": Range(2**12, 2**42),
    "parameters_bytes": Range(2**10, 2**31),
    "bundle_bytes": Range(2**10, 2**31),
    "workers": Range(2, 256),
    "calls": Range(2, 4096),
    "actors": Range(1, 1024),
}


@dataclass(frozen=True)
class LinkLimits:
    """Deadlines in seconds of monotonic time, and sizes in bytes.

    Raises:
        LinkError: If a number is out of its range, a message cannot hold what is to be sent in one, or a spool or
            journal not two segments.
    """

    call_deadline_s: float = 5.0
    """Time for one call."""
    deadline_most_s: float = 60.0
    """Longest time that the server lets a call allow itself; one with more, or without a deadline, is refused."""
    retry_first_s: float = 0.2
    """Time before the first new attempt to connect ..."""
    retry_most_s: float = 2.0
    """... doubled each time up to this."""
    refused_retry_s: float = 5.0
    """Time before a learner that has refused this actor is asked again."""
    heartbeat_s: float = 0.5
    """Longest time between two calls of an actor that has no steps to send; newest parameters are noticed then."""
    silent_s: float = 2.0
    """Age of the last answer from which on the learner counts as not connected."""
    fsync_s: float = 1.0
    """Longest time for which steps in an actor's spool may be lost with the machine's power; a kill loses none that was
    written. The learner's journal is on the disk before a step is acknowledged."""
    wait_s: float = 0.5
    """Time for which actors are asked to wait when nothing can be taken: full disk, learner far behind."""
    message_bytes: int = 4 * 2**20
    """Largest message; a larger one is refused by its length, before it is read."""
    piece_bytes: int = 2**20
    """Piece of a bundle or of parameters in one message."""
    step_bytes: int = 3 * 2**20
    """Largest step; one with two 84x84 images has 42 kB."""
    batch_bytes: int = 2**20
    """Steps are put into one message until they have this size ..."""
    batch_steps: int = 256
    """... or this number; also the most that the server takes in one message."""
    queue_bytes: int = 64 * 2**20
    """Steps that wait in memory for the spool's disk ..."""
    queue_steps: int = 4096
    """... and their number; more are dropped, counted, and reported."""
    segment_bytes: int = 16 * 2**20
    """Size from which on a spool or journal begins its next file."""
    spool_bytes: int = 4 * 2**30
    """Largest spool, earlier processes' steps included; an hour at 10 Hz with two 84x84 images has 1.5 GB."""
    journal_bytes: int = 64 * 2**30
    """Largest journal; then the learner takes no more."""
    backlog_bytes: int = 64 * 2**20
    """Steps on the learner's disk that its sink has not taken, from which on actors are asked to wait."""
    parameters_bytes: int = 256 * 2**20
    """Largest parameters of one version."""
    bundle_bytes: int = 256 * 2**20
    """Largest bundle of the session."""
    workers: int = 8
    """Threads of the server that answer calls; no call waits for a peer, so that few are enough."""
    calls: int = 64
    """Calls that the server has accepted and not answered; more are refused at once."""
    actors: int = 64
    """Identities that a learner knows, and in a spool earlier processes whose steps are sent."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, "limits.", LinkError)
        for name in ("spool_bytes", "journal_bytes"):
            if getattr(self, name) < 2 * self.segment_bytes:
                raise LinkError(
                    f"limits.{name} is {getattr(self, name)}, at least two segments of limits.segment_bytes"
                    f" ({self.segment_bytes}) must fit: whole segments alone make room again."
                )
        room = self.message_bytes - 2**14
        for name in ("piece_bytes", "step_bytes", "batch_bytes"):
            if getattr(self, name) > room:
                raise LinkError(
                    f"limits.{name} is {getattr(self, name)}, at most {room} fit into limits.message_bytes"
                    f" ({self.message_bytes}) with what goes along."
                )


LINK_LIMITS = LinkLimits()
"""The limits unless others are given."""
PROTOCOL = 1
"""Version of the messages; actor and learner must have the same."""
