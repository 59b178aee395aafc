"""Stamps of a robot's readings, believed within a bound: how old a reading is by its own clock's progress.

A robot's clock need not be this machine's, so that a stamp alone tells no age. Its progress does: the difference of the
two clocks is constant, and a reading that comes later than the quickest one did is so much older.
"""

from __future__ import annotations

from gantry_hardware.stamps import RESTART_S, StampGate, StampVerdict

LATE_S = 0.25
"""A reading that was no longer on its way than this is as new as its arrival; a busy machine looks late itself."""
DRIFT_SHARE = 0.005
"""Share of the time by which two clocks may drift apart, far more than they do; a link whose delay grows more slowly
than this is not noticed."""


class StateStamps:
    """Judges the stamps of one topic. The source's clock may differ from this machine's by any constant time."""

    def __init__(self) -> None:
        self._gate = StampGate()
        self._ahead_s: float | None = None  # Of the source's clock before this machine's, by the quickest reading.
        self._heard_s = 0.0
        self._leap: tuple[float, float] | None = None
        self.late_s = 0.0
        """How much older than its arrival the newest reading is."""

    @property
    def refused(self) -> int:
        """Readings whose stamps were not believed; those that repeat the one before are none of them."""
        counts = self._gate.counts
        return sum(counts[verdict] for verdict in (StampVerdict.AHEAD, StampVerdict.NO_TIME, StampVerdict.NOT_NEWER))

    def judge(self, stamp_s: float, now_s: float) -> bool:
        """Whether a reading counts; sets :attr:`late_s`.

        Args:
            stamp_s: When it says that it was measured.
            now_s: When it came, on a clock that runs as the source's does.
        """
        ahead_s = stamp_s - now_s
        clock_s = None if self._ahead_s is None else now_s + self._ahead_s
        verdict = self._gate.judge(stamp_s, clock_s)
        if verdict is StampVerdict.AHEAD and self._lasts(ahead_s, now_s):
            self._gate.forget()
            verdict = self._gate.judge(stamp_s)
            self._ahead_s = None
        if not verdict.believed:
            return False
        if self._ahead_s is None or verdict is StampVerdict.RESTARTED:
            self._ahead_s = ahead_s
        self._leap = None
        drift_s = DRIFT_SHARE * max(0.0, now_s - self._heard_s)
        self._heard_s = now_s
        self._ahead_s = max(ahead_s, self._ahead_s - drift_s)
        late_s = self._ahead_s - ahead_s
        self.late_s = late_s if late_s > LATE_S else 0.0
        return True

    def _lasts(self, ahead_s: float, now_s: float) -> bool:
        """Whether stamps have been ahead by the same time for so long that the source's clock was set; one stamp that
        is wrong is none of that."""
        if self._leap is None or abs(ahead_s - self._leap[0]) > self._gate.max_ahead_s:
            self._leap = (ahead_s, now_s)
        return now_s - self._leap[1] > RESTART_S
