"""Writes a LeRobot v3 dataset episode by episode; what is on the disk is a whole dataset at any moment.

An episode is buffered. At its end everything that it changes is written beside the old files, then put into place, and
``meta/info.json``, which says how many episodes count, comes last. A full disk, Ctrl-C and a killed process therefore
cost at most the episode that was not finished. LeRobot itself keeps files open until ``finalize``, and loses them all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantry_deploy.dataset import stats as statistics
from gantry_deploy.dataset.features import DEFAULT_FEATURES, Feature, check_features
from gantry_deploy.dataset.notes import CARD, NOTES
from gantry_deploy.dataset.storage.checksums import CHECKSUMS, Checksums
from gantry_deploy.dataset.storage.columns import data_table
from gantry_deploy.dataset.storage.episode_buffer import EpisodeBuffer, FinishedEpisode
from gantry_deploy.dataset.storage.files import (
    TEMPORARY,
    FolderLock,
    interrupts_later,
    make_folder,
    remove_leftovers,
    replace_files,
)
from gantry_deploy.dataset.storage.layout import (
    EPISODES_PATH,
    INFO,
    STATS,
    TASKS,
    EpisodeRow,
    Info,
    json_bytes,
    task_table,
)
from gantry_deploy.dataset.storage.resume import Tails, check_same, load_tails
from gantry_deploy.dataset.storage.tails import TableTail, VideoPlan, VideoTail, plan_videos
from gantry_deploy.dataset.video import VideoCodec, VideoEncoder, video_facts
from gantry_deploy.errors import DatasetError
from gantry_hardware.files.text import plain_text

_LOG = logging.getLogger("gantry.dataset")


class DatasetWriter:
    """Writes or continues one dataset.

    Args:
        folder: Of the dataset; made if it does not exist, and otherwise empty or a dataset.
        fps: Frames per second, a whole number, as LeRobot has it.
        features: What every frame holds; the columns in :data:`~gantry_deploy.dataset.features.DEFAULT_FEATURES` are
            added.
        robot_type: Name of the robot, which replaying asks for.
        resume: Append to a dataset that exists. What a killed writer left unfinished in it is removed.
        codec: Encoding of cameras.
        beside: Files to write beside a new dataset, by name: notes and a card, see
            :mod:`gantry_deploy.dataset.notes`.

    Raises:
        DatasetError: If the folder holds something else, or a dataset and ``resume`` is false, or one of other
            features, rate or robot, or if another process writes into it.
        UnknownNameError: If a feature has a dtype that does not exist.
    """

    def __init__(
        self,
        folder: str | Path,
        fps: int,
        features: Mapping[str, Feature],
        robot_type: str | None = None,
        *,
        resume: bool = False,
        codec: VideoCodec | None = None,
        beside: Mapping[str, bytes] | None = None,
    ) -> None:
        if not isinstance(fps, int) or isinstance(fps, bool) or fps < 1:
            raise DatasetError(
                f"fps is {plain_text(fps)}, expected a whole number of frames per second, as LeRobot stores it."
            )
        check_features(features)
        self.folder = Path(folder)
        self.codec = codec or VideoCodec()
        for feature in features.values():
            if feature.dtype == "video":  # Better now than at the first frame.
                VideoEncoder(feature.shape, fps, self.codec)
        exists = (self.folder / INFO).is_file()
        if exists and not resume:
            raise DatasetError(f"'{self.folder}' holds a dataset already; resume=True appends to it.")
        if not exists and self.folder.exists() and not _is_unused(self.folder):
            raise DatasetError(f"'{self.folder}' is not empty and holds no dataset; expected a new folder.")
        try:
            make_folder(self.folder)
        except OSError as error:
            raise DatasetError(f"'{self.folder}' cannot be made: {error.strerror}.") from error
        self._lock: FolderLock | None = FolderLock(self.folder)
        try:
            asked = Info(fps=fps, features={**features, **DEFAULT_FEATURES}, robot_type=robot_type)
            if not asked.video_keys:
                asked.video_path = None
            self._info, self._tails = self._begin(asked, exists, beside or {})
        except BaseException:
            self._lock.release()
            raise
        self._own = {name: item for name, item in self._info.features.items() if name not in DEFAULT_FEATURES}
        self._open = self.new_episode()

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard_episode()
        self.finalize()

    @property
    def num_episodes(self) -> int:
        """Episodes that are stored."""
        return self._info.total_episodes

    @property
    def num_frames(self) -> int:
        """Frames in them."""
        return self._info.total_frames

    @property
    def features(self) -> dict[str, Feature]:
        """Features of a frame, without the columns that the dataset adds."""
        return dict(self._own)

    @property
    def fps(self) -> int:
        """Frames per second."""
        return self._info.fps

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add one frame to the open episode; its arrays are copied.

        Args:
            frame: One value per feature: arrays of its type and shape, or a plain number where the shape is (1,).

        Raises:
            UnknownNameError: If a key is no feature.
            DatasetError: If a value is missing, has another type or shape, or is not finite; the episode stays as it
                was.
        """
        self._require_open()
        self._open.add_frame(frame)

    def end_episode(self, task: str) -> int:
        """Store the open episode.

        Args:
            task: What was to be done, in words, as a policy that understands language would be told.

        Returns:
            Its number.

        Raises:
            DatasetError: If it has no frame or could not be written; then it is still open, and this may be tried
                again.
        """
        return self.save([(self._open, task)])[0]

    def discard_episode(self) -> int:
        """Forget the open episode; returns how many frames it had."""
        frames = len(self._open)
        if frames:
            _LOG.warning("An unfinished episode of %d frames was left out of '%s'.", frames, self.folder)
        self._open.clear()
        return frames

    def new_episode(self) -> EpisodeBuffer:
        """Another episode beside the open one, for several environments at once; :meth:`save` stores it."""
        return EpisodeBuffer(self._own, self.fps, self.codec)

    def save(
        self, episodes: Sequence[tuple[EpisodeBuffer, str]], beside: Mapping[str, bytes] | None = None
    ) -> list[int]:
        """Store episodes with their tasks, all of them or none, and clear their buffers.

        Args:
            episodes: Finished buffers with their tasks.
            beside: Further files of theirs, by path within the dataset, which belong to the same change.

        Returns:
            Their numbers.

        Raises:
            DatasetError: If one has no frame or no task, or if they could not be written; the buffers keep them then.
        """
        self._require_open()
        for _, task in episodes:
            if not isinstance(task, str) or not task.strip():
                raise DatasetError(f"The task is {plain_text(task)}, expected what was to be done, in words.")
        if not episodes:
            return []
        finished = [buffer.finish() for buffer, _ in episodes]
        first = self.num_episodes
        with interrupts_later():  # What the disk holds and what the writer believes change together.
            self._store(finished, [(task,) for _, task in episodes], beside or {})
            for buffer, _ in episodes:
                buffer.clear()
        return list(range(first, self.num_episodes))

    def save_copy(
        self, episode: FinishedEpisode, tasks: Sequence[str], beside: Mapping[str, bytes] | None = None
    ) -> int:
        """Store an episode that another dataset holds, with its videos as they are encoded there.

        Args:
            episode: Columns, videos and statistics of it, for this dataset's features.
            tasks: Its task, or one for each of its frames.
            beside: As for :meth:`save`.

        Returns:
            Its number.

        Raises:
            DatasetError: If it could not be written; then nothing has changed.
        """
        self._require_open()
        # Its videos may be encoded otherwise than those before, which nothing shows but an attempt to join them.
        unsure = {key: replace(tail, joins=False) for key, tail in self._tails.videos.items()}
        self._tails = replace(self._tails, videos=unsure)
        with interrupts_later():
            self._store([episode], [tuple(tasks)], beside or {})
        return self.num_episodes - 1

    def finalize(self) -> None:
        """End writing; may be called twice. Statistics and files are complete after every episode already.

        Raises:
            DatasetError: If an episode is still open.
        """
        if self._lock is None:
            return
        if len(self._open):
            raise DatasetError(
                f"An episode of {len(self._open)} frames is open; end_episode(task) stores it, "
                "discard_episode() does not."
            )
        self._lock.release()
        self._lock = None

    def _begin(self, asked: Info, exists: bool, beside: Mapping[str, bytes]) -> tuple[Info, Tails]:
        if exists:
            info = Info.read(self.folder)
            check_same(self.folder, info, asked)
            return info, load_tails(self.folder, info)
        remove_leftovers(self.folder)
        checksums = self._replace({**beside, INFO: asked.to_json()}, Checksums({}))
        return asked, Tails(videos={key: VideoTail() for key in asked.video_keys}, checksums=checksums)

    def _replace(self, files: Mapping[str, bytes], checksums: Checksums) -> Checksums:
        """Change files together, with their checksums; returns those."""
        changed = checksums.changed({name: content for name, content in files.items() if name != CARD})
        everything = {CHECKSUMS: changed.content(), **files}
        replace_files(self.folder, everything, last=INFO, first=CHECKSUMS)
        return changed.settled()

    def _require_open(self) -> None:
        if self._lock is None:
            raise DatasetError(f"The dataset '{self.folder}' was finalized; open it again with resume=True.")

    def _store(
        self, episodes: Sequence[FinishedEpisode], tasks: Sequence[tuple[str, ...]], beside: Mapping[str, bytes]
    ) -> None:
        """Work out every file that changes, change them together, and only then believe it."""
        info, tails = self._info, self._tails
        known = list(dict.fromkeys([*tails.tasks, *(task for each in tasks for task in each)]))
        plans = {
            key: plan_videos(self.folder, info, key, tail, [(item.length, item.videos) for item in episodes])
            for key, tail in tails.videos.items()
        }
        files = dict(beside) | {path: content for plan in plans.values() for path, content in plan.files.items()}
        if known != tails.tasks:
            files[TASKS] = _bytes(task_table(known))
        data, meta, parts = self._place(episodes, tasks, known, plans, files)
        total = statistics.aggregate([*([tails.stats] if tails.stats else []), *parts])
        files[STATS] = json_bytes(statistics.to_plain(total))
        grown = replace(
            info,
            features=_with_video_info(info, plans),
            total_episodes=info.total_episodes + len(episodes),
            total_frames=info.total_frames + sum(item.length for item in episodes),
            total_tasks=len(known),
        )
        files[INFO] = grown.to_json()
        checksums = self._replace(files, tails.checksums)
        self._info = grown
        self._tails = Tails(data, meta, {key: plan.tail for key, plan in plans.items()}, known, total, checksums)

    def _place(
        self,
        episodes: Sequence[FinishedEpisode],
        tasks: Sequence[tuple[str, ...]],
        known: list[str],
        plans: Mapping[str, VideoPlan],
        files: dict[str, bytes],
    ) -> tuple[TableTail, TableTail, list[statistics.Stats]]:
        """Append the rows of episodes to the newest tables and put the files that change into ``files``."""
        info, data, meta = self._info, self._tails.data, self._tails.meta
        start, parts = info.total_frames, []
        changed_data, changed_meta = {}, {}
        for number, (episode, own) in enumerate(zip(episodes, tasks, strict=True)):
            index = info.total_episodes + number
            numbers = np.array([known.index(task) for task in own], dtype=np.int64)  # One, or one for each frame.
            added = _added_columns(episode.length, info.fps, index, start, numbers)
            table = data_table(info.features, {**episode.columns, **added})
            data = data.room_for(table.schema, info.chunks_size).appended(table)
            changed_data[data.file] = data
            part = episode.stats | {name: statistics.array_stats(values) for name, values in added.items()}
            parts.append(part)
            spans = {key: plan.spans[number] for key, plan in plans.items()}
            different = tuple(dict.fromkeys(own))
            row = EpisodeRow(index, episode.length, different, start, start + episode.length, data.file, spans)
            described = _row_table(row, part, meta.file)
            roomy = meta.room_for(described.schema, info.chunks_size)
            if roomy is not meta:
                meta, described = roomy, _row_table(row, part, roomy.file)
            meta = meta.merged(described)
            changed_meta[meta.file] = meta
            start += episode.length
        files |= {info.data_file(file): tail.content() for file, tail in changed_data.items()}
        for (chunk, file), tail in changed_meta.items():
            files[EPISODES_PATH.format(chunk_index=chunk, file_index=file)] = tail.content()
        return data, meta, parts


