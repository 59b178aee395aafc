"""Faults of a simulated car, and a drill: lose something on the way and see how the car comes to rest."""

from __future__ import annotations

import math
from typing import Any

from gantry_hardware.errors import GantryError, unknown_name_text
from gantry_hardware.model.cars import STANDSTILL_M_S

LOST_INPUTS = {"no_scan": "scan", "no_objects": "objects", "no_stop_line": "stop_line", "late_objects": "objects"}
"""Fault -> what its policy does without, a name of :data:`gantry_deploy.perception.road.INPUTS` and of a topic."""
FAULTS = {
    "": "none",
    "silent": "publishes nothing of the car itself any more, while the process lives",
    "frozen": "repeats the last reading with its old stamp",
    "nan": "the speed is not a number",
    "no_joints": "publishes no joint states any more",
    **{name: f"publishes no {LOST_INPUTS[name]} any more" for name in ("no_scan", "no_objects", "no_stop_line")},
    "late_objects": "the objects' stamps are from long ago",
}
"""Every fault and what it does."""
FAULT_NAMES = tuple(name for name in FAULTS if name)
"""Those that are faults indeed."""

MOVES_M_S = 0.3
"""A faster car is on its way."""
WATCHED_S = 2.0
"""So long a car is watched after it has come to rest."""
TOLERANCE = 0.02
"""Share by which braking may exceed the limit; a speed is told in single precision."""


def require_fault(fault: str) -> str:
    """A fault's name.

    Raises:
        GantryError: If there is no such fault.
    """
    if fault not in FAULTS:
        raise GantryError(unknown_name_text("fault", fault, FAULT_NAMES))
    return fault


class Drill:
    """Says when a fault is due, and notes what the car then does; all times are the car's own, simulated ones.

    Args:
        fault: A name of :data:`FAULTS`.
        after_s: How long the car has been on its way when the fault begins.
        brake_limit_m_s2: Of the car.

    Raises:
        GantryError: If there is no such fault, or none.
    """

    def __init__(self, fault: str, after_s: float, brake_limit_m_s2: float) -> None:
        if not require_fault(fault):
            raise GantryError(f"fault_after_s is {after_s:g}, and no fault is named that would begin then.")
        self.fault, self._after_s, self._limit = fault, after_s, brake_limit_m_s2
        self._moves_s: float | None = None
        self._began_s: float | None = None
        self._stood_s: float | None = None
        self._last: tuple[float, float] | None = None
        self._way_m, self._speed_m_s, self._top_m_s = 0.0, 0.0, 0.0
        self._braking_m_s2, self._moved_again = 0.0, False

    def note(self, time_s: float, speed_m_s: float) -> bool:
        """Take note of the car's true speed.

        Returns:
            Whether the fault begins now.
        """
        last, self._last = self._last, (time_s, speed_m_s)
        if self._began_s is not None:
            if last is not None and time_s > last[0]:
                self._note_after(last, time_s, speed_m_s)
            return False
        if self._moves_s is None:
            self._moves_s = time_s if abs(speed_m_s) > MOVES_M_S else None
        if self._moves_s is None or time_s - self._moves_s < self._after_s or abs(speed_m_s) <= MOVES_M_S:
            return False
        self._began_s, self._speed_m_s, self._top_m_s = time_s, abs(speed_m_s), abs(speed_m_s)
        return True

    @property
    def over(self) -> bool:
        """Whether the car came to rest and has been watched for long enough since."""
        return self._stood_s is not None and self._last is not None and self._last[0] - self._stood_s >= WATCHED_S

    def report(self, last_told_s: float | None = None) -> dict[str, Any]:
        """Result of the drill; plain data.

        Args:
            last_told_s: When the input that was lost was told last.
        """
        began, stood = self._began_s, self._stood_s
        since = None if began is None or last_told_s is None else began - last_told_s
        return {
            "fault": self.fault,
            "began_s": began,
            "last_told_before_s": since,
            "speed_m_s": self._speed_m_s,
            "top_speed_after_m_s": self._top_m_s,
            "rest_after_s": None if began is None or stood is None else stood - began,
            "way_m": self._way_m,
            "least_way_m": self._speed_m_s**2 / (2.0 * self._limit),
            "hardest_braking_m_s2": self._braking_m_s2,
            "brake_limit_m_s2": self._limit,
            "within_limit": self._braking_m_s2 <= (1.0 + TOLERANCE) * self._limit,
            "moved_again": self._moved_again,
        }

    def _note_after(self, last: tuple[float, float], time_s: float, speed_m_s: float) -> None:
        step_s, before, now = time_s - last[0], abs(last[1]), abs(speed_m_s)
        self._way_m += 0.5 * (before + now) * step_s
        self._braking_m_s2 = max(self._braking_m_s2, (before - now) / step_s)
        self._top_m_s = max(self._top_m_s, now)
        if self._stood_s is None:
            self._stood_s = time_s if now <= STANDSTILL_M_S else None
        elif now > STANDSTILL_M_S:
            self._moved_again = True


def drill_text(report: dict[str, Any]) -> str:
    """A drill's report as a sentence."""
    if report["began_s"] is None:
        return f"The fault '{report['fault']}' did not begin."
    told = report["last_told_before_s"]
    age = "" if told is None or math.isnan(told) else f", told last {told:.2f} s before"
    begun = f"'{report['fault']}' at {report['speed_m_s']:.2f} m/s{age}"
    if report["rest_after_s"] is None:
        return f"{begun}: the car has not come to rest."
    return (
        f"{begun}: at rest after {report['rest_after_s']:.2f} s and {report['way_m']:.2f} m (full brakes alone: "
        f"{report['least_way_m']:.2f} m), braked with {report['hardest_braking_m_s2']:.2f} m/s^2 at most, allowed are "
        f"{report['brake_limit_m_s2']:.2f}; {'it moved again' if report['moved_again'] else 'it has stayed there'}."
    )
