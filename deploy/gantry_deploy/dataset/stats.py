"""Statistics of an episode and of a whole dataset, by LeRobot's definitions.

Per feature: ``min``, ``max``, ``mean``, ``std``, ``count`` and the quantiles ``q01``, ``q10``, ``q50``, ``q90`` and
``q99``, over all but an array's last dimension; pictures per channel in [0, 1] with shape (3, 1, 1). A dataset's
quantiles are the episodes' quantiles averaged by their counts, which is LeRobot's approximation.
LeRobot reads quantiles off a histogram of 5000 bins; here they are exact, so that both agree to a bin's width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
NAMES = ("min", "max", "mean", "std", "count", *QUANTILES)
"""Statistics in the order in which LeRobot writes them."""

FeatureStats = dict[str, NDArray[Any]]
"""By name of the statistic; ``count`` has shape (1,), the others (last dimension,) or (3, 1, 1)."""
Stats = dict[str, FeatureStats]
"""By feature."""


def array_stats(values: NDArray[Any]) -> FeatureStats:
    """Statistics of an array of shape (frames, ..., n) or (frames,), each of shape (n,) or (1,).

    ``min`` and ``max`` keep the array's type, as LeRobot has it.
    """
    rows = values.reshape(len(values), 1) if values.ndim == 1 else values.reshape(-1, values.shape[-1])
    floats = rows.astype(np.float64)
    ordered = np.sort(floats, axis=0)
    stats: FeatureStats = {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": floats.mean(axis=0),
        "std": floats.std(axis=0),
        "count": np.array([len(values)]),
    }
    for name, quantile in QUANTILES.items():
        stats[name] = ordered[_rank(quantile, len(rows))]
    return stats


class ImageStats:
    """Statistics of pictures that are seen one after the other; large ones are looked at coarsely, as LeRobot does."""

    def __init__(self) -> None:
        self._counts = np.zeros((3, 256), dtype=np.int64)
        self._frames = 0

    def add(self, image: NDArray[np.uint8]) -> None:
        """Take note of a picture, uint8 (height, width, 3)."""
        height, width, _ = image.shape
        step = int(max(height, width) / 150) if max(height, width) >= 300 else 1
        for channel in range(3):
            self._counts[channel] += np.bincount(image[::step, ::step, channel].ravel(), minlength=256)
        self._frames += 1

    def result(self) -> FeatureStats:
        """Statistics of all pictures so far, of shape (3, 1, 1), with the number of pictures as count."""
        levels = np.arange(256) / 255.0
        total = self._counts.sum(axis=1)
        mean = self._counts @ levels / total
        variance = np.maximum(self._counts @ levels**2 / total - mean**2, 0.0)
        cumulated = self._counts.cumsum(axis=1)
        per_channel = {
            "min": levels[(cumulated > 0).argmax(axis=1)],
            "max": levels[255 - (self._counts[:, ::-1] > 0).argmax(axis=1)],
            "mean": mean,
            "std": np.sqrt(variance),
        }
        for name, quantile in QUANTILES.items():
            per_channel[name] = levels[(cumulated > _rank(quantile, int(total[0]))).argmax(axis=1)]
        stats = {name: values.reshape(3, 1, 1) for name, values in per_channel.items()}
        return {name: np.array([self._frames]) if name == "count" else stats[name] for name in NAMES}


def aggregate(parts: Iterable[Stats]) -> Stats:
    """Statistics of several episodes or datasets together; a feature that some lack is that of the others."""
    found: dict[str, list[FeatureStats]] = {}
    for part in parts:
        for name, stats in part.items():
            if all(item in stats for item in ("min", "max", "mean", "std", "count")):
                found.setdefault(name, []).append(stats)
    return {name: _aggregate_feature(stats) for name, stats in found.items()}


def to_plain(stats: Stats) -> dict[str, dict[str, Any]]:
    """Statistics as JSON holds them."""
    return {feature: {name: values.tolist() for name, values in part.items()} for feature, part in stats.items()}


def from_plain(data: Mapping[str, Any]) -> Stats:
    """Statistics from JSON; what is no statistic, or holds no numbers, is left out."""
    stats: Stats = {}
    for feature, part in data.items():
        if isinstance(part, dict):
            arrays = {name: _numbers(values) for name, values in part.items() if name in NAMES}
            stats[feature] = {name: values for name, values in arrays.items() if values is not None}
    return stats


def to_columns(stats: Stats) -> dict[str, Any]:
    """An episode's statistics as columns of ``meta/episodes``."""
    return {
        f"stats/{feature}/{name}": values.tolist() for feature, part in stats.items() for name, values in part.items()
    }


def from_columns(row: Mapping[str, Any]) -> Stats:
    """An episode's statistics from its row."""
    stats: Stats = {}
    for column, values in row.items():
        parts = column.split("/")
        if len(parts) == 3 and parts[0] == "stats" and parts[2] in NAMES and (array := _numbers(values)) is not None:
            stats.setdefault(parts[1], {})[parts[2]] = array
    return stats


def _numbers(values: Any) -> NDArray[Any] | None:
    """An array of at least one number with at least one dimension; None if it is none."""
    try:
        array = np.atleast_1d(np.array(values))
    except (ValueError, OverflowError):  # lists of different lengths, or nested deeper than arrays are
        return None
    return array if array.dtype.kind in "biuf" and array.size else None


def _aggregate_feature(parts: list[FeatureStats]) -> FeatureStats:
    if len(parts) == 1:
        return {name: values.copy() for name, values in parts[0].items()}
    counts = np.array([int(part["count"][0]) for part in parts], dtype=np.float64)
    total = counts.sum()

    def weighted(values: list[NDArray[Any]]) -> NDArray[Any]:
        return np.tensordot(counts, np.stack(values).astype(np.float64), axes=1) / total

    mean = weighted([part["mean"] for part in parts])
    variance = weighted([part["std"] ** 2 + (part["mean"] - mean) ** 2 for part in parts])
    result: FeatureStats = {
        "min": np.min(np.stack([part["min"] for part in parts]), axis=0),
        "max": np.max(np.stack([part["max"] for part in parts]), axis=0),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": np.array([int(total)]),
    }
    for name in QUANTILES:
        if all(name in part for part in parts):
            result[name] = weighted([part[name] for part in parts])
    return result


def _rank(quantile: float, count: int) -> int:
    """Index of the smallest of ``count`` sorted values that at least this share of them does not exceed."""
    return min(count - 1, max(0, math.ceil(quantile * count) - 1))