def _is_unused(folder: Path) -> bool:
    """Whether a folder holds nothing but what a writer left that was killed before its dataset began."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    done = {name for name in names if not name.endswith(TEMPORARY)}
    return not done or (CHECKSUMS in done and done <= {NOTES, CARD, CHECKSUMS})  # Checksums come first.


def _added_columns(length: int, fps: int, episode: int, start: int, task: NDArray[np.int64]) -> dict[str, Any]:
    """The columns that a dataset adds, of shape (frames, 1); ``task`` has shape (1,) or (frames,)."""
    frames = np.arange(length, dtype=np.int64)
    columns = {
        "timestamp": (frames / fps).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.full(length, episode, dtype=np.int64),
        "index": start + frames,
        "task_index": np.full(length, task, dtype=np.int64),
    }
    return {name: values.reshape(length, 1) for name, values in columns.items()}


def _row_table(row: EpisodeRow, stats: statistics.Stats, file: tuple[int, int]) -> pa.Table:
    """A row of ``meta/episodes``: the statistics stand before the two columns that say where the row itself is."""
    columns = row.columns(file)
    place = {name: columns.pop(name) for name in list(columns) if name.startswith("meta/")}
    return pa.Table.from_pylist([columns | statistics.to_columns(stats) | place])


def _with_video_info(info: Info, plans: Mapping[str, VideoPlan]) -> dict[str, Feature]:
    """Features with what LeRobot notes about a camera's videos, once there is one."""
    features = dict(info.features)
    for key, plan in plans.items():
        if not features[key].raw.get("info") and plan.files:
            facts = video_facts(next(iter(plan.files.values())))
            features[key] = replace(features[key], raw={**features[key].to_json(), "info": facts.to_json()})
    return features


def _bytes(table: pa.Table) -> bytes:
    return TableTail(parts=(table,)).content()
