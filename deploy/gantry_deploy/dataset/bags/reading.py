"""First walk through a bag: numbers, times of pictures, events and tasks of the topics that a mapping names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gantry_deploy.dataset.bags.bag import Bag
from gantry_deploy.dataset.bags.config import BagCfg, SourceCfg
from gantry_deploy.dataset.bags.definitions import Decode, Decoders
from gantry_deploy.dataset.bags.fields import NumberReader, field_of, parse_path
from gantry_deploy.dataset.bags.messages import LATEST_NS, BagError, Topic
from gantry_deploy.dataset.bags.pictures import TYPES, picture_size
from gantry_deploy.dataset.bags.spans import Event, events_of, truth_of
from gantry_deploy.dataset.bags.timeline import Collector
from gantry_hardware.errors import GantryError, UnknownNameError

MOST_MESSAGES = 50_000_000
"""Largest number of messages of a bag that are read into memory."""
TASK, TRUTH = "task", "episodes.topic"
"""Names of the texts of tasks and of the field that is true during an episode, among the sources."""


@dataclass
class BagContents:
    """Contents of a bag that a mapping takes."""

    collector: Collector = field(default_factory=Collector)
    """Values by source."""
    readers: dict[str, NumberReader] = field(default_factory=dict)
    """Readers of numbers by source; they know the names."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Height and width of the pictures by source, in pixels."""
    events: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """Time in ns and role of the events by stretch."""
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First and last time of a mapped topic by stretch, ns."""
    stop_at: int | None = None
    """Number of the mapped message at which reading ended early; None if all could be read."""
    invalid: dict[str, int] = field(default_factory=dict)
    """Messages by source without numbers that count."""
    notes: list[str] = field(default_factory=list)
    """Observations, in words."""


def source_names(cfg: BagCfg) -> dict[str, SourceCfg]:
    """Sources of all features by a name of their own: that of the feature, with a number where it has several."""
    named = {}
    for feature, sources in cfg.features.items():
        for number, source in enumerate(sources):
            named[feature if len(sources) == 1 else f"{feature}#{number}"] = source
    return named


class MappedTopics:
    """Topics that a mapping names, with their decoders.

    Args:
        bag: The bag.
        cfg: The mapping.

    Raises:
        UnknownNameError: If a topic does not exist, with the near miss.
        BagError: If the messages of one cannot be read.
    """

    def __init__(self, bag: Bag, cfg: BagCfg) -> None:
        self.topics: dict[str, Topic] = bag.topics()
        self.cfg = cfg
        self.sources = source_names(cfg)
        self.events: list[Event] = events_of(cfg.episodes)
        self.task = _place(cfg.task_topic)
        self.truth = _place(cfg.episodes.topic) if cfg.episodes.by == "topic" else None
        names = dict.fromkeys([*cfg.topics, *(item.topic for item in self.events)])
        names |= dict.fromkeys(place[0] for place in (self.task, self.truth) if place)
        self._optional = {item.topic for item in self.events} - set(cfg.topics)
        decoders = Decoders()
        self.decoders: dict[str, Decode] = {}
        for name in names:
            if name in self.topics:
                self.decoders[name] = decoders.of(self.topics[name])
            elif name not in self._optional:  # An event may just not have happened.
                raise UnknownNameError(f"topic of {bag.path}", name, self.topics)
        for item in self.events:
            if item.role == "start" and not any(
                other.topic in self.topics for other in self.events if other.role == "start"
            ):
                raise UnknownNameError(f"topic of {bag.path}", item.topic, self.topics)

    def is_picture(self, source: str) -> bool:
        """Whether a source gives pictures."""
        return self.topics[self.sources[source].topic].type in TYPES

    def decoded(self, bag: Bag, contents: BagContents) -> Iterator[tuple[int, str, int, Any]]:
        """Number, topic, time in ns and message of every mapped message, up to the first damage."""
        number = 0
        for message in bag.messages():
            decode = self.decoders.get(message.topic)
            if decode is None:
                continue
            if contents.stop_at is not None and number >= contents.stop_at:
                return
            try:
                decoded = decode(message.data)
            except Exception as error:  # Whatever a decoder raises on a message that is none.
                contents.stop_at = number
                contents.notes.append(
                    f"ends at its first damage: a message of '{message.topic}' cannot be decoded "
                    f"({type(error).__name__}: {error})"
                )
                return
            yield number, message.topic, self._time(decoded, message.log_ns), decoded
            number += 1

    def _time(self, message: Any, log_ns: int) -> int:
        stamp = getattr(getattr(message, "header", None), "stamp", None)
        if self.cfg.stamps == "log" or stamp is None:
            return log_ns
        time_ns = int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
        return time_ns if 0 < time_ns <= LATEST_NS else log_ns


def read_bag(bag: Bag, mapped: MappedTopics) -> BagContents:
    """Read everything but pictures.

    Raises:
        BagError: If messages do not hold what the mapping asks for.
    """
    contents = BagContents()
    by_topic: dict[str, list[str]] = {}
    for name, source in mapped.sources.items():
        by_topic.setdefault(source.topic, []).append(name)
        if not mapped.is_picture(name):
            contents.readers[name] = NumberReader(source, mapped.topics[source.topic].type)
    for number, topic, time_ns, message in mapped.decoded(bag, contents):
        if number >= MOST_MESSAGES:
            raise BagError(f"{bag.path} has more than {MOST_MESSAGES} messages of mapped topics; split the bag.")
        segment = contents.collector.arrive(topic, time_ns)
        first, last = contents.ends.get(segment, (time_ns, time_ns))
        contents.ends[segment] = (min(first, time_ns), max(last, time_ns))
        for name in by_topic.get(topic, ()):
            _keep(name, number, segment, time_ns, message, mapped, contents)
        _keep_others(topic, segment, time_ns, message, mapped, contents)
    contents.notes = [*bag.notes, *contents.notes]
    for events in contents.events.values():
        events.sort()
    return contents


def _keep(
    name: str, number: int, segment: int, time_ns: int, message: Any, mapped: MappedTopics, contents: BagContents
) -> None:
    """Keep what a source takes from a message: numbers, or of a picture its place in the bag."""
    source = mapped.sources[name]
    if name not in contents.readers:
        if name not in contents.sizes:
            own = picture_size(message, mapped.topics[source.topic].type, source.topic)
            wanted = source.height is not None and source.width is not None
            contents.sizes[name] = (source.height, source.width) if wanted else own  # type: ignore[assignment]
        contents.collector.add(name, segment, time_ns, number)
        return
    values = contents.readers[name](message)
    if values is None:
        contents.invalid[name] = contents.invalid.get(name, 0) + 1
    else:
        contents.collector.add(name, segment, time_ns, values)


def _keep_others(
    topic: str, segment: int, time_ns: int, message: Any, mapped: MappedTopics, contents: BagContents
) -> None:
    """Keep events, tasks, and whether an episode lasts."""
    for event in mapped.events:
        if event.topic == topic and event.matches(message):
            contents.events.setdefault(segment, []).append((time_ns, event.role))
            break
    if mapped.task and mapped.task[0] == topic:
        text = field_of(message, parse_path(mapped.task[1] or "data"), topic)
        if isinstance(text, str) and text.strip():
            contents.collector.add(TASK, segment, time_ns, text.strip())
    if mapped.truth and mapped.truth[0] == topic:
        contents.collector.add(TRUTH, segment, time_ns, truth_of(message, mapped.truth[1] or "data", topic))


def _place(text: str) -> tuple[str, str] | None:
    topic, _, path = text.partition(".")
    return (topic, path) if topic else None


def require_values(contents: BagContents, mapped: MappedTopics) -> None:
    """Refuse a bag in which a source has no value at all.

    Raises:
        GantryError: Naming topic and reason: no message, or joints that never came, with the near miss.
    """
    for name, source in mapped.sources.items():
        if contents.collector.count(name):
            continue
        reader = contents.readers.get(name)
        if reader is not None and reader.seen:
            for joint in source.joints:
                if joint not in reader.seen:
                    raise UnknownNameError(f"joint of '{source.topic}'", joint, reader.seen)
        error: GantryError = BagError(
            f"'{source.topic}' has no value for '{name}': {contents.invalid.get(name, 0)} messages, none with finite "
            "numbers in that field."
        )
        raise error
