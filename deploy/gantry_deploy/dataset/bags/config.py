"""Mapping of a bag's topics to the features of a dataset, as a person writes it in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gantry_deploy.dataset.bags.messages import BagError
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import plain_text
from gantry_hardware.files.yaml_file import read_yaml

MAX_FPS = 1000
BOUNDARIES = ("bag", "gap", "topic", "events")
STAMPS = ("log", "header")
STALE = ("end", "split", "hold", "refuse")
POINTS = ("first", "last")
DTYPES = ("float32", "float64", "bool", "int64")


@dataclass(frozen=True)
class SourceCfg:
    """Numbers or pictures of one topic."""

    topic: str
    """Name of the topic; with a field behind a dot (``/topic.field[2]``) that is its ``field``."""
    field: str = ""
    """Path of a field, for example ``pose.position`` or ``data[0:3]``; empty for the usual one of the type."""
    joints: tuple[str, ...] = ()
    """Joints in the order of the feature, for messages that name them; empty for the order of the first message."""
    names: tuple[str, ...] = ()
    """Names of the numbers in the dataset; empty for those of the joints or fields."""
    unit: str = ""
    """SI unit of the numbers in the dataset."""
    kind: str = ""
    """Meaning of the numbers, for example ``target/joint/position``, which ``gantry data replay`` asks for."""
    dtype: str = ""
    """``float32``, ``float64``, ``bool`` or ``int64``; empty for what fits the feature's name."""
    scale: float = 1.0
    """Factor from the message to the dataset, for example 0.01745329 from degrees."""
    offset_s: float = 0.0
    """Time after the frame at which the value is taken, s: 1 / fps takes the next state for an action."""
    interpolate: bool = False
    """Interpolate linearly between the messages before and after instead of taking the last one."""
    point: str = "first"
    """Point of a trajectory: ``first`` or ``last``."""
    max_age_s: float | None = None
    """Greatest age of the last message at a frame, s; None for that of the bag."""
    height: int | None = None
    """Height to which pictures are scaled, in pixels; None for their own."""
    width: int | None = None
    """Likewise their width."""

    def __post_init__(self) -> None:
        topic, dot, path = self.topic.partition(".")
        if dot:
            if self.field:
                raise BagError(f"'{self.topic}' has a field behind its dot and another one in 'field'.")
            object.__setattr__(self, "topic", topic)
            object.__setattr__(self, "field", path)
        bracket = self.topic.find("[")
        if bracket > 0:
            object.__setattr__(self, "field", self.topic[bracket:] + self.field)
            object.__setattr__(self, "topic", self.topic[:bracket])
        if not self.topic.startswith("/"):
            raise BagError(f"The topic is {plain_text(self.topic)}, expected one that begins with '/'.")
        _choose("point", self.point, POINTS)
        if self.dtype:
            _choose("dtype", self.dtype, DTYPES)
        bounds = {"scale": Range(-1e9, 1e9), "offset_s": Range(-60.0, 60.0), "max_age_s": Range(0.0, 1e9)}
        check_fields(self, {**bounds, "height": Range(2, 8192), "width": Range(2, 8192)}, f"{self.topic}: ", BagError)
        if (self.height is None) != (self.width is None):
            raise BagError(f"{self.topic}: give both height and width, or neither.")


