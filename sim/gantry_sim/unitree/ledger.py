"""Notes of a fake robot: the commands that it got, and the time until it was damped after a fault."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

KEPT_GAPS = 1 << 17
"""Times between two commands that are kept: 262 s at 500 Hz."""


@dataclass
class FaultNote:
    """A fault that was switched on."""

    name: str
    """Name and settings."""
    at_ms: int
    """Time, on the robot's clock."""
    damped_ms: int | None = None
    """Time at which the robot was damped after it; None if it was not."""
    how: str = ""
    """``command`` if damping was commanded, ``timeout`` if the robot did so itself because commands stayed away."""

    @property
    def after_ms(self) -> int | None:
        """Time from the fault to the damping."""
        return None if self.damped_ms is None else self.damped_ms - self.at_ms


class Ledger:
    """Counts, first texts and times; everything that the report says."""

    def __init__(self) -> None:
        self.states_sent = self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.remarks: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self.faults: list[FaultNote] = []
        self.events: list[dict[str, Any]] = []
        self._gaps_ms, self._gaps = np.zeros(KEPT_GAPS), 0

    def refuse(self, reason: str, text: str, at_ms: int) -> None:
        """A command that is not obeyed, which is a violation as well."""
        self.refused[reason] += 1
        self.violate(reason, text, at_ms)

    def violate(self, kind: str, text: str, at_ms: int) -> None:
        """Something that a real robot would punish."""
        self.violations[kind] += 1
        self._first.setdefault(kind, f"at {at_ms} ms: {text}")

    def event(self, what: str, at_ms: int) -> None:
        """Something that happened."""
        self.events.append({"at_ms": at_ms, "what": what})

    def gap(self, gap_ms: float) -> None:
        """Time between two commands, on the robot's clock."""
        self._gaps_ms[self._gaps % KEPT_GAPS] = gap_ms
        self._gaps += 1

    def begin_fault(self, name: str, at_ms: int) -> None:
        """A fault was switched on."""
        self.faults.append(FaultNote(name, at_ms))
        self.event(f"fault {name}", at_ms)

    def damped(self, how: str, at_ms: int) -> None:
        """The robot is damped now; answers every fault that has no answer yet."""
        for fault in self.faults:
            if fault.damped_ms is None:
                fault.damped_ms, fault.how = at_ms, how

    def report(self) -> dict[str, Any]:
        """Everything, as plain data for JSON."""
        gaps = self._gaps_ms[: max(1, min(self._gaps, KEPT_GAPS))]  # One of zero, before there is any.
        p50, p99, longest = np.percentile(gaps, (50, 99, 100)).tolist()
        return {
            "states_sent": self.states_sent,
            "commands": {"accepted": self.accepted, "refused": dict(self.refused)},
            "violations": dict(self.violations),
            "first_violations": dict(self._first),
            "remarks": dict(self.remarks),
            "command_gap_ms": {"p50": p50, "p99": p99, "max": longest},
            "faults": [{**asdict(fault), "after_ms": fault.after_ms} for fault in self.faults],
            "events": self.events,
        }
