"""Checks of the rows of a dataset: what they should be, where, and whether the statistics are theirs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantry_deploy.dataset import stats as statistics
from gantry_deploy.dataset.checks.findings import RECORD_AGAIN, REPAIR, WRITE_STATS, Findings
from gantry_deploy.dataset.features import DONE, TRUNCATED
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.storage.columns import column_values
from gantry_deploy.dataset.storage.layout import EPISODES, STATS, EpisodeRow, FileIndex, Info, read_json, read_parquet
from gantry_deploy.dataset.video import TOLERANCE_S, decode_image
from gantry_deploy.errors import DatasetError

_EXACT = ("min", "max", "mean", "std")
MEAN_TOLERANCE, STD_TOLERANCE = 1e-4, 1e-3
"""Largest error in units of the largest absolute value: LeRobot adds up squares in single precision."""
PICTURE_TOLERANCE = 0.06
"""Largest error of a camera's mean and deviation in [0, 1]: videos are lossy, LeRobot looks at some pictures only."""


class FrameChecker:
    """Checks the data files of one dataset.

    Args:
        folder: Of the dataset.
        info: Its description.
        tasks: By their index.
        found: Takes what is wrong.
    """

    def __init__(self, folder: Path, info: Info, tasks: list[str], found: Findings) -> None:
        self._folder = folder
        self._info = info
        self._tasks = tasks
        self._found = found
        self._parts: list[statistics.Stats] = []
        self._broken = False

    def check(self, episodes: list[tuple[EpisodeRow, statistics.Stats]], *, decode: bool) -> None:
        """Check every row, the episodes' statistics and the dataset's."""
        files: dict[FileIndex, list[tuple[EpisodeRow, statistics.Stats]]] = {}
        for item in episodes:
            files.setdefault(item[0].data_file, []).append(item)
        for file, inside in files.items():
            self._check_file(self._info.data_file(file), inside, decode)
        if decode:
            self._check_pictures(len(episodes))
        if episodes:
            self._check_stats()

    def _check_file(self, name: str, inside: list[tuple[EpisodeRow, statistics.Stats]], decode: bool) -> None:
        try:
            table = read_parquet(self._folder / name)
        except DatasetError as error:
            self._broken = True
            self._found.add(name, str(error), "take the file from a backup")
            return
        expected = sum(row.length for row, _ in inside)
        if table.num_rows > expected:
            self._found.add(name, f"has {table.num_rows} rows, and its episodes {expected}", REPAIR)
        elif table.num_rows < expected:
            self._broken = True
            self._found.add(name, f"has {table.num_rows} rows, and its episodes {expected}", "take it from a backup")
        wanted = [key for key, feature in self._info.features.items() if feature.dtype != "video"]
        missing = [key for key in wanted if key not in table.column_names]
        if missing:
            self._broken = True
            self._found.add(name, f"lacks the columns {', '.join(missing)}", "take the file from a backup")
        first = inside[0][0].start
        for row, stats in inside:
            part = table.slice(row.start - first, row.length)
            if part.num_rows == row.length:
                self._check_episode(f"{name}: episode {row.index}", row, part, stats, decode)

    def _check_episode(
        self, place: str, row: EpisodeRow, table: pa.Table, stats: statistics.Stats, decode: bool
    ) -> None:
        values: dict[str, Any] = {}
        for key, feature in self._info.features.items():
            if key not in table.column_names or feature.dtype == "video":
                continue
            try:
                values[key] = column_values(key, feature, table[key])
            except DatasetError as error:
                self._broken = True
                self._found.add(place, str(error), RECORD_AGAIN)
        self._check_own_columns(place, row, values)
        for key, array in values.items():
            feature = self._info.features[key]
            if feature.is_number and array.dtype.kind == "f" and not np.isfinite(array).all():
                frames = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
                self._broken = True
                self._found.add(place, f"'{key}' is not finite in frames {_some(frames)}", RECORD_AGAIN)
            elif feature.dtype == "image":
                self._check_images(place, key, array, decode)
        computed = {
            key: statistics.array_stats(array) for key, array in values.items() if self._info.features[key].is_number
        }
        self._parts.append(computed)
        self._compare(f"{EPISODES}: episode {row.index}", stats, computed, all_needed=bool(stats))

    def _check_own_columns(self, place: str, row: EpisodeRow, values: dict[str, Any]) -> None:
        frames = np.arange(row.length)
        expected = {"frame_index": frames, "episode_index": np.full(row.length, row.index), "index": row.start + frames}
        for key, wanted in expected.items():
            if key in values and not np.array_equal(values[key], wanted):
                wrong = np.flatnonzero(values[key] != wanted)
                said = f"'{key}' is {values[key][wrong[0]]} in frame {wrong[0]}, expected {wanted[wrong[0]]}"
                self._found.add(place, said, RECORD_AGAIN)
        if "timestamp" in values:
            error_s = np.abs(values["timestamp"].astype(np.float64) - frames / self._info.fps)
            # Single precision holds the time of a long episode no better than this.
            late = np.flatnonzero(error_s > TOLERANCE_S + 1e-6 * frames / self._info.fps)
            if len(late):
                said = f"'timestamp' is {values['timestamp'][late[0]]:.4f} s in frame {late[0]}"
                self._found.add(
                    place, f"{said}, expected {late[0] / self._info.fps:.4f} s at {self._info.fps} Hz", RECORD_AGAIN
                )
        if "task_index" in values and self._tasks:
            for index in np.unique(values["task_index"]):
                known = 0 <= index < len(self._tasks)
                if not known or self._tasks[index] not in row.tasks:
                    said = f"'{self._tasks[index]}'" if known else "none"
                    listed = ", ".join(row.tasks)
                    self._found.add(place, f"task_index {index} is {said}, expected one of: {listed}", RECORD_AGAIN)
        if DONE in values:
            early = np.flatnonzero(values[DONE].reshape(-1)[:-1])
            if len(early):
                self._found.add(place, f"'{DONE}' is true in frames {_some(early)}, before the last", RECORD_AGAIN)
            if TRUNCATED in values and (values[TRUNCATED].astype(bool) & ~values[DONE].astype(bool)).any():
                self._found.add(place, f"'{TRUNCATED}' is true where '{DONE}' is not", RECORD_AGAIN)

    def _check_images(self, place: str, key: str, encoded: list[bytes | None], decode: bool) -> None:
        size = self._info.features[key].image_size
        for frame, data in enumerate(encoded if decode else encoded[:1]):
            try:
                decode_image(data or b"", size)
            except DatasetError as error:
                self._found.add(place, f"'{key}' in frame {frame}: {error}", RECORD_AGAIN)

    def _check_pictures(self, episodes: int) -> None:
        """Decode every camera, and compare its statistics with what it shows."""
        try:
            dataset, stored = Dataset(self._folder), statistics.from_plain(read_json(self._folder / STATS))
        except DatasetError:
            return  # Said elsewhere.
        for key in dataset.camera_keys:
            seen = statistics.ImageStats()
            for episode in range(episodes):
                try:
                    for picture in dataset.images(episode, key):
                        seen.add(picture)
                except DatasetError as error:
                    self._found.add(f"'{key}': episode {episode}", str(error), RECORD_AGAIN)
                    return
            self._compare_pictures(key, stored.get(key, {}), seen.result())

    def _compare_pictures(self, key: str, stored: statistics.FeatureStats, shown: statistics.FeatureStats) -> None:
        for name in ("mean", "std"):
            there, seen = stored.get(name, np.zeros(0)).ravel(), shown[name].ravel()
            if there.shape != seen.shape:
                continue  # Said elsewhere.
            channel = int(np.abs(there - seen).argmax())
            if abs(there[channel] - seen[channel]) > PICTURE_TOLERANCE:
                self._found.add(
                    STATS,
                    f"{name} of '{key}' is {there[channel]:.4g} in channel {channel}, and its pictures have "
                    f"{seen[channel]:.4g}; LeRobot before 0.6 computed deviations with an overflow",
                    WRITE_STATS,
                )

    def _check_stats(self) -> None:
        try:
            stored = statistics.from_plain(read_json(self._folder / STATS))
        except DatasetError as error:
            self._found.add(STATS, str(error), WRITE_STATS)
            return
        for key, feature in self._info.features.items():
            if feature.is_image:
                self._check_image_stats(key, stored.get(key))
        if not self._broken:  # Otherwise every number would differ, for reasons that were given.
            self._compare(STATS, stored, statistics.aggregate(self._parts), all_needed=True)

    def _check_image_stats(self, key: str, stats: statistics.FeatureStats | None) -> None:
        if stats is None:
            self._found.add(STATS, f"lacks '{key}'", WRITE_STATS)
            return
        for name in _EXACT:
            values = stats.get(name)
            if values is None or values.shape != (3, 1, 1) or not ((values >= 0) & (values <= 1)).all():
                self._found.add(STATS, f"{name} of '{key}' is not of shape (3, 1, 1) within 0 and 1", WRITE_STATS)

    def _compare(self, place: str, stored: statistics.Stats, computed: statistics.Stats, *, all_needed: bool) -> None:
        for key, expected in computed.items():
            there = stored.get(key)
            if there is None:
                if all_needed:
                    self._found.add(place, f"statistics of '{key}' are missing", WRITE_STATS)
                continue
            scale = float(max(np.abs(expected["min"].astype(float)).max(), np.abs(expected["max"].astype(float)).max()))
            for name in (*_EXACT, "count"):
                problem = _difference(name, there.get(name), expected[name], scale)
                if problem:
                    self._found.add(place, f"{name} of '{key}' {problem}", WRITE_STATS)
            problem = _disorder(there, scale)
            if problem:
                self._found.add(place, f"quantiles of '{key}' {problem}", WRITE_STATS)


