"""Messages of sources over time: sorted, without repetitions, in stretches between which the clock jumped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

JUMP_NS = 1_000_000_000
"""A message that is older than the one before by this much means the clock was set back, or playback began
again."""

Times = NDArray[np.int64]


@dataclass
class Series:
    """Values of one source by time."""

    times: Times
    """Shape (n,), ns, strictly rising."""
    values: Any
    """Array (n, ...) of numbers, or of the numbers of messages; a list of texts."""

    def last(self, at_ns: Times) -> tuple[NDArray[np.intp], Times]:
        """Rows of the last value at or before each time, and its age in ns; row -1 where there is none.

        Args:
            at_ns: Shape (k,), ns.
        """
        rows = np.searchsorted(self.times, at_ns, side="right") - 1
        ages = np.where(rows >= 0, at_ns - self.times[np.maximum(rows, 0)], np.iinfo(np.int64).max)
        return rows, ages

    def interpolated(self, at_ns: Times) -> NDArray[np.float64]:
        """Numbers (k, n) at each time, linearly between the values around it, in their own units.

        Args:
            at_ns: Shape (k,), ns, none before the first value.
        """
        rows, _ = self.last(at_ns)
        after = np.minimum(rows + 1, len(self.times) - 1)
        span = np.maximum(self.times[after] - self.times[rows], 1)
        share = np.clip((at_ns - self.times[rows]) / span, 0.0, 1.0)[:, None]
        return self.values[rows] * (1.0 - share) + self.values[after] * share


@dataclass
class Collector:
    """Gathers the messages of a bag, in the order of its files."""

    segment: int = 0
    """Number of the stretch between two jumps of the clock."""
    jumps: int = 0
    """Times that the clock went back."""
    out_of_order: dict[str, int] = field(default_factory=dict)
    """Messages by topic that came after a later one."""
    repeated: dict[str, int] = field(default_factory=dict)
    """Messages by source that had the time of another one, of which the last counts."""
    _newest: dict[str, int] = field(default_factory=dict)
    _rows: dict[tuple[str, int], tuple[list[int], list[Any]]] = field(default_factory=dict)

    def arrive(self, topic: str, time_ns: int) -> int:
        """Take note of a message's time; returns the stretch that it belongs to."""
        newest = self._newest.get(topic)
        if newest is not None and time_ns < newest:
            if time_ns < newest - JUMP_NS:
                self.segment += 1
                self.jumps += 1
                self._newest.clear()
            else:
                self.out_of_order[topic] = self.out_of_order.get(topic, 0) + 1
        self._newest[topic] = max(time_ns, self._newest.get(topic, time_ns))
        return self.segment

    def add(self, source: str, segment: int, time_ns: int, value: Any) -> None:
        """Keep a value of a source."""
        times, values = self._rows.setdefault((source, segment), ([], []))
        times.append(time_ns)
        values.append(value)

    def series(self, source: str, segment: int) -> Series | None:
        """Values of a source in a stretch; None if there are none."""
        rows = self._rows.get((source, segment))
        if rows is None:
            return None
        times = np.array(rows[0], np.int64)
        order = np.argsort(times, kind="stable")
        times = times[order]
        keep = np.append(times[1:] != times[:-1], True)  # Of equal times the last message counts.
        if dropped := int((~keep).sum()):
            self.repeated[source] = dropped
        chosen = order[keep]
        values = [rows[1][i] for i in chosen]
        return Series(times[keep], values if isinstance(values[0], str) else np.array(values))

    def count(self, source: str) -> int:
        """Values of a source in all stretches."""
        return sum(len(times) for (name, _), (times, _) in self._rows.items() if name == source)


def said(counts: Mapping[str, int], what: str) -> list[str]:
    """Notes of counts by topic."""
    return [f"{name}: {number} {what}" for name, number in counts.items() if number]
