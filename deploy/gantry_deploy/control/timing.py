"""Durations: the newest samples of each, and their percentiles."""

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