def _difference(name: str, stored: NDArray[Any] | None, expected: NDArray[Any], scale: float) -> str:
    """Difference of a stored statistic from the data's, or nothing."""
    if stored is None:
        return "is missing"
    if stored.shape != expected.shape:
        return f"has shape {stored.shape}, expected {expected.shape}"
    tolerance = {"count": 0.0, "std": STD_TOLERANCE}.get(name, MEAN_TOLERANCE) * max(scale, 1e-9)
    gap = np.abs(stored.astype(np.float64) - expected.astype(np.float64))
    if np.isfinite(gap).all() and gap.max() <= tolerance + 1e-9:
        return ""
    worst = int(np.argmax(np.where(np.isfinite(gap), gap, np.inf)))
    return f"is {stored.ravel()[worst]} at {worst}, and the frames give {expected.ravel()[worst]}"


def _disorder(stats: statistics.FeatureStats, scale: float) -> str:
    """Whether quantiles cannot be such, whatever the data."""
    names = [name for name in statistics.QUANTILES if name in stats]
    if not names or "min" not in stats or "max" not in stats:
        return ""  # Datasets that were converted from older versions have none.
    chain = [stats["min"], *(stats[name] for name in names), stats["max"]]
    if any(values.shape != chain[0].shape for values in chain):
        return f"have shapes {[values.shape for values in chain[1:-1]]}, expected {chain[0].shape}"
    rising = all(
        (later.astype(float) >= earlier.astype(float) - 1e-3 * max(scale, 1e-6)).all()
        for earlier, later in pairwise(chain)
    )
    return "" if rising else f"do not rise from min over {', '.join(names)} to max"


def _some(frames: NDArray[np.int64]) -> str:
    shown = ", ".join(str(frame) for frame in frames[:5])
    return f"{shown} and {len(frames) - 5} more" if len(frames) > 5 else shown
