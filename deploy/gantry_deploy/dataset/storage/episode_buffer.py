"""One episode while it is being recorded: numbers in memory, pictures encoded as they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gantry_deploy.dataset.features import Feature, checked_frame
from gantry_deploy.dataset.stats import ImageStats, Stats, array_stats
from gantry_deploy.dataset.video import VideoCodec, VideoEncoder, encode_png
from gantry_deploy.errors import DatasetError


@dataclass(frozen=True)
class FinishedEpisode:
    """An episode that is ready to be stored."""

    length: int
    """Frames."""
    columns: Mapping[str, Any]
    """By feature that is not stored as video: numbers (frames, \\*shape), texts, or PNG files as bytes."""
    videos: Mapping[str, bytes]
    """By feature that is: an MP4."""
    stats: Stats
    """Of every feature but texts."""


class EpisodeBuffer:
    """Collects the frames of one episode. Nothing of it is on the disk before the writer takes it.

    Args:
        features: What a frame holds, without the columns that a dataset adds.
        fps: Frames per second.
        codec: How cameras are encoded.
    """

    def __init__(self, features: Mapping[str, Feature], fps: int, codec: VideoCodec) -> None:
        self._features = dict(features)
        self._fps = fps
        self._codec = codec
        self.clear()

    def __len__(self) -> int:
        return self._length

    def clear(self) -> None:
        """Forget every frame."""
        self._length = 0
        self._torn = False
        self._finished: FinishedEpisode | None = None
        self._rows: dict[str, list[Any]] = {
            name: [] for name, feature in self._features.items() if feature.dtype != "video"
        }
        self._encoders: dict[str, VideoEncoder] = {}
        self._image_stats = {name: ImageStats() for name, feature in self._features.items() if feature.is_image}

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Take one frame, whole or not at all; its arrays are copied.

        Raises:
            UnknownNameError: If a key is no feature.
            DatasetError: If a value is missing, has another type or shape, or is not finite.
        """
        if self._finished is not None:
            raise DatasetError("The episode is finished and waits to be stored; clear() begins a new one.")
        values = checked_frame(self._features, frame, self._length)
        self._torn = True  # Until every camera has its picture: Ctrl-C may come between two of them.
        for name, value in values.items():
            feature = self._features[name]
            if feature.is_image:
                self._image_stats[name].add(value)
            if feature.dtype == "video":
                if name not in self._encoders:
                    self._encoders[name] = VideoEncoder(feature.shape, self._fps, self._codec)
                self._encoders[name].add(value)
            else:
                self._rows[name].append(encode_png(value) if feature.dtype == "image" else value)
        self._length += 1
        self._torn = False

    def finish(self) -> FinishedEpisode:
        """Everything that is to be stored; the same again if storing it failed.

        Raises:
            DatasetError: If there is no frame, or adding the last one was interrupted.
        """
        if self._finished is not None:
            return self._finished
        if self._torn:
            raise DatasetError("Adding the last frame was interrupted; the episode cannot be stored.")
        if not self._length:
            raise DatasetError("The episode has no frame; add_frame comes before its end.")
        columns: dict[str, Any] = {}
        stats: Stats = {}
        for name, feature in self._features.items():
            if feature.is_image:
                stats[name] = self._image_stats[name].result()
            if feature.dtype != "video":
                columns[name] = np.stack(self._rows[name]) if feature.is_number else self._rows[name]
            if feature.is_number:
                stats[name] = array_stats(columns[name])
        videos = {name: encoder.finish() for name, encoder in self._encoders.items()}
        self._finished = FinishedEpisode(self._length, columns, videos, stats)
        return self._finished
