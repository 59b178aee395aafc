"""Durations: the newest samples of each, their percentiles, and the periods of a loop."""

from __future__ import annotations

import numpy as np


class TimingLog:
    """Keeps the newest ``capacity`` samples of named durations in memory that was claimed beforehand.

    Args:
        names: What is measured.
        capacity: Samples kept of each; 60,000 are 20 minutes at 50 Hz.
    """

    def __init__(self, names: tuple[str, ...], capacity: int = 60_000) -> None:
        self._samples = {name: np.zeros(capacity) for name in names}
        self._counts = dict.fromkeys(names, 0)
        self._capacity = capacity

    def add(self, name: str, duration_s: float) -> None:
        """Note one duration."""
        self._samples[name][self._counts[name] % self._capacity] = duration_s
        self._counts[name] += 1

    def samples_s(self, name: str) -> np.ndarray:
        """The samples that are kept, in no particular order, shape (at most capacity,), seconds."""
        return self._samples[name][: min(self._counts[name], self._capacity)].copy()

    def clear(self) -> None:
        """Forget every sample."""
        self._counts = dict.fromkeys(self._counts, 0)

    def summary(self) -> dict[str, dict[str, float]]:
        """Of each name with samples: count, mean, p50, p99 and max, seconds."""
        result: dict[str, dict[str, float]] = {}
        for name in self._samples:
            samples = self.samples_s(name)
            if samples.size:
                p50, p99 = np.percentile(samples, (50, 99))
                result[name] = {
                    "count": int(samples.size),
                    "mean_s": float(samples.mean()),
                    "p50_s": float(p50),
                    "p99_s": float(p99),
                    "max_s": float(samples.max()),
                }
        return result


class LoopTiming(TimingLog):
    """Periods, parts and missed deadlines of a control loop; all durations in seconds."""

    def __init__(self) -> None:
        super().__init__(("period", "jitter", "busy", "read", "map", "safety", "observe", "infer", "step", "write"))
        self.ticks = self.missed = self.missed_in_a_row = 0
        self._last_s: float | None = None
        self._period_s = self._nominal_s = 0.0

    def restart(self) -> None:
        """Let the next tick be the first one of a run."""
        self._last_s, self.missed_in_a_row = None, 0

    def begin(self, now_s: float, rate_hz: float) -> float:
        """Begin a tick: time since the last one; counts the periods in between in which no tick began."""
        self.ticks += 1
        self._period_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s, self._nominal_s = now_s, 1.0 / rate_hz
        missed = max(0, round(self._period_s * rate_hz) - 1)
        self.missed += missed
        self.missed_in_a_row = self.missed_in_a_row + missed if missed else 0
        return self._period_s

    def end(
        self,
        read_s: float,
        map_s: float | None,
        safety_s: float,
        policy_s: tuple[float, float] | None,
        write_s: float,
        busy_s: float,
    ) -> None:
        """Note the parts of a tick; ``policy_s`` are observing and inferring, None for what was not done."""
        parts = {"read": read_s, "safety": safety_s, "write": write_s, "busy": busy_s}
        if map_s is not None:
            parts["map"] = map_s
        if self._period_s > 0.0:
            parts |= {"period": self._period_s, "jitter": abs(self._period_s - self._nominal_s)}
        if policy_s is not None:
            # A step is what the policy costs: judging, observing and inferring, without talking to the robot.
            parts |= {"observe": policy_s[0], "infer": policy_s[1], "step": sum(policy_s) + safety_s}
        for name, duration_s in parts.items():
            self.add(name, duration_s)
