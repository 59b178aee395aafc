"""Rules of motion from browsers: one hand at a time, in order, and nothing that was long on its way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gantry_deploy.page.device import SILENT_S
from gantry_deploy.teleop.operator import Axis

FRESH_S = 0.5
"""A heartbeat repeats the newest stamp that its browser has from here; an older stamp moves nothing."""

_AXES = {axis.value: axis for axis in Axis}


@dataclass(frozen=True)
class Heartbeat:
    """State of a hand in one browser tab."""

    tab: str
    """Random name of the tab."""
    count: int
    """Rises with every heartbeat of the tab."""
    stamp_s: float
    """Newest stamp that the tab has seen."""
    engaged: bool
    """Whether a button is held."""
    axes: dict[Axis, float]
    """Motion."""


class Hands:
    """Lets one tab move the robot at a time.

    Args:
        axes: Receiver of motion.
        clock: Steady clock, s.
    """

    def __init__(
        self, axes: Callable[[Mapping[Axis, float], bool], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._clock, self._begun_s = axes, clock, clock()
        self._lock = threading.Lock()
        self._tab, self._count, self._heard_s = "", 0, float("-inf")

    def stamp_s(self) -> float:
        """Time of this side, to be repeated by heartbeats."""
        return round(self._clock() - self._begun_s, 3)

    def take(self, beat: Heartbeat) -> str | None:
        """Hand on a heartbeat.

        Returns:
            None if it counts, otherwise the reason why not.
        """
        with self._lock:
            now_s = self._clock()
            mine = beat.tab == self._tab
            if mine and beat.count <= self._count:
                return "This heartbeat was overtaken by a later one."
            if not mine and now_s - self._heard_s <= SILENT_S:
                return "Another page is moving the robot."
            if not beat.engaged:
                if mine:
                    self._count, self._heard_s = beat.count, float("-inf")
                    self._tell({}, False)
                return None
            age_s = self.stamp_s() - beat.stamp_s
            if not -0.01 <= age_s <= FRESH_S:
                return f"The connection is too slow to move the robot: {1000.0 * age_s:.0f} ms."
            self._tab, self._count, self._heard_s = beat.tab, beat.count, now_s
            self._tell(beat.axes, True)
            return None


def heartbeat_of(data: Mapping[str, Any]) -> Heartbeat | None:
    """A heartbeat from JSON; None if it is malformed."""
    tab, engaged, axes = data.get("tab"), data.get("engaged"), data.get("axes")
    count, stamp_s = _number(data.get("count")), _number(data.get("stamp_s"))
    if not isinstance(tab, str) or not 8 <= len(tab) <= 64 or not isinstance(engaged, bool):
        return None
    if count is None or stamp_s is None or not isinstance(axes, dict):
        return None
    moves = {_AXES.get(name): _number(value) for name, value in axes.items()}
    kept = {
        axis: value for axis, value in moves.items() if axis is not None and value is not None and abs(value) <= 1.0
    }
    return Heartbeat(tab, int(count), stamp_s, engaged, kept) if len(kept) == len(axes) else None


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53
    return float(value) if known else None
