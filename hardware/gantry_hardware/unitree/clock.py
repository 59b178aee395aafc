"""The robot's clock, told on this machine's: how old a state really is, whenever it arrives."""

from __future__ import annotations

TICKS = 1 << 32
"""Count at which the robot's clock begins anew, after 49 days."""
TICK_S = 0.001
"""Length of a tick."""
DRIFT = 5e-4
"""Share by which the two clocks may differ in speed."""


class RobotClock:
    """Follows the smallest difference between the time at which a state arrives and the one at which it was made.

    States come late and never early, so that the smallest difference is that of the quickest state. It is let to grow
    slowly, as two quartz clocks drift; a state that comes later than that is old, as one out of a burst or a queue is.

    Args:
        tick_s: Length of a tick, s.
    """

    def __init__(self, tick_s: float = TICK_S) -> None:
        self._tick_s = tick_s
        self._tick: int | None = None
        self._robot_s = self._offset_s = self._received_s = 0.0

    @property
    def robot_s(self) -> float:
        """Time of the newest state since the first, on the robot's clock."""
        return self._robot_s

    def ahead(self, tick: int) -> int:
        """Ticks from the newest state to this one; negative for one that is older."""
        if self._tick is None:
            return 1
        ahead = (tick - self._tick) % TICKS
        return ahead - TICKS if ahead >= TICKS // 2 else ahead

    def restart(self) -> None:
        """Forget everything: the next state begins a new count."""
        self._tick = None

    def stamp_s(self, tick: int, received_s: float) -> float:
        """Time at which a state was made, on this machine's clock.

        Args:
            tick: Of the state, newer than the one before.
            received_s: When it arrived, on this machine's clock.
        """
        if self._tick is None:
            self._robot_s, self._offset_s = 0.0, received_s
        else:
            self._robot_s += self.ahead(tick) * self._tick_s
            grown_s = self._offset_s + DRIFT * max(0.0, received_s - self._received_s)
            self._offset_s = min(grown_s, received_s - self._robot_s)
        self._tick, self._received_s = tick, received_s
        return min(self._robot_s + self._offset_s, received_s)
