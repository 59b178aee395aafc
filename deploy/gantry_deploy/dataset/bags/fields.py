"""Numbers of messages: by the path of a field, by the names of joints, or the usual ones of a type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.bags.config import SourceCfg
from gantry_deploy.dataset.bags.messages import BagError
from gantry_hardware.errors import UnknownNameError

FloatArray = NDArray[np.float64]
MOST_NUMBERS = 100_000
"""Numbers of one message."""

_PART = re.compile(r"\.?([A-Za-z_]\w*)|\[(\d{1,6})\]|\[(\d{0,6}):(\d{0,6})\]")
_USUAL = {
    "sensor_msgs/msg/JointState": "position",
    "trajectory_msgs/msg/JointTrajectory": "positions",
    "trajectory_msgs/msg/JointTrajectoryPoint": "positions",
    "control_msgs/msg/JointJog": "displacements",
}
"""Field of a type that is meant if none is named."""
_NAMES = ("name", "joint_names")
"""Fields that name the numbers of a message."""
_LEFT_OUT = ("header", "layout")
_LARGEST = 3e38
"""Numbers beyond this do not fit single precision."""

Part = str | int | slice


def parse_path(text: str) -> tuple[Part, ...]:
    """Parts of a path such as ``pose.position[2]`` or ``data[0:3]``.

    Raises:
        BagError: If it is no path.
    """
    parts: list[Part] = []
    position = 0
    while position < len(text):
        found = _PART.match(text, position)
        if found is None:
            raise BagError(f"'{text}' is no path of a field; expected for example pose.position or data[2].")
        if found[1] is not None:
            parts.append(found[1])
        elif found[2] is not None:
            parts.append(int(found[2]))
        else:
            parts.append(slice(int(found[3]) if found[3] else None, int(found[4]) if found[4] else None))
        position = found.end()
    return tuple(parts)


def field_of(message: Any, parts: Iterable[Part], topic: str) -> Any:
    """The value of a message at a path.

    Raises:
        UnknownNameError: If there is no such field, with the near miss.
        BagError: If an index is beyond the end.
    """
    value = message
    for part in parts:
        if isinstance(part, str):
            fields = _fields(value)
            if part not in fields:
                raise UnknownNameError(f"field of '{topic}'", part, fields)
            value = getattr(value, part)
            continue
        if not isinstance(value, (list, tuple, bytes, bytearray)):
            raise BagError(f"'{topic}' has no array where the path asks for [{part}].")
        if isinstance(part, int) and part >= len(value):
            raise BagError(f"'{topic}' has {len(value)} numbers where the path asks for [{part}].")
        value = value[part]
    return value


def numbers_of(value: Any, name: str = "") -> tuple[list[float], list[str]]:
    """Every number in a value with its name, headers left out.

    Raises:
        BagError: If there are too many.
    """
    numbers: list[float] = []
    names: list[str] = []
    _collect(value, name, numbers, names)
    return numbers, names


class NumberReader:
    """Takes the numbers of one source out of messages of one topic.

    Joints that a message does not name keep their last number, since several programs may publish parts of a robot on
    one topic; before each of them has come once there is no number at all.

    Args:
        source: The source.
        kind: Type of the topic's messages.
    """

    def __init__(self, source: SourceCfg, kind: str) -> None:
        self._source = source
        self._kind = kind
        field = source.field or _USUAL.get(kind, "")
        self._parts = parse_path(field)
        self._joints: tuple[str, ...] = source.joints
        self._held: FloatArray | None = None
        self._order: tuple[tuple[str, ...], NDArray[np.intp], NDArray[np.intp]] | None = None
        self.names: tuple[str, ...] = source.names
        """Names of the numbers, known after the first message."""
        self.seen: set[str] = set()
        """Names of joints that messages had, for a message about those that never came."""

    def __call__(self, message: Any) -> FloatArray | None:
        """Numbers (n,) of a message in the units of the dataset; None if it has none that count.

        Raises:
            UnknownNameError: If there is no such field.
            BagError: If the count of numbers differs from that of the messages before.
        """
        source = self._source
        if self._kind == "trajectory_msgs/msg/JointTrajectory" and self._by_point():
            if not message.points:
                return None
            point = message.points[0 if source.point == "first" else -1]
            return self._named(field_of(point, self._parts, source.topic), message.joint_names)
        value = field_of(message, self._parts, source.topic)
        labels = next((getattr(message, name) for name in _NAMES if name in _fields(message)), None)
        if isinstance(labels, list) and isinstance(value, (list, tuple)) and len(self._parts) == 1:
            return self._named(value, labels)
        if source.joints:
            raise BagError(f"'{source.topic}' ({self._kind}) names no joints; leave out 'joints'.")
        numbers, names = numbers_of(value, _last_name(self._parts))
        if not numbers:
            return None
        if not self.names:
            self.names = tuple(names)
        if len(numbers) != len(self.names):
            raise BagError(
                f"A message of '{source.topic}' has {len(numbers)} numbers, expected {len(self.names)}: "
                f"{', '.join(self.names[:20])}."
            )
        return self._scaled(np.array(numbers))

    def _by_point(self) -> bool:
        return not self._source.field or self._source.field in ("positions", "velocities", "accelerations", "effort")

    def _named(self, values: Sequence[float], labels: Sequence[str]) -> FloatArray | None:
        """Numbers by the names of joints."""
        if len(values) != len(labels):
            return None  # A field that this message leaves empty.
        if not self._joints:
            self._joints = tuple(labels)
        if not self.names:
            self.names = self._joints
        if len(self.names) != len(self._joints):
            raise BagError(f"'{self._source.topic}': {len(self.names)} names for {len(self._joints)} joints.")
        key = tuple(labels)
        if self._order is None or self._order[0] != key:
            self.seen.update(key[:1000])
            places = {name: i for i, name in enumerate(key)}
            there = [i for i, name in enumerate(self._joints) if name in places]
            self._order = (key, np.array(there, np.intp), np.array([places[self._joints[i]] for i in there], np.intp))
        if self._held is None:
            self._held = np.full(len(self._joints), np.nan)
        _, mine, theirs = self._order
        if not len(mine):
            return None
        self._held[mine] = np.asarray(values, np.float64)[theirs]
        return self._scaled(self._held.copy())

    def _scaled(self, numbers: FloatArray) -> FloatArray | None:
        scaled = numbers * self._source.scale
        return scaled if (np.abs(scaled) < _LARGEST).all() else None


def _collect(value: Any, name: str, numbers: list[float], names: list[str]) -> None:
    if len(numbers) > MOST_NUMBERS:
        raise BagError(f"A message has more than {MOST_NUMBERS} numbers; name a field.")
    if isinstance(value, (bool, int, float)):
        numbers.append(float(value))
        names.append(name or "value")
    elif isinstance(value, (list, tuple, bytes, bytearray)):
        for index, item in enumerate(value[: MOST_NUMBERS + 2]):
            _collect(item, f"{name}[{index}]" if name else f"[{index}]", numbers, names)
    else:
        for part in _fields(value):
            if part not in _LEFT_OUT:
                _collect(getattr(value, part), f"{name}.{part}" if name else part, numbers, names)


def _fields(value: Any) -> list[str]:
    return list(getattr(value, "__slots__", ()))


def _last_name(parts: Sequence[Part]) -> str:
    names = [part for part in parts if isinstance(part, str)]
    return names[-1] if names else ""
