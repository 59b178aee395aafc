"""Detection of a second publisher on a topic, from the messages themselves.

DDS numbers what each publisher sends. The numbers of one publisher rise; those of two, in the order of arrival, do not:
after a message of the second one, which counts for itself, the first one's next number shows that both are alive. A
publisher that was started again counts from the beginning as well, but the one before it is heard no more. So no list
of publishers is needed, which is out of date at both ends: a node that was killed stays in it for 20 s, a new one
appears late.
"""

from __future__ import annotations

from dataclasses import dataclass

QUIET_S = 0.1
"""A publisher that was heard within this time, or within three of its periods, is alive: another one's messages count
only after it."""
LONGEST_QUIET_S = 2.0
"""The same of one that speaks seldom, at most."""
HOLD_S = 1.0
"""For so long after two were heard in turn they count as two; both may be silent for a moment."""
INFINITE = float("inf")
_PERIODS = 3.0
_LEAST_GAP, _FASTEST_HZ = 2000.0, 20_000.0
# Messages that may have been lost, or have waited on a busy machine, and the fastest publisher.
_NO_NUMBER = 2**63
"""A middleware that counts no messages says the largest number there is."""


@dataclass
class _Stream:
    """Messages of one publisher."""

    number: int
    """Of its newest message."""
    first_s: float
    """Time at which it was first heard."""
    last_s: float
    """Time at which it was last heard."""
    period_s: float | None = None
    """Time between two of its messages, smoothed."""

    def gap(self, number: int, now_s: float) -> float:
        """Number of messages by which a number is later; infinite if it cannot be this publisher's, as it is not later,
        or later than so many can have been sent meanwhile.
        """
        gap = number - self.number
        return gap if 0 < gap <= _LEAST_GAP + _FASTEST_HZ * (now_s - self.last_s) else INFINITE

    def take(self, number: int, now_s: float) -> None:
        """Its next message."""
        period_s = (now_s - self.last_s) / (number - self.number)
        self.period_s = period_s if self.period_s is None else self.period_s + 0.1 * (period_s - self.period_s)
        self.number, self.last_s = number, now_s


class DuplicateMonitor:
    """Listens to the numbers of one topic's messages.

    Args:
        quiet_s: For how long the present publisher must have been silent before another one is heard in its place.
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._current: _Stream | None = None
        self._other: _Stream | None = None
        self._proof_s = -INFINITE
        self.held = 0
        """Messages that were kept back, as another publisher than theirs was alive."""
        self.second_s: float | None = None
        """When the newest other publisher was first heard; None if there never was one."""

    def hear(self, number: int, now_s: float) -> bool:
        """Whether a message counts.

        Args:
            number: The publisher's own count of it, ``publication_sequence_number`` of the message's info.
            now_s: When it came, s, on a clock that never goes back.

        Returns:
            False if it comes from another publisher than the one that is alive, or if two are.
        """
        if not 0 <= number < _NO_NUMBER:
            return True
        current, other = self._current, self._other
        if current is None:
            self._current = _Stream(number, now_s, now_s)
            return True
        if other is not None and now_s - other.last_s > HOLD_S + self._quiet(other):
            other = self._other = None  # Long gone: no number is taken for one of its any more.
        own, foreign = current.gap(number, now_s), INFINITE if other is None else other.gap(number, now_s)
        if own <= foreign and own < INFINITE:
            self._compare(current, other, now_s)
            current.take(number, now_s)
            return self._counts(now_s)
        if other is not None and foreign < INFINITE:
            self._compare(other, current, now_s)
            other.take(number, now_s)
        else:
            other = self._other = _Stream(number, now_s, now_s)
            self.second_s = now_s
        if now_s - current.last_s > self._quiet(current):
            self._current, self._other = other, current
            return self._counts(now_s)
        self.held += 1
        return False

    def has_two(self, now_s: float) -> bool:
        """Whether two publishers are alive."""
        return now_s - self._proof_s < HOLD_S

    def _compare(self, heard: _Stream, silent: _Stream | None, now_s: float) -> None:
        """Two that are heard in turn, one, the other, and the one again, are alive both."""
        if silent is not None and silent.last_s >= heard.last_s and now_s - heard.last_s < HOLD_S + self._quiet(heard):
            self._proof_s = now_s

    def _counts(self, now_s: float) -> bool:
        counts = not self.has_two(now_s)
        self.held += not counts
        return counts

    def _quiet(self, stream: _Stream) -> float:
        return min(max(self._quiet_s, _PERIODS * (stream.period_s or 0.0)), max(LONGEST_QUIET_S, self._quiet_s))
