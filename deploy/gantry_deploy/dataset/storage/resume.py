"""Continuation of a dataset after its last whole episode, whatever happened to its writer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.dataset import stats as statistics
from gantry_deploy.dataset.features import DEFAULT_FEATURES
from gantry_deploy.dataset.storage.checksums import Checksums, require_checksums, write_checksums
from gantry_deploy.dataset.storage.files import remove_leftovers, replace_files
from gantry_deploy.dataset.storage.layout import (
    EPISODES,
    EPISODES_PATH,
    INFO,
    STATS,
    TASKS,
    EpisodeRow,
    FileIndex,
    Info,
    json_bytes,
    next_file,
    read_episode_tables,
    read_json,
    read_parquet,
    read_tasks,
    task_table,
)
from gantry_deploy.dataset.storage.tails import TableTail, VideoTail
from gantry_deploy.dataset.video import join_videos, video_facts
from gantry_deploy.errors import DatasetError

_LOG = logging.getLogger("gantry.dataset")


@dataclass
class Tails:
    """State of a dataset that a writer needs to append to it."""

    data: TableTail = field(default_factory=TableTail)
    """The newest data file."""
    meta: TableTail = field(default_factory=TableTail)
    """The newest file of ``meta/episodes``."""
    videos: dict[str, VideoTail] = field(default_factory=dict)
    """The newest video of each camera."""
    tasks: list[str] = field(default_factory=list)
    """Tasks in the order of their index."""
    stats: statistics.Stats = field(default_factory=dict)
    """Statistics of all episodes."""
    checksums: Checksums = field(default_factory=lambda: Checksums({}))
    """Of all files."""


@dataclass
class Repair:
    """Repairs that a dataset needs before it can be appended to; nothing of it is done before all of it is known."""

    files: dict[str, bytes] = field(default_factory=dict)
    """New contents, by path within the dataset."""
    removed: list[str] = field(default_factory=list)
    """Files that belong to no episode."""
    said: list[str] = field(default_factory=list)
    """The same in words."""

    def apply(self, folder: Path, written: Checksums | None) -> Checksums:
        """Do it, so that a writer that is killed meanwhile leaves what can be repaired again.

        Args:
            folder: Of the dataset.
            written: Checksums that the dataset has, already compared with its files; None if it has none.

        Returns:
            Checksums of all files.
        """
        there = Checksums.of(folder)
        if not self.files and not self.removed:
            if written is not None and dict(written.files) != dict(there.files):
                write_checksums(folder, there)
            return there
        after = there.changed(self.files, self.removed)
        if written is not None:
            write_checksums(folder, after)
        if self.files:
            replace_files(folder, self.files, last=next(reversed(self.files)))
        for name in self.removed:
            (folder / name).unlink(missing_ok=True)
        if written is not None:
            write_checksums(folder, after.settled())
        return after.settled()


def check_same(folder: Path, found: Info, asked: Info) -> None:
    """Refuse to append frames of another kind.

    Raises:
        DatasetError: With both sides of everything that differs.
    """
    if differences := info_differences(found, asked):
        raise DatasetError(f"'{folder}' cannot be continued with other frames: {'; '.join(differences)}.")


def info_differences(found: Info, asked: Info) -> list[str]:
    """Everything in which the frames of one dataset (there) differ from those of another (here), in words."""
    differences = []
    for name in ("fps", "robot_type"):
        if getattr(found, name) != getattr(asked, name):
            differences.append(f"{name} is {getattr(found, name)!r} there and {getattr(asked, name)!r} here")
    for name in dict.fromkeys([*found.features, *asked.features]):
        there, here = found.features.get(name), asked.features.get(name)
        if there is None or here is None:
            differences.append(f"'{name}' is {'missing there' if there is None else 'missing here'}")
        elif (
            name not in DEFAULT_FEATURES
            and there != here
            and not (there.is_image and (there.dtype, there.shape) == (here.dtype, here.shape))
        ):
            differences.append(f"'{name}' is {there} there and {here} here")
    return differences


def load_tails(folder: Path, info: Info) -> Tails:
    """Read what is needed to append, and remove what never became an episode.

    Raises:
        DatasetError: If files that count are missing or cannot be read.
    """
    written = require_checksums(folder)
    repair = Repair(said=remove_leftovers(folder))
    tables = read_episode_tables(folder)
    rows = [(EpisodeRow.from_columns(row, info.video_keys), row) for _, table in tables for row in table.to_pylist()]
    rows = [item for item in rows if item[0].index < info.total_episodes]
    if [row.index for row, _ in rows] != list(range(info.total_episodes)):
        raise DatasetError(
            f"'{folder}' cannot be continued: {INFO} counts {info.total_episodes} episodes, and {EPISODES} describes "
            f"{len(rows)} of them. 'gantry data check {folder}' says what is wrong."
        )
    if not rows:
        repair.removed += _later_files(folder, info, None, None)
        repair.removed += [name for name in (TASKS, STATS) if (folder / name).is_file()]
        checksums = repair.apply(folder, written)
        _report(folder, repair)
        return Tails(videos={key: VideoTail() for key in info.video_keys}, checksums=checksums)
    last, last_row = rows[-1]
    meta_file = (int(last_row["meta/episodes/chunk_index"]), int(last_row["meta/episodes/file_index"]))
    repair.removed += _later_files(folder, info, last, meta_file)
    inside = [row for row, _ in rows if row.data_file == last.data_file]
    data = _data_tail(folder, info, inside, repair)
    meta = _meta_tail(folder, info, meta_file, repair)
    videos = {key: _video_tail(folder, info, key, [row for row, _ in rows], repair) for key in info.video_keys}
    tasks = _tasks(folder, info, repair)
    stats = _stats(folder, info, [row for _, row in rows], repair)
    checksums = repair.apply(folder, written)
    _report(folder, repair)
    return Tails(data, meta, videos, tasks, stats, checksums)


def _data_tail(folder: Path, info: Info, inside: Sequence[EpisodeRow], repair: Repair) -> TableTail:
    """The newest data file, cut to the frames that count."""
    file = inside[-1].data_file
    path = info.data_file(file)
    table = read_parquet(folder / path)
    count = sum(row.length for row in inside)
    if table.num_rows < count:
        raise DatasetError(f"{folder / path} has {table.num_rows} rows, expected {count}; it cannot be appended to.")
    parts, start = [], 0
    for row in inside:
        parts.append(table.slice(start, row.length))
        start += row.length
    tail = TableTail(file, tuple(parts), sum(part.nbytes for part in parts))
    if table.num_rows > count:
        repair.files[path] = tail.content()
        repair.said.append(f"{table.num_rows - count} rows of {path}")
    return tail


def _meta_tail(folder: Path, info: Info, file: FileIndex, repair: Repair) -> TableTail:
    """The newest file of ``meta/episodes``, cut to the episodes that count."""
    path = EPISODES_PATH.format(chunk_index=file[0], file_index=file[1])
    table = read_parquet(folder / path)
    kept = sum(index < info.total_episodes for index in table["episode_index"].to_pylist())
    tail = TableTail(file, (table.slice(0, kept),), table.slice(0, kept).nbytes)
    if kept < table.num_rows:
        repair.files[path] = tail.content()
        repair.said.append(f"{table.num_rows - kept} rows of {path}")
    return tail


def _video_tail(folder: Path, info: Info, key: str, rows: Sequence[EpisodeRow], repair: Repair) -> VideoTail:
    """The newest video of a camera, cut to the pictures that count where that is possible."""
    file = rows[-1].videos[key].file
    frames = sum(row.length for row in rows if row.videos[key].file == file)
    path = info.video_file(key, file)
    there = len(video_facts(folder / path).frame_times_s)
    if there < frames:
        raise DatasetError(f"{folder / path} has {there} pictures, expected {frames}; it cannot be appended to.")
    if there > frames and (cut := join_videos(folder / path, frames, [], info.fps)) is not None:
        repair.files[path] = cut
        repair.said.append(f"{there - frames} pictures of {path}")
    return VideoTail(file, frames, (folder / path).stat().st_size)


def _tasks(folder: Path, info: Info, repair: Repair) -> list[str]:
    """Tasks that count."""
    tasks = read_tasks(folder / TASKS)
    kept = tasks[: info.total_tasks]
    if kept != tasks:
        repair.files[TASKS] = TableTail(parts=(task_table(kept),)).content()
        repair.said.append(f"{len(tasks) - len(kept)} rows of {TASKS}")
    return kept


def _stats(folder: Path, info: Info, rows: Sequence[Mapping[str, Any]], repair: Repair) -> statistics.Stats:
    """Statistics as stored, if they are of as many frames as count, else made of the episodes' own."""
    stored = statistics.from_plain(read_json(folder / STATS)) if (folder / STATS).is_file() else {}
    count = stored.get("index", {}).get("count")
    if count is not None and count.tolist() == [info.total_frames]:
        return stored
    stats = statistics.aggregate(statistics.from_columns(row) for row in rows)
    repair.files[STATS] = json_bytes(statistics.to_plain(stats))
    repair.said.append(f"what {STATS} said of other frames")
    return stats


def _later_files(folder: Path, info: Info, last: EpisodeRow | None, meta_file: FileIndex | None) -> list[str]:
    """Files after the newest that counts: a writer was killed while it put them into place.

    LeRobot reads every data file that it finds, so these would shift its frames.
    """
    ends: list[tuple[FileIndex | None, Callable[[FileIndex], str]]] = [
        (None if last is None else last.data_file, info.data_file),
        (meta_file, lambda file: EPISODES_PATH.format(chunk_index=file[0], file_index=file[1])),
    ]
    for key in info.video_keys:
        ends.append((None if last is None else last.videos[key].file, partial(info.video_file, key)))
    removed = []
    for newest, path_of in ends:
        file = (0, 0) if newest is None else next_file(newest, info.chunks_size)
        while (folder / path_of(file)).is_file():
            removed.append(path_of(file))
            file = next_file(file, info.chunks_size)
    return removed


def _report(folder: Path, repair: Repair) -> None:
    removed = [*repair.said, *repair.removed]
    if removed:
        _LOG.warning("'%s': removed what belongs to no whole episode: %s.", folder, ", ".join(removed))
