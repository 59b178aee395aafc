"""Detection of a second commander: a robot's own side of it."""

from __future__ import annotations

from gantry_ros.runtime.publishers import HOLD_S, QUIET_S, DuplicateMonitor


class Commanders:
    """Listens to the numbers of all commands. Two publishers of one topic are two commanders, and so are two ways of
    commanding one robot, each with topics of its own, that are used in turn.

    Args:
        quiet_s: For how long a commander must have been silent before another one is obeyed.
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._monitors: dict[str, DuplicateMonitor] = {}
        self._way, self._way_s = "", -float("inf")
        self._other_s = -float("inf")
        self._proof_s = -float("inf")
        self._second_way_s: float | None = None

    def hear(self, topic: str, way: str, number: int, now_s: float) -> bool:
        """Whether a command is to be obeyed.

        Args:
            topic: Where it came.
            way: Which way of commanding the topic belongs to.
            number: Its publisher's own count of it.
            now_s: When it came, s, on a clock that never goes back.
        """
        counts = self._monitors.setdefault(topic, DuplicateMonitor(self._quiet_s)).hear(number, now_s)
        return self._take_way(way, now_s) and counts and not self.has_two(now_s)

    def has_two(self, now_s: float) -> bool:
        """Whether there are two."""
        return now_s - self._proof_s < HOLD_S or any(monitor.has_two(now_s) for monitor in self._monitors.values())

    @property
    def second_s(self) -> float | None:
        """Time at which the newest second commander was first heard; None if there never was one."""
        times = [self._second_way_s, *(monitor.second_s for monitor in self._monitors.values())]
        return max((time_s for time_s in times if time_s is not None), default=None)

    def _take_way(self, way: str, now_s: float) -> bool:
        if way != self._way:
            if now_s - self._way_s <= self._quiet_s:
                if now_s - self._other_s > HOLD_S:
                    self._second_way_s = now_s
                self._other_s = now_s
                return False
            self._way, self._other_s = way, self._way_s if self._way else -float("inf")
        elif self._other_s >= self._way_s and now_s - self._way_s < HOLD_S:
            self._proof_s = now_s
        self._way_s = now_s
        return True
