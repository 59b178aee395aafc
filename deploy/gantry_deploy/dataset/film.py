"""An episode to look at: curves made of text, and a film of its cameras beside its actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.features import ACTION
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.video import Image, VideoCodec, VideoEncoder
from gantry_deploy.errors import DatasetError

BLOCKS = "▁▂▃▄▅▆▇█"
"""From low to high."""
LEAST_HEIGHT_PX, CURVES_WIDTH_PX = 240, 480
MOST_CURVES = 8

_FILM = VideoCodec(options=(("crf", "23"), ("preset", "veryfast"), ("threads", "1"), ("movflags", "+faststart")))


def text_curve(values: NDArray[np.float64], width: int = 60) -> str:
    """A curve as one line of blocks, lowest value to highest; a column shows the mean of its stretch."""
    columns = min(width, len(values))
    edges = np.linspace(0, len(values), columns + 1).round().astype(int)
    means = np.array([values[start:stop].mean() for start, stop in pairwise(edges)])
    low, high = means.min(), means.max()
    if not high > low:
        return BLOCKS[0] * columns
    levels = np.round((means - low) / (high - low) * (len(BLOCKS) - 1)).astype(int)
    return "".join(BLOCKS[level] for level in levels)


def curve_names(dataset: Dataset, key: str) -> list[str]:
    """A name for every number of a feature."""
    feature = dataset.info.features[key]
    size = int(np.prod(feature.shape))
    if feature.names is not None and len(feature.names) == size:
        return list(feature.names)
    return [key] if size == 1 else [f"{key}[{index}]" for index in range(size)]


def film(dataset: Dataset, episode: int, key: str = ACTION) -> bytes:
    """An MP4 of an episode at its own rate: all cameras side by side, the curves of a feature with a moving line.

    Raises:
        UnknownNameError: If there is no such episode or feature.
        DatasetError: If the feature is no array of numbers.
    """
    frames = film_frames(dataset, episode, key)
    first = next(frames)
    encoder = VideoEncoder(first.shape, dataset.fps, _FILM)
    encoder.add(first)
    for frame in frames:
        encoder.add(frame)
    return encoder.finish()


def film_frames(dataset: Dataset, episode: int, key: str = ACTION) -> Iterator[Image]:
    """The pictures of :func:`film`, (height, width, 3) with even height and width."""
    values = dataset.frames(episode, [key])[key]
    if not dataset.info.features[key].is_number:
        raise DatasetError(f"'{key}' is {dataset.info.features[key].dtype}, expected numbers to draw.")
    cameras = dataset.camera_keys
    heights = [LEAST_HEIGHT_PX, *(dataset.images(episode, camera, 0, 1).shape[1] for camera in cameras)]
    height = max(heights) + max(heights) % 2
    panel, left, right = _curves(
        values.reshape(len(values), -1).astype(float), curve_names(dataset, key), dataset.fps, height
    )
    pictures = {camera: dataset.images(episode, camera) for camera in cameras}
    for index in range(len(values)):
        curves = panel.copy()
        column = round(left + (right - left) * index / max(1, len(values) - 1))
        curves[:, max(0, column - 1) : column + 1] = (40, 40, 40)
        row = np.concatenate([*(_enlarged(pictures[camera][index], height) for camera in cameras), curves], axis=1)
        yield row[:, : row.shape[1] // 2 * 2]


def _enlarged(picture: Image, height: int) -> Image:
    """A picture as many whole times as large as fits, on black."""
    times = max(1, height // picture.shape[0])
    large = picture.repeat(times, axis=0).repeat(times, axis=1)
    page = np.zeros((height, large.shape[1], 3), dtype=np.uint8)
    top = (height - large.shape[0]) // 2
    page[top : top + large.shape[0]] = large
    return page


def _curves(values: NDArray[np.float64], names: Sequence[str], fps: int, height: int) -> tuple[Image, float, float]:
    """The curves (frames, n) as a picture, and the columns at which time begins and ends in it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # An extra of training.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(CURVES_WIDTH_PX / 100, height / 100), dpi=100)
    canvas = FigureCanvasAgg(figure)
    shown = min(MOST_CURVES, values.shape[1])
    axes = figure.subplots(shown, 1, sharex=True, squeeze=False)[:, 0]
    times_s = np.arange(len(values)) / fps
    for index, axis in enumerate(axes):
        axis.plot(times_s, values[:, index], linewidth=1.0)
        axis.set_ylabel(names[index], rotation=0, ha="right", va="center", fontsize=7)
        axis.tick_params(labelsize=6)
        axis.margins(x=0.0)
    more = f"; {values.shape[1] - shown} more are not shown" if values.shape[1] > shown else ""
    axes[-1].set_xlabel(f"s{more}", fontsize=7)
    figure.subplots_adjust(left=0.3, right=0.97, top=0.97, bottom=max(0.08, 38 / height), hspace=0.25)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    box = axes[0].get_position()
    return picture, box.x0 * picture.shape[1], box.x1 * picture.shape[1]
