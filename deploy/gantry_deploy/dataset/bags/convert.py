"""Bags into a LeRobot v3 dataset: sampled at its rate, cut into episodes, pictures decoded one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.bags.bag import Bag
from gantry_deploy.dataset.bags.config import BagCfg
from gantry_deploy.dataset.bags.gantry import gantry_cfg
from gantry_deploy.dataset.bags.messages import BagError
from gantry_deploy.dataset.bags.pictures import picture_of
from gantry_deploy.dataset.bags.reading import TASK, TRUTH, BagContents, MappedTopics, read_bag, require_values
from gantry_deploy.dataset.bags.spans import (
    Span,
    frame_times,
    spans_of_events,
    spans_of_gaps,
    spans_of_truth,
)
from gantry_deploy.dataset.bags.timeline import Series, Times, said
from gantry_deploy.dataset.edit.episodes import ends_of
from gantry_deploy.dataset.edit.outputs import require_new, whole_output
from gantry_deploy.dataset.features import DONE, EXTRA, IS_INTERVENTION, SUCCESS, TRUNCATED, Feature, camera, vector
from gantry_deploy.dataset.video import LOSSLESS
from gantry_deploy.dataset.writer import DatasetWriter

MOST_PICTURES_BYTES = 2 * 2**30
"""Pictures that may wait for those of other cameras."""
_FLAGS = (DONE, TRUNCATED, SUCCESS, IS_INTERVENTION, f"{EXTRA}is_demo")


@dataclass(frozen=True)
class Converted:
    """Outcome of a conversion."""

    folder: Path
    """Folder of the dataset."""
    episodes: int
    """Episodes."""
    frames: int
    """Frames in them."""
    notes: tuple[str, ...] = ()
    """Observations, in words, bag by bag."""


@dataclass
class _Episode:
    """An episode that is to be written."""

    times: Times
    """Shape (n,), ns."""
    numbers: dict[str, NDArray[Any]]
    """By feature, (n, ...)."""
    pictures: dict[str, NDArray[np.int64]]
    """By feature, (n,), the number of the message among the mapped ones of the bag."""
    task: str
    """Task in words."""


@dataclass
class _Waiting:
    """Decoded pictures of incomplete frames."""

    images: dict[tuple[str, int], NDArray[np.uint8]] = field(default_factory=dict)
    """By feature and number of the message."""
    size: int = 0
    """Bytes of them."""


def convert_bags(bags: Sequence[Path], output: Path, cfg: BagCfg | None = None) -> Converted:
    """Write a dataset of bags, one after the other.

    Args:
        bags: Folders of rosbag2, or single files.
        output: Folder of the new dataset.
        cfg: The mapping; None for recordings of Gantry, which need none.

    Raises:
        BagError: If a bag cannot be read, or does not hold what the mapping asks for.
        UnknownNameError: If a topic, field or joint does not exist, with the near miss.
        DatasetError: If the dataset cannot be written.
    """
    require_new(output)
    if not bags:
        raise BagError("No bag is given.")
    cfg = gantry_cfg(bags[0]) if cfg is None else cfg
    notes: list[str] = []
    with whole_output(output) as scratch:
        writer: DatasetWriter | None = None
        try:
            for path in bags:
                bag = Bag(path)
                mapped = MappedTopics(bag, cfg)
                contents = read_bag(bag, mapped)
                require_values(contents, mapped)
                features = features_of(mapped, contents)
                if writer is None:
                    codec = LOSSLESS if cfg.lossless else None
                    writer = DatasetWriter(scratch, cfg.fps, features, cfg.robot, codec=codec)
                _require_same(writer.features, features, path)
                episodes = _episodes(mapped, contents)
                _write(writer, bag, mapped, contents, episodes)
                notes += [f"{path.name}: {note}" for note in [*contents.notes, *_counts(contents)]]
            if writer is None or not writer.num_episodes:
                told = "".join(f"\n  {note}" for note in notes)
                raise BagError(f"No episode was found; nothing is written.{told}")
            result = Converted(output, writer.num_episodes, writer.num_frames, tuple(notes))
        finally:
            if writer is not None:
                writer.discard_episode()
                writer.finalize()
    return result


def features_of(mapped: MappedTopics, contents: BagContents) -> dict[str, Feature]:
    """Features of the dataset that a mapping makes of a bag.

    Raises:
        BagError: If pictures and numbers are mixed in one feature.
    """
    features: dict[str, Feature] = {}
    for name, sources in mapped.cfg.features.items():
        keys = _keys(name, len(sources))
        shown = [key for key in keys if mapped.is_picture(key)]
        if shown:
            if len(keys) > 1:
                raise BagError(f"'{name}' has pictures and {len(keys)} sources, expected one camera.")
            height, width = contents.sizes[name]
            features[name] = camera(height, width, video=height % 2 == 0 and width % 2 == 0)
            continue
        names = [label for key in keys for label in contents.readers[key].names]
        names = names if len(set(names)) == len(names) else [f"{label}.{i}" for i, label in enumerate(names)]
        units = [
            unit
            for key, item in zip(keys, sources, strict=True)
            for unit in [item.unit] * len(contents.readers[key].names)
        ]
        dtype = next((item.dtype for item in sources if item.dtype), "bool" if name in _FLAGS else "float32")
        kind = next((item.kind for item in sources if item.kind), "")
        features[name] = vector(names, dtype=dtype, kind=kind, unit=units)
    if mapped.cfg.episodes.success or mapped.cfg.episodes.failure:
        flag = vector(1, dtype="bool")
        features |= {name: flag for name in (DONE, TRUNCATED, SUCCESS) if name not in features}
    return features


def _keys(feature: str, count: int) -> list[str]:
    return [feature] if count == 1 else [f"{feature}#{number}" for number in range(count)]


def _require_same(there: Mapping[str, Feature], here: Mapping[str, Feature], path: Path) -> None:
    for name, feature in there.items():
        if here[name] != feature:
            raise BagError(f"{path}: '{name}' is {here[name]}, and {feature} in the bag before; the names must agree.")


def _episodes(mapped: MappedTopics, contents: BagContents) -> list[_Episode]:
    """Episodes of a bag in the order of its file."""
    episodes: list[_Episode] = []
    for segment in sorted(contents.ends):
        found = {name: contents.collector.series(name, segment) for name in mapped.sources}
        missing = sorted({mapped.sources[name].topic for name, item in found.items() if item is None})
        if missing:
            contents.notes.append(f"stretch {segment} is left out: nothing on {', '.join(missing)}")
            continue
        series = {name: item for name, item in found.items() if item is not None}
        for span in _spans(segment, mapped, contents, series):
            episodes += _sampled(span, mapped, contents, series)
    return episodes


def _spans(segment: int, mapped: MappedTopics, contents: BagContents, series: Mapping[str, Series]) -> list[Span]:
    cfg, (start_ns, end_ns) = mapped.cfg.episodes, contents.ends[segment]
    if cfg.by == "events":
        return spans_of_events(segment, contents.events.get(segment, []), end_ns)
    if cfg.by == "topic":
        truth = contents.collector.series(TRUTH, segment)
        return [] if truth is None else spans_of_truth(segment, truth, end_ns)
    if cfg.by == "gap":
        wanted = cfg.topic or next(iter(mapped.cfg.topics))
        name = next((name for name, source in mapped.sources.items() if source.topic == wanted), None)
        if name is None:
            raise BagError(
                f"episodes.topic is '{wanted}', expected a topic of the features: {', '.join(mapped.cfg.topics)}."
            )
        return spans_of_gaps(segment, series[name], cfg.gap_s)
    return [Span(segment, start_ns, end_ns)]


def _sampled(span: Span, mapped: MappedTopics, contents: BagContents, series: Mapping[str, Series]) -> list[_Episode]:
    """Frames of a stretch, as one episode or, where messages were missing meanwhile, as several or fewer."""
    cfg = mapped.cfg
    offsets = {name: round(source.offset_s * 1e9) for name, source in mapped.sources.items()}
    # A source with an age of its own comes rarely.
    lasting = [key for key in series if key.startswith("observation.") and mapped.sources[key].max_age_s is None]
    times = np.array(frame_times(span, cfg.fps, series, offsets, lasting), np.int64)
    told = f"episode at {(span.start_ns - contents.ends[span.segment][0]) / 1e9:.2f} s"
    if not len(times):
        contents.notes.append(f"{told} is left out: no moment at which every topic has a value")
        return []
    fresh, oldest = np.ones(len(times), bool), ""
    for name, item in series.items():
        limit_s = mapped.sources[name].max_age_s or cfg.max_age_s
        stale = item.last(times + offsets[name])[1] > limit_s * 1e9
        if stale.any() and cfg.stale != "hold":
            first = (times[int(stale.argmax())] - times[0]) / 1e9
            oldest = oldest or f"'{mapped.sources[name].topic}' is older than {limit_s:g} s after {first:.2f} s"
            fresh &= ~stale
    if oldest and cfg.stale == "refuse":
        raise BagError(f"{told}: {oldest}; set max_age_s, or stale to end, split or hold.")
    if oldest:
        contents.notes.append(f"{told}: {oldest}")
    edges = np.flatnonzero(np.diff(np.concatenate(([0], fresh.astype(np.int8), [0]))))
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    episodes = []
    for start, stop in runs if cfg.stale == "split" else runs[:1]:
        if stop - start < cfg.episodes.min_frames:
            contents.notes.append(f"{told} is left out: {stop - start} frames, expected {cfg.episodes.min_frames}")
            continue
        whole = stop == len(times)
        episodes.append(_episode(span, times[start:stop], mapped, contents, series, whole, offsets))
    return episodes


def _episode(
    span: Span,
    times: Times,
    mapped: MappedTopics,
    contents: BagContents,
    series: Mapping[str, Series],
    whole: bool,
    offsets: Mapping[str, int],
) -> _Episode:
    cfg = mapped.cfg
    numbers: dict[str, NDArray[Any]] = {}
    pictures: dict[str, NDArray[np.int64]] = {}
    for name, sources in cfg.features.items():
        parts = []
        for key, source in zip(_keys(name, len(sources)), sources, strict=True):
            at, item = times + offsets[key], series[key]
            if key not in contents.readers:
                pictures[name] = np.asarray(item.values, np.int64)[item.last(at)[0]]
            elif source.interpolate:
                parts.append(item.interpolated(at))
            else:
                parts.append(item.values[item.last(at)[0]])
        if parts:
            numbers[name] = np.concatenate(parts, axis=1)
    if DONE in numbers and (numbers[DONE] > 0.5).any():
        length = int((numbers[DONE][:, 0] > 0.5).argmax()) + 1
        times, whole = times[:length], False
        numbers = {name: values[:length] for name, values in numbers.items()}
        pictures = {name: rows[:length] for name, rows in pictures.items()}
    if cfg.episodes.success or cfg.episodes.failure:
        # What ended early did not come to its outcome.
        success = bool(span.success) and whole
        ends = ends_of(len(times), success)
        if span.success is False and whole:
            ends[TRUNCATED] = np.zeros_like(ends[TRUNCATED])
        numbers |= {name: values for name, values in ends.items() if name not in numbers}
    texts = contents.collector.series(TASK, span.segment)
    row = -1 if texts is None else int(texts.last(times[-1:])[0][0])
    task = cfg.task if texts is None or row < 0 else str(texts.values[row])
    return _Episode(times, numbers, pictures, task)


def _write(
    writer: DatasetWriter, bag: Bag, mapped: MappedTopics, contents: BagContents, episodes: Sequence[_Episode]
) -> None:
    """Second walk through a bag, for its pictures; frames are written as soon as theirs have come."""
    uses: dict[tuple[str, int], int] = {}
    for episode in episodes:
        for name, rows in episode.pictures.items():
            for row in rows.tolist():
                uses[name, row] = uses.get((name, row), 0) + 1
    frames = _Frames(writer, contents, episodes, uses)
    if uses:
        by_topic: dict[str, list[str]] = {}
        for name, source in mapped.sources.items():
            if name not in contents.readers:
                by_topic.setdefault(source.topic, []).append(name)
        for number, topic, _, message in mapped.decoded(bag, contents):
            for name in by_topic.get(topic, ()):
                if (name, number) in uses:
                    kind, source = mapped.topics[topic].type, mapped.sources[name]
                    frames.take(name, number, picture_of(message, kind, source, contents.sizes[name]))
            frames.advance()
    frames.advance()
    frames.require_done()


class _Frames:
    """Writes the frames of episodes in their order, each when its pictures have come."""

    def __init__(
        self,
        writer: DatasetWriter,
        contents: BagContents,
        episodes: Sequence[_Episode],
        uses: dict[tuple[str, int], int],
    ) -> None:
        self._writer, self._contents, self._episodes, self._uses = writer, contents, episodes, uses
        self._waiting = _Waiting()
        self._episode, self._frame = 0, 0

    def take(self, name: str, number: int, image: NDArray[np.uint8]) -> None:
        """Keep a picture until its frames have been written."""
        self._waiting.images[name, number] = image
        self._waiting.size += image.nbytes
        if self._waiting.size > MOST_PICTURES_BYTES:
            raise BagError("The cameras' pictures lie too far apart in the bag to be put together in memory.")

    def advance(self) -> None:
        """Write every frame that is complete."""
        while self._episode < len(self._episodes):
            episode = self._episodes[self._episode]
            index = self._frame
            places = {name: (name, int(rows[index])) for name, rows in episode.pictures.items()}
            if any(place not in self._waiting.images for place in places.values()):
                return
            features = self._writer.features
            frame: dict[str, Any] = {name: self._waiting.images[place] for name, place in places.items()}
            for name, values in episode.numbers.items():
                frame[name] = _as(values[index], features[name])
            self._writer.add_frame(frame)
            for place in places.values():
                self._uses[place] -= 1
                if not self._uses[place]:
                    self._waiting.size -= self._waiting.images.pop(place).nbytes
            self._frame += 1
            if self._frame == len(episode.times):
                self._writer.end_episode(episode.task)
                self._episode, self._frame = self._episode + 1, 0

    def require_done(self) -> None:
        """Refuse to leave frames out in silence.

        Raises:
            BagError: If pictures have not come again, because the bag was changed meanwhile.
        """
        if self._episode < len(self._episodes):
            raise BagError("Pictures that were there in the first walk through the bag are not in the second.")


def _as(values: NDArray[Any], feature: Feature) -> NDArray[Any]:
    """Numbers in the type of a feature; truths are those above a half."""
    if feature.dtype == "bool":
        return (np.asarray(values, np.float64) > 0.5).reshape(feature.shape)
    if feature.dtype == "int64":
        return np.rint(values).astype(np.int64).reshape(feature.shape)
    return np.asarray(values, feature.dtype).reshape(feature.shape)


def _counts(contents: BagContents) -> list[str]:
    """Notes about messages that were put in order or left out."""
    notes = said(contents.collector.out_of_order, "messages came after a later one and were put in order")
    notes += said(contents.collector.repeated, "messages had the time of another one; the last one counts")
    notes += said(contents.invalid, "messages without finite numbers in the field, or before every joint had come")
    if contents.collector.jumps:
        notes.append(f"the clock went back {contents.collector.jumps} times; episodes end there")
    return notes
