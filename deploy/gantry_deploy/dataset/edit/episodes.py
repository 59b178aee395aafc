"""One episode of a dataset, written into another one: whole or in part, with other numbers where they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.edit.videos import cut_video, encoded_again
from gantry_deploy.dataset.features import DONE, SUCCESS, TRUNCATED, Feature, camera
from gantry_deploy.dataset.notes import CARD, NOTES
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.stats import FeatureStats, ImageStats, array_stats
from gantry_deploy.dataset.storage.checksums import require_checksums
from gantry_deploy.dataset.storage.episode_buffer import FinishedEpisode
from gantry_deploy.dataset.storage.last_observations import last_observation_path
from gantry_deploy.dataset.video import VideoCodec
from gantry_deploy.dataset.writer import DatasetWriter
from gantry_deploy.errors import DatasetError

_MOST_NOTES = 64 * 2**20


@dataclass(frozen=True)
class EpisodeEdit:
    """Changes to an episode on its way."""

    start: int = 0
    """First frame that is kept."""
    stop: int | None = None
    """Frame after the last one that is kept; None for the end."""
    task: str | None = None
    """Its task, in words; None leaves it."""
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Other numbers by feature, (kept frames, \\*shape) in the feature's type and unit."""


def open_source(folder: Path) -> Dataset:
    """A dataset whose files are as they were written.

    Raises:
        DatasetError: If it is none, or a file differs from its checksum.
    """
    dataset = Dataset(folder)
    require_checksums(dataset.folder)
    return dataset


def output_features(dataset: Dataset) -> dict[str, Feature]:
    """Features for a dataset that takes episodes of another one; facts about its videos are found out anew."""
    features: dict[str, Feature] = {}
    for name, feature in dataset.features.items():
        if feature.is_image:
            height, width = feature.image_size
            own = camera(height, width, video=feature.dtype == "video")
            features[name] = replace(own, kind=feature.kind, unit=feature.unit)
        else:
            features[name] = feature
    return features


def notes_of(datasets: Sequence[Dataset]) -> dict[str, bytes]:
    """Gantry's notes and card beside the datasets, if all of them have the same notes."""
    found: list[bytes] = []
    for dataset in datasets:
        path = dataset.folder / NOTES
        if not path.is_file() or path.stat().st_size > _MOST_NOTES:
            return {}
        found.append(path.read_bytes())
    if any(item != found[0] for item in found):
        return {}
    card = datasets[0].folder / CARD
    has_card = card.is_file() and card.stat().st_size <= _MOST_NOTES
    return {NOTES: found[0]} | ({CARD: card.read_bytes()} if has_card else {})


class EpisodeCopier:
    """Writes episodes of other datasets.

    Args:
        writer: Of the new dataset.
        codec: Encoding of pictures that have to be encoded again.
    """

    def __init__(self, writer: DatasetWriter, codec: VideoCodec | None = None) -> None:
        self._writer = writer
        self._codec = codec or VideoCodec()
        self.encoded = 0
        """Videos that had to be encoded again."""

    def copy(self, dataset: Dataset, episode: int, edit: EpisodeEdit | None = None) -> int:
        """Write an episode; returns its number in the new dataset.

        Features that the new dataset does not have are left out.

        Raises:
            DatasetError: If frames that are kept do not exist, a feature has no values, or the disk is full.
        """
        edit = edit or EpisodeEdit()
        length = dataset.episodes[episode].length
        start, stop = edit.start, length if edit.stop is None else edit.stop
        if not 0 <= start < stop <= length:
            raise DatasetError(
                f"Frames {start} to {stop} of episode {episode} of '{dataset.folder}': expected some of 0 to {length}."
            )
        stored = dataset.stored_columns(episode)
        columns: dict[str, Any] = {}
        videos: dict[str, bytes] = {}
        stats: dict[str, FeatureStats] = {}
        for name, feature in self._writer.features.items():
            if name in edit.columns:
                columns[name] = _checked(name, feature, edit.columns[name], stop - start)
            elif name not in dataset.features:
                raise DatasetError(f"'{dataset.folder}' has no '{name}', and nothing says what it should be.")
            elif feature.dtype == "video":
                videos[name] = self._video(dataset, episode, name, start, stop)
            else:
                columns[name] = stored[name][start:stop]
            if feature.is_number:
                stats[name] = array_stats(np.asarray(columns[name]))
            elif feature.is_image:
                stats[name] = _picture_stats(dataset, episode, name, start, stop)
        if edit.task is not None:
            tasks: tuple[str, ...] = (edit.task,)
        else:
            tasks = tuple(dataset.tasks[int(index)] for index in stored["task_index"][start:stop])
        finished = FinishedEpisode(stop - start, columns, videos, stats)
        beside = self._last_observation(dataset, episode, stop == length)
        return self._writer.save_copy(finished, tasks, beside)

    def _video(self, dataset: Dataset, episode: int, name: str, start: int, stop: int) -> bytes:
        span, fps = dataset.episodes[episode].videos[name], dataset.fps
        path = dataset.folder / dataset.info.video_file(name, span.file)
        from_s = span.from_s + start / fps
        cut = cut_video(path, from_s, stop - start, fps)
        if cut is not None:
            return cut
        self.encoded += 1
        return encoded_again(path, from_s, stop - start, fps, dataset.features[name].image_size, self._codec)

    def _last_observation(self, dataset: Dataset, episode: int, whole: bool) -> dict[str, bytes]:
        """The file of the observation after the last step, which is that of no shorter episode."""
        path = dataset.folder / last_observation_path(episode)
        if not whole or not path.is_file() or path.stat().st_size > _MOST_NOTES:
            return {}
        return {last_observation_path(self._writer.num_episodes): path.read_bytes()}


def ends_of(length: int, success: bool | None) -> dict[str, NDArray[np.bool_]]:
    """``next.done`` and ``next.truncated`` of an episode whose end is its last frame, (frames, 1) each, and
    ``next.success`` where it is known: a success ends by itself, everything else was cut off."""
    last = (np.arange(length) == length - 1).reshape(length, 1)
    ends = {DONE: last, TRUNCATED: last & (not success)}
    return ends if success is None else {**ends, SUCCESS: last & success}


def with_features(features: Mapping[str, Feature], added: Mapping[str, Feature]) -> dict[str, Feature]:
    """Features with others added that are missing.

    Raises:
        DatasetError: If one of them is there as something else.
    """
    for name, feature in added.items():
        there = features.get(name)
        if there is not None and not (there.is_number and there.shape == feature.shape):
            raise DatasetError(f"'{name}' is {there.dtype} of shape {there.shape}, expected {feature.shape} numbers.")
    return {**added, **features}


def _checked(name: str, feature: Feature, values: NDArray[Any], length: int) -> NDArray[Any]:
    array = np.asarray(values).astype(feature.dtype)
    if array.size != length * int(np.prod(feature.shape)):
        raise DatasetError(f"'{name}' has {array.shape} new numbers, expected {length} of shape {feature.shape}.")
    array = array.reshape(length, *feature.shape)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DatasetError(f"'{name}' would hold numbers that are not finite.")
    return array


def _picture_stats(dataset: Dataset, episode: int, name: str, start: int, stop: int) -> FeatureStats:
    """Statistics of a camera's pictures: those that are stored where the whole episode is kept, otherwise new ones."""
    known = dataset.episode_stats(episode).get(name, {})
    if stop - start == dataset.episodes[episode].length and all(
        item in known for item in ("min", "max", "mean", "std")
    ):
        return known
    seen = ImageStats()
    for picture in dataset.iter_images(episode, name, start, stop):
        seen.add(picture)
    return seen.result()
