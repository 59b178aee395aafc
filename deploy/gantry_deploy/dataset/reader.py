"""Reader of LeRobot v3 datasets from any writer, as numpy arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantry_deploy.dataset import stats as statistics
from gantry_deploy.dataset.features import DEFAULT_FEATURES, DONE, SUCCESS, TRUNCATED, Feature
from gantry_deploy.dataset.storage.columns import column_values
from gantry_deploy.dataset.storage.layout import (
    EPISODES,
    INFO,
    STATS,
    TASKS,
    EpisodeRow,
    Info,
    read_episode_tables,
    read_json,
    read_parquet,
    read_tasks,
)
from gantry_deploy.dataset.video import Image, decode_image, decode_video
from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import UnknownNameError

_TABLES_KEPT = 2
"""Data files that stay in memory; episodes are usually read in order."""


class Dataset:
    """One dataset, opened for reading. Frames are read when they are asked for.

    Args:
        folder: Of the dataset.

    Raises:
        DatasetError: If it is no dataset of version v3.0, or its description contradicts itself.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.info = Info.read(self.folder)
        self._tables: OrderedDict[tuple[str, tuple[str, ...]], pa.Table] = OrderedDict()
        self._episode_stats: list[statistics.Stats] = []
        self.episodes: list[EpisodeRow] = self._read_episodes()
        """One row per episode that is complete; what a killed writer left behind them is not shown."""
        self._first_of_file: dict[tuple[int, int], int] = {}
        for row in self.episodes:
            known = self._first_of_file.setdefault(row.data_file, row.start)
            self._first_of_file[row.data_file] = min(known, row.start)

    @property
    def fps(self) -> int:
        """Frames per second."""
        return self.info.fps

    @property
    def robot_type(self) -> str | None:
        """Name of the robot, or None if the dataset does not name it."""
        return self.info.robot_type

    @property
    def features(self) -> dict[str, Feature]:
        """Features of a frame, without the columns that a dataset adds."""
        return {name: item for name, item in self.info.features.items() if name not in DEFAULT_FEATURES}

    @property
    def camera_keys(self) -> list[str]:
        """Features that are pictures."""
        return [name for name, feature in self.info.features.items() if feature.is_image]

    @property
    def num_episodes(self) -> int:
        """Episodes."""
        return len(self.episodes)

    @property
    def num_frames(self) -> int:
        """Frames in all episodes."""
        return sum(row.length for row in self.episodes)

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks in words, by the number in ``task_index``.

        Raises:
            DatasetError: If the file is missing or malformed.
        """
        return read_tasks(self.folder / TASKS) if (self.folder / TASKS).is_file() or self.episodes else []

    @cached_property
    def stats(self) -> statistics.Stats:
        """Statistics of all frames, as stored; see :mod:`gantry_deploy.dataset.stats`.

        Raises:
            DatasetError: If the file is missing or malformed.
        """
        return statistics.from_plain(read_json(self.folder / STATS))

    def episode_stats(self, episode: int) -> statistics.Stats:
        """Statistics of one episode, as stored; empty where the dataset has none."""
        return self._episode_stats[self._checked(episode)]

    def frames(self, episode: int, keys: Iterable[str] | None = None, *, images: bool = True) -> dict[str, Any]:
        """The frames of an episode.

        Args:
            episode: Its number.
            keys: Features to read; every one if not given.
            images: Whether cameras are among "every one". They cost by far the most.

        Returns:
            By feature: numbers of shape (frames, \\*shape) in the feature's type, pictures (frames, height, width, 3)
            uint8, texts as a list. The columns that a dataset adds have shape (frames,).

        Raises:
            UnknownNameError: If there is no such episode or feature.
            DatasetError: If the files do not hold what they should.
        """
        row = self.episodes[self._checked(episode)]
        names = self._names(keys, images)
        table = self._rows(row, [name for name in names if self.info.features[name].dtype != "video"])
        result: dict[str, Any] = {}
        for name in names:
            feature = self.info.features[name]
            if feature.dtype == "video":
                result[name] = self.images(episode, name)
                continue
            values = column_values(name, feature, table[name])
            result[name] = _decoded(values, feature) if feature.dtype == "image" else values
        return result

    def stored_columns(self, episode: int) -> dict[str, Any]:
        """The columns of an episode as they are stored: numbers (frames, \\*shape), texts, and pictures as the bytes of
        their files; cameras that are stored as video have none.

        Raises:
            UnknownNameError: If there is no such episode.
            DatasetError: If the files do not hold what they should.
        """
        row = self.episodes[self._checked(episode)]
        names = [name for name, feature in self.info.features.items() if feature.dtype != "video"]
        table = self._rows(row, names)
        return {name: column_values(name, self.info.features[name], table[name]) for name in names}

    def iter_frames(self, episode: int, keys: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """The frames of an episode one after the other, each as it was given to the writer."""
        names = [name for name in self._names(keys, True) if name not in DEFAULT_FEATURES]
        arrays = self.frames(episode, names)
        for index in range(self.episodes[episode].length):
            yield {name: arrays[name][index] for name in names}

    def columns(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Some features of all frames of all episodes, each of shape (frames, \\*shape); for learning.

        ``episode_index``, ``frame_index`` and the like, of shape (frames,), say which frame is which.

        Raises:
            UnknownNameError: If there is no such feature.
            DatasetError: If the files do not hold what they should.
        """
        parts = [self.frames(row.index, keys) for row in self.episodes]
        if not parts:
            raise DatasetError(f"'{self.folder}' has no episode.")
        return {key: np.concatenate([part[key] for part in parts]) for key in keys}

    def images(self, episode: int, key: str, start: int = 0, stop: int | None = None) -> Image:
        """Pictures of a camera, (frames, height, width, 3) uint8 RGB, from frame ``start`` to before ``stop``.

        Raises:
            UnknownNameError: If there is no such episode or camera.
            DatasetError: If pictures are missing or of another size.
        """
        row, stop = self._stretch(episode, key, start, stop)
        feature = self.info.features[key]
        if feature.dtype == "image":
            table = self._rows(row, [key])
            return _decoded(column_values(key, feature, table[key])[start:stop], feature)
        pictures = np.empty((stop - start, *feature.image_size, 3), dtype=np.uint8)
        for index, picture in enumerate(self._decode(row, key, start, stop)):
            pictures[index] = picture
        return pictures

    def iter_images(self, episode: int, key: str, start: int = 0, stop: int | None = None) -> Iterator[Image]:
        """The same one after the other, (height, width, 3) uint8 RGB each, so that long episodes take little memory."""
        row, stop = self._stretch(episode, key, start, stop)
        feature = self.info.features[key]
        if feature.dtype == "image":
            table = self._rows(row, [key])
            for data in column_values(key, feature, table[key])[start:stop]:
                yield decode_image(data or b"", feature.image_size)
        else:
            yield from self._decode(row, key, start, stop)

    def _stretch(self, episode: int, key: str, start: int, stop: int | None) -> tuple[EpisodeRow, int]:
        row = self.episodes[self._checked(episode)]
        if key not in self.camera_keys:
            raise UnknownNameError("camera", key, self.camera_keys)
        stop = row.length if stop is None else stop
        if not 0 <= start < stop <= row.length:
            raise DatasetError(f"Frames {start} to {stop} of episode {episode}: expected some of 0 to {row.length}.")
        return row, stop

    def _decode(self, row: EpisodeRow, key: str, start: int, stop: int) -> Iterator[Image]:
        span, size = row.videos[key], self.info.features[key].image_size
        path = self.folder / self.info.video_file(key, span.file)
        return decode_video(path, span.from_s + start / self.fps, stop - start, self.fps, size)

    def successes(self) -> NDArray[np.bool_] | None:
        """Whether each episode succeeded at any time, (episodes,) bool; None if the dataset does not say."""
        if SUCCESS not in self.info.features:
            return None
        return np.array([self.frames(row.index, [SUCCESS])[SUCCESS].any() for row in self.episodes], dtype=bool)

    def terminations(self, episode: int) -> NDArray[np.bool_]:
        """Mask of the frames at which the task itself ended the episode, (frames,): ``next.done`` without
        ``next.truncated``.

        Raises:
            UnknownNameError: If the dataset does not say; or there is no such episode.
        """
        if DONE not in self.info.features:
            raise UnknownNameError("feature", DONE, self.info.features)
        keys = [key for key in (DONE, TRUNCATED) if key in self.info.features]
        values = self.frames(episode, keys)
        done = values[DONE].reshape(-1).astype(bool)
        return done & ~values[TRUNCATED].reshape(-1).astype(bool) if TRUNCATED in values else done

    def _read_episodes(self) -> list[EpisodeRow]:
        rows = []
        for _, table in read_episode_tables(self.folder):
            for row in table.to_pylist():
                episode = EpisodeRow.from_columns(row, self.info.video_keys)
                if episode.index < self.info.total_episodes:
                    rows.append(episode)
                    self._episode_stats.append(statistics.from_columns(row))
        if [row.index for row in rows] != list(range(self.info.total_episodes)):
            raise DatasetError(
                f"'{self.folder}': {INFO} counts {self.info.total_episodes} episodes, and {EPISODES} describes "
                f"{[row.index for row in rows[:10]]}{' ...' if len(rows) > 10 else ''}; expected 0, 1, 2, ... in order."
            )
        start = 0
        for row in rows:
            if row.start != start or row.stop != start + row.length or row.length < 1:
                raise DatasetError(
                    f"'{self.folder}': episode {row.index} has frames {row.start} to {row.stop} and length "
                    f"{row.length}, expected to begin at {start}. 'gantry data check {self.folder}' says more."
                )
            start = row.stop
        return rows

    def _checked(self, episode: int) -> int:
        if not 0 <= episode < self.num_episodes:
            raise DatasetError(f"There is no episode {episode}; '{self.folder}' has {self.num_episodes}, from 0 on.")
        return episode

    def _names(self, keys: Iterable[str] | None, images: bool) -> list[str]:
        if keys is None:
            return [name for name, feature in self.info.features.items() if images or not feature.is_image]
        names = list(keys)
        for name in names:
            if name not in self.info.features:
                raise UnknownNameError("feature", name, self.info.features)
        return names

    def _rows(self, row: EpisodeRow, names: Sequence[str]) -> pa.Table:
        """The rows of an episode from its data file."""
        path = self.info.data_file(row.data_file)
        # Pictures would fill the memory; the other columns of a file are read once for all its episodes.
        pictures = any(self.info.features[name].is_image for name in names)
        wanted = [name for name, item in self.info.features.items() if item.dtype != "video" and not item.is_image]
        columns = [*dict.fromkeys([*names, "episode_index"])] if pictures else wanted
        key = (path, tuple(columns))
        if key not in self._tables:
            self._tables[key] = read_parquet(self.folder / path, columns)
            while len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        offset = row.start - self._first_of_file[row.data_file]
        table = self._tables[key].slice(offset, row.length)
        owners = table["episode_index"].to_numpy()
        if len(owners) != row.length or not (owners == row.index).all():
            raise DatasetError(
                f"{self.folder / path} holds no {row.length} rows of episode {row.index} at row {offset}. "
                f"'gantry data check {self.folder}' says what is wrong."
            )
        return table


def _decoded(encoded: Sequence[bytes | None], feature: Feature) -> Image:
    return np.stack([decode_image(data or b"", feature.image_size) for data in encoded])