@dataclass(frozen=True)
class EpisodesCfg:
    """Beginnings and ends of episodes."""

    by: str = "bag"
    """``bag``: each bag is one; ``gap``: silence of a topic parts them; ``topic``: one lasts while a field is true;
    ``events``: messages begin and end them."""
    topic: str = ""
    """Of ``gap``: the topic, by default the first of the features. Of ``topic``: the field, ``/recording.data``."""
    gap_s: float = 2.0
    """Shortest silence that parts two episodes, s."""
    start: tuple[str, ...] = ()
    """Events that begin an episode: ``/topic``, ``/topic.field=value``, or ``/service/_service_event``."""
    end: tuple[str, ...] = ()
    """Events that end it without a verdict."""
    success: tuple[str, ...] = ()
    """Events that end it as a success."""
    failure: tuple[str, ...] = ()
    """Events that end it as a failure."""
    discard: tuple[str, ...] = ()
    """Events that end it and leave it out: it was recorded again."""
    min_frames: int = 2
    """Shortest episode that is stored, in frames."""

    def __post_init__(self) -> None:
        _choose("episodes.by", self.by, BOUNDARIES)
        check_fields(self, {"gap_s": Range(1e-3, 1e6), "min_frames": Range(1, 10_000_000)}, "episodes.", BagError)
        if self.by == "topic" and not self.topic:
            raise BagError("episodes.by is 'topic'; give episodes.topic, for example /recording.data.")
        if self.by == "events" and not self.start:
            raise BagError("episodes.by is 'events'; give episodes.start, for example [/episode/start].")


@dataclass(frozen=True)
class BagCfg:
    """Mapping of topics to a dataset."""

    fps: int
    """Frames per second of the dataset."""
    features: Mapping[str, tuple[SourceCfg, ...]] = field(default_factory=dict)
    """Sources by feature; those of one feature are put behind each other."""
    robot: str | None = None
    """Name of the robot."""
    task: str = "unnamed task"
    """Task in words."""
    task_topic: str = ""
    """Topic field that holds the task's text, for example ``/task.data``; the last one in an episode counts. Empty:
    ``task``."""
    stamps: str = "log"
    """``log``: time of recording; ``header``: the message's own stamp where it has one."""
    max_age_s: float = 0.5
    """Greatest age of the last message at a frame, s."""
    stale: str = "end"
    """Effect of a message that is too old: ``end`` ends the episode, ``split`` begins another one once all are fresh,
    ``hold`` uses it all the same, ``refuse`` is an error."""
    lossless: bool = False
    """Keep every pixel, at several times the size."""
    episodes: EpisodesCfg = field(default_factory=EpisodesCfg)
    """Beginnings and ends of episodes."""

    def __post_init__(self) -> None:
        check_fields(self, {"fps": Range(1, MAX_FPS), "max_age_s": Range(1e-3, 1e9)}, "", BagError)
        _choose("stamps", self.stamps, STAMPS)
        _choose("stale", self.stale, STALE)
        if not self.features:
            raise BagError("No feature is given; 'gantry data topics BAG' shows a mapping to begin with.")
        for name, sources in self.features.items():
            if not sources:
                raise BagError(f"Feature '{name}' has no source.")

    @property
    def topics(self) -> dict[str, None]:
        """Topics of features, without those of episodes and task."""
        return dict.fromkeys(source.topic for sources in self.features.values() for source in sources)


def read_bag_cfg(path: Path) -> BagCfg:
    """The mapping in a YAML file.

    Raises:
        BagError: If a field does not exist, with the near miss, or a value does not fit.
        YamlFileError: If the file is no YAML.
    """
    return bag_cfg(read_yaml(path))


def bag_cfg(data: Any) -> BagCfg:
    """The mapping of plain data; a feature is a text ``/topic.field``, a source, or a list of them.

    Raises:
        BagError: If a field does not exist, with the near miss, or a value does not fit.
    """
    if not isinstance(data, dict):
        raise BagError(f"The mapping is {plain_text(data)}, expected 'fps', 'features' and others.")
    plain, features = dict(data), data.get("features")
    if isinstance(features, dict):
        plain["features"] = {str(name): _sources(item) for name, item in features.items()}
    if isinstance(plain.get("episodes"), dict):
        plain["episodes"] = {
            key: [value] if key in _EVENTS and isinstance(value, str) else value
            for key, value in plain["episodes"].items()
        }
    return from_plain(BagCfg, plain, "mapping", BagError)


_EVENTS = ("start", "end", "success", "failure", "discard")


def _sources(item: Any) -> list[Any]:
    items = item if isinstance(item, list) else [item]
    return [{"topic": source} if isinstance(source, str) else source for source in items]


def _choose(kind: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UnknownNameError(kind, value, known)
