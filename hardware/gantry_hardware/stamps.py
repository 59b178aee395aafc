"""Stamps of messages, believed within a bound: one wrong clock must not stop everything that follows."""

from __future__ import annotations

import math

from gantry_hardware.compat import StrEnum

MAX_AHEAD_S = 0.5
"""A stamp may lie so far ahead of the clock of the process that reads it."""
RESTART_S = 1.0
"""A source whose stamps go back by more than this has started over, or its clock was set."""


class StampVerdict(StrEnum):
    """Verdict on a stamp."""

    ACCEPTED = "accepted"
    RESTARTED = "restarted"
    AHEAD = "ahead of the clock"
    NOT_NEWER = "not newer than the one before"
    NO_TIME = "not a time"

    @property
    def believed(self) -> bool:
        """Whether the message counts: it is accepted, or the first one of a source that has started over."""
        return self in (StampVerdict.ACCEPTED, StampVerdict.RESTARTED)


class StampGate:
    """Judges the stamps of one source, by its own earlier ones and by the reader's clock; sources need one each.

    A refused stamp changes nothing but :attr:`counts`, so that the message after it is judged as if it had not come. A
    source that is behind the clock by any constant time is believed: its age is for the reader to judge.

    Args:
        max_ahead_s: How far a stamp may lie ahead of the clock, s.
        restart_s: Stamps that go back by more than this are those of a source that has started over, s.
    """

    def __init__(self, max_ahead_s: float = MAX_AHEAD_S, restart_s: float = RESTART_S) -> None:
        self.max_ahead_s = max_ahead_s
        """How far a stamp may lie ahead of the clock, s."""
        self.restart_s = restart_s
        """Going back by more than this is starting over, s."""
        self.newest_s = -math.inf
        """Stamp of the last message that was believed, s; minus infinity without any."""
        self.counts = dict.fromkeys(StampVerdict, 0)
        """Stamps by verdict."""

    def judge(self, stamp_s: float, now_s: float | None = None) -> StampVerdict:
        """Judge the stamp of the next message, and take it for the newest one if it is believed.

        Args:
            stamp_s: When the message says that it was measured, s.
            now_s: The reader's clock, of the same epoch; None where it is not known, which bounds nothing.
        """
        verdict = self._verdict(stamp_s, now_s)
        self.counts[verdict] += 1
        if verdict.believed:
            self.newest_s = stamp_s
        return verdict

    def forget(self) -> None:
        """Judge the next stamp as the first one; counts stay."""
        self.newest_s = -math.inf

    def text(self, verdict: StampVerdict, stamp_s: float, now_s: float | None = None) -> str:
        """The reason for refusing a stamp, with the numbers, to follow the name of what carries it."""
        if verdict is StampVerdict.AHEAD and now_s is not None:
            return f"is stamped {stamp_s - now_s:.3g} s ahead of the clock, allowed are {self.max_ahead_s:g} s"
        if verdict is StampVerdict.NOT_NEWER:
            return f"is stamped {self.newest_s - stamp_s:.3g} s before the newest one"
        return f"is stamped {stamp_s:g} s: {verdict}"

    def _verdict(self, stamp_s: float, now_s: float | None) -> StampVerdict:
        if not math.isfinite(stamp_s):
            return StampVerdict.NO_TIME
        if now_s is not None and stamp_s > now_s + self.max_ahead_s:
            return StampVerdict.AHEAD
        if stamp_s > self.newest_s:
            return StampVerdict.ACCEPTED
        return StampVerdict.RESTARTED if stamp_s < self.newest_s - self.restart_s else StampVerdict.NOT_NEWER
