"""Reason for which a node waits, said in its log once, and again when it changes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from gantry_hardware.files.text import LINE_LIMIT, printable

SETTLE_S = 1.0
"""A reason that lasts for less is not said: while nodes start, many do."""
REPEAT_S = 30.0
"""A reason that was said before, and came back after another one, is not said again sooner: two that alternate would
fill the log."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


class WaitReason:
    """Reason for which something waits. To be told on every look; speaks only when it changes.

    Args:
        say: Takes a line, for example ``node.get_logger().warning``.
        before: What stands before each reason, for example "Not started".
        settle_s: How long a reason must last before it is said.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        say: Callable[[str], object],
        before: str,
        *,
        settle_s: float = SETTLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._before, self._settle_s, self._clock = say, before, settle_s, clock
        self.reason = ""
        """What it waits for now; empty if for nothing."""
        self._kind, self._since_s = "", 0.0
        self._said = ""
        self._said_s: dict[str, float] = {}

    def note(self, reason: str) -> bool:
        """Take note of why it waits; reasons that differ in numbers alone, as ages do, are the same reason.

        Args:
            reason: A sentence; empty if it does not wait any more.

        Returns:
            Whether a line was said.
        """
        now_s, kind = self._clock(), _NUMBER.sub("#", reason)
        self.reason = reason
        if kind != self._kind:
            self._kind, self._since_s = kind, now_s
        if not kind:
            self._said = ""
            return False
        if kind == self._said or now_s - self._since_s < self._settle_s:
            return False
        self._said = kind
        if now_s - self._said_s.get(kind, -REPEAT_S) < REPEAT_S:
            return False
        self._said_s[kind] = now_s
        self._say(f"{self._before}: {printable(reason, LINE_LIMIT)}")
        return True
