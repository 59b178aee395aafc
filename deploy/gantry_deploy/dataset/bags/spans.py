"""Beginnings and ends of the episodes in a bag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gantry_deploy.dataset.bags.config import EpisodesCfg
from gantry_deploy.dataset.bags.fields import field_of, numbers_of, parse_path
from gantry_deploy.dataset.bags.messages import BagError
from gantry_deploy.dataset.bags.timeline import Series

_SERVICE_EVENT = "/_service_event"
_REQUEST_RECEIVED = 1
"""Of the up to four events of a call, service_msgs/msg/ServiceEventInfo."""
ROUNDING_NS = 1000
"""Stamps are rounded by less; a frame at the very end is not lost to that."""
OUTCOMES = {"end": None, "success": True, "failure": False}


@dataclass(frozen=True)
class Span:
    """A stretch of a bag that is an episode, before it is sampled."""

    segment: int
    """Stretch between two jumps of the clock."""
    start_ns: int
    """Beginning."""
    end_ns: int
    """Time after which no frame lies."""
    success: bool | None = None
    """Outcome; None if nothing says it."""


@dataclass(frozen=True)
class Event:
    """An event in the mapping: a message on a topic, or one whose field has a value."""

    role: str
    """``start``, ``end``, ``success``, ``failure`` or ``discard``."""
    topic: str
    """Name of the topic."""
    path: str
    """Field to look at; empty for any message."""
    value: str
    """Its value as text; empty for one that is true."""

    def matches(self, message: Any) -> bool:
        """Whether a message is this event.

        Raises:
            UnknownNameError: If there is no such field.
        """
        if self.topic.endswith(_SERVICE_EVENT) and not self.path:
            return int(message.info.event_type) == _REQUEST_RECEIVED
        if not self.path:
            return True
        found = field_of(message, parse_path(self.path), self.topic)
        if not self.value:
            return bool(found)
        if isinstance(found, bool):
            return self.value.lower() in (("true", "1") if found else ("false", "0"))
        if isinstance(found, (int, float)):
            try:
                return float(found) == float(self.value)
            except ValueError as error:
                raise BagError(f"'{self.topic}.{self.path}' is a number, which is never '{self.value}'.") from error
        return str(found) == self.value


def events_of(cfg: EpisodesCfg) -> list[Event]:
    """Events of a mapping, those that end an episode before those that begin one."""
    if cfg.by != "events":
        return []
    found = []
    for role in ("discard", "success", "failure", "end", "start"):
        for text in getattr(cfg, role):
            place, _, value = text.partition("=")
            topic, _, path = place.strip().partition(".")
            found.append(Event(role, topic, path, value.strip()))
    return found


def truth_of(message: Any, path: str, topic: str) -> bool:
    """Whether the first number at a path is not zero."""
    numbers, _ = numbers_of(field_of(message, parse_path(path), topic))
    if not numbers:
        raise BagError(f"'{topic}.{path}' holds no number, so that it cannot say when an episode lasts.")
    return numbers[0] > 0.5


def spans_of_events(segment: int, events: Iterable[tuple[int, str]], end_ns: int) -> list[Span]:
    """Episodes between events; one that is still open at the end of the bag ends there.

    Args:
        segment: Stretch of the bag.
        events: Time in ns and role of each, in the order of time.
        end_ns: End of the stretch.
    """
    spans: list[Span] = []
    begun: int | None = None
    for time_ns, role in events:
        if role == "start":
            if begun is not None:
                spans.append(Span(segment, begun, time_ns - 2 * ROUNDING_NS))
            begun = time_ns
        elif begun is not None:
            if role != "discard":
                spans.append(Span(segment, begun, time_ns, OUTCOMES[role]))
            begun = None
    return [*spans, Span(segment, begun, end_ns)] if begun is not None else spans


def spans_of_truth(segment: int, series: Series, end_ns: int) -> list[Span]:
    """Episodes while a field is true."""
    spans, begun = [], None
    for time_ns, flag in zip(series.times.tolist(), np.asarray(series.values).tolist(), strict=True):
        if flag and begun is None:
            begun = time_ns
        elif not flag and begun is not None:
            spans.append(Span(segment, begun, time_ns - 2 * ROUNDING_NS))
            begun = None
    return [*spans, Span(segment, begun, end_ns)] if begun is not None else spans


def spans_of_gaps(segment: int, series: Series, gap_s: float) -> list[Span]:
    """Episodes between silences of a topic."""
    breaks = np.flatnonzero(np.diff(series.times) > gap_s * 1e9)
    starts = series.times[np.concatenate(([0], breaks + 1))]
    ends = series.times[np.concatenate((breaks, [len(series.times) - 1]))]
    return [Span(segment, int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


def frame_times(
    span: Span, fps: int, sources: Mapping[str, Series], offsets_ns: Mapping[str, int], lasting: Iterable[str]
) -> Sequence[int]:
    """Times of the frames of an episode, ns: from the first moment at which every source has a value, at the rate of
    the dataset, as long as the lasting ones go on.

    Args:
        span: The episode.
        fps: Frames per second.
        sources: Values by source.
        offsets_ns: Time after a frame at which a source is looked at, ns.
        lasting: Names of the sources whose end is that of the episode.
    """
    begin = max([span.start_ns, *(int(series.times[0]) - offsets_ns[name] for name, series in sources.items())])
    end = min([span.end_ns, *(int(sources[name].times[-1]) - offsets_ns[name] for name in lasting)])
    if begin > end:
        return []
    count = (end - begin + ROUNDING_NS) * fps // 1_000_000_000 + 1
    return [begin + round(k * 1_000_000_000 / fps) for k in range(count)]
