"""Gamepads by names of their sticks and buttons: maps from a driver's numbers, and what each control does.

Used for local gamepads and for ``sensor_msgs/Joy``.
"""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.operator import Axis, TeleopEvent
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import finite
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.yaml_file import read_yaml

BUILT_IN = Path(__file__).with_name("gamepads.yaml")
"""Maps that come along; a person's own file has the same form."""
STICKS = ("left_x", "left_y", "right_x", "right_y", "dpad_x", "dpad_y")
TRIGGERS = ("left_trigger", "right_trigger")
"""One-sided: an axis rests at -1; on some pads they are buttons."""
BUTTONS = ("a", "b", "x", "y", "lb", "rb", "back", "start", "guide", "left_stick", "right_stick")
CONTROLS = (*STICKS, *TRIGGERS, *BUTTONS)
"""All names of controls."""
MOST_CONTROLS = 256
"""Numbers of axes and of buttons are below this."""
_TERM = re.compile(r"\s*([+-]?)\s*(\w+)")


@dataclass(frozen=True)
class PadLayout:
    """Meaning of each control."""

    hold: str
    """Dead-man switch: motion counts only while it is held."""
    motion: Mapping[str, str] = field(default_factory=dict)
    """Axis of motion -> controls with signs, for example ``right_trigger - left_trigger``."""
    events: Mapping[str, str] = field(default_factory=dict)
    """Button -> event."""
    dead_zone: float = 0.1
    """Share of a stick's way around its middle that counts as none."""

    def __post_init__(self) -> None:
        finite("dead_zone", self.dead_zone, 0.0, 0.9, TeleopError)
        _known("control", (self.hold, *self.events), CONTROLS)
        _known("axis of motion", self.motion, [axis.value for axis in Axis])
        _known("event", self.events.values(), [event.value for event in TeleopEvent])
        for text in self.motion.values():
            _known("control", [name for name, _ in terms(text)], CONTROLS)


@dataclass(frozen=True)
class PadMap:
    """Numbers of a pad's controls under one driver."""

    axes: Mapping[str, int]
    """Name -> number of the axis."""
    buttons: Mapping[str, int]
    """Name -> number of the button."""
    matches: tuple[str, ...] = ()
    """Patterns of the device's name, with ``*``; any of them."""
    counts: tuple[int, ...] = ()
    """Numbers of axes and buttons that the device must have; empty for any."""
    layout: PadLayout | None = None
    """Layout of this pad alone; None for the file's."""

    def __post_init__(self) -> None:
        _known("control", (*self.axes, *self.buttons), CONTROLS)
        for what, numbers in (("axes", self.axes), ("buttons", self.buttons)):
            values = list(numbers.values())
            if len(set(values)) < len(values) or not all(0 <= value < MOST_CONTROLS for value in values):
                raise TeleopError(f"The {what} of a gamepad's map are {dict(numbers)}, expected numbers, each once.")
        if len(self.counts) not in (0, 2):
            raise TeleopError(f"counts of a gamepad's map is {list(self.counts)}, expected [axes, buttons].")

    def fits(self, name: str, counts: tuple[int, int]) -> bool:
        """Whether a device of this name and of these numbers of axes and buttons is meant."""
        return self.matches_name(name) and (not self.counts or self.counts == counts)

    def matches_name(self, name: str) -> bool:
        """Whether one of the patterns fits."""
        return any(fnmatch.fnmatch(name.lower(), pattern.lower()) for pattern in self.matches)


@dataclass(frozen=True)
class PadFile:
    """Contents of a file of maps."""

    maps: Mapping[str, PadMap] = field(default_factory=dict)
    """By name."""
    layout: PadLayout | None = None
    """Of every map without an own one."""


def load_maps(path: str = "") -> dict[str, PadMap]:
    """Maps by name, each with its layout, those of a person's own file first.

    Args:
        path: The person's own file; empty for none.

    Raises:
        TeleopError: If the file makes no sense.
        YamlFileError: If it is no YAML.
    """
    built_in = _read(BUILT_IN)
    own = _read(Path(path)) if path else PadFile()
    usual = own.layout or built_in.layout
    found = {**own.maps, **{name: pad for name, pad in built_in.maps.items() if name not in own.maps}}
    return {name: pad if pad.layout else replace(pad, layout=usual) for name, pad in found.items()}


class Pad:
    """State of one pad: its controls as motion, dead-man switch and events.

    A dead-man switch that is held when the device appears does not count before it is pressed again.

    Args:
        pad_map: With a layout.
        axes: Axes of motion that the policy's kind of robot uses.
        events: Takes events, oldest first.
    """

    def __init__(self, pad_map: PadMap, axes: tuple[Axis, ...], events: deque[TeleopEvent]) -> None:
        layout = pad_map.layout
        assert layout is not None
        self.map, self.layout, self._events = pad_map, layout, events
        if not self._has(layout.hold):
            raise TeleopError(f"This gamepad has no '{layout.hold}', which is its dead-man switch; hold: another one.")
        self._motion = {axis: terms(layout.motion[axis.value]) for axis in axes if axis.value in layout.motion}
        self._axis_names = {number: name for name, number in pad_map.axes.items()}
        self._button_names = {number: name for name, number in pad_map.buttons.items()}
        self.reset()

    def reset(self) -> None:
        """Forget everything: the device is gone, or has just appeared."""
        self._values = {name: -1.0 if name in TRIGGERS else 0.0 for name in self.map.axes}
        self._down: set[str] = set()
        self.engaged = False
        """Whether the dead-man switch is held, and was pressed while the device was watched."""

    def set_axis(self, number: int, value: float, *, initial: bool = False) -> None:
        """Take an axis; a number that the map does not have is ignored.

        Args:
            number: Of the driver.
            value: In [-1, 1]; right, down and pulled are positive.
            initial: Whether this is the state at the beginning, and no motion.
        """
        name = self._axis_names.get(number)
        if name is None:
            return
        self._values[name] = min(1.0, max(-1.0, value))
        if name in TRIGGERS:
            self._press(name, value > 0.0, initial)

    def set_button(self, number: int, pressed: bool, *, initial: bool = False) -> None:
        """Take a button; arguments as of :meth:`set_axis`."""
        name = self._button_names.get(number)
        if name is not None:
            self._press(name, pressed, initial)

    def let_go(self) -> None:
        """Count the dead-man switch as released until it is pressed again."""
        self.engaged = False

    def motion(self) -> dict[Axis, float]:
        """Motion by axis in [-1, 1]."""
        found = {axis: sum(sign * self._share(name) for name, sign in parts) for axis, parts in self._motion.items()}
        return {axis: min(1.0, max(-1.0, value)) for axis, value in found.items()}

    def describe(self) -> list[str]:
        """Lines with every control that does something, and its number."""
        lines = [f"{self._named(self.layout.hold)} held: the person moves the robot"]
        for axis, parts in self._motion.items():
            there = [f"{'-' if sign < 0 else '+'}{self._named(name)}" for name, sign in parts if self._has(name)]
            lines.append(f"{axis.value:<8} {' '.join(there).removeprefix('+') or '(this pad has no control for it)'}")
        lines += [f"{self._named(name)}: {event}" for name, event in self.layout.events.items() if self._has(name)]
        return lines

    def _press(self, name: str, pressed: bool, initial: bool) -> None:
        before = name in self._down
        (self._down.add if pressed else self._down.discard)(name)
        edge = pressed and not before and not initial
        if name == self.layout.hold:
            self.engaged = (self.engaged or edge) and pressed
        if edge and name in self.layout.events:
            self._events.append(TeleopEvent(self.layout.events[name]))

    def _share(self, name: str) -> float:
        """Deflection of a control in [-1, 1], beyond the dead zone."""
        if name not in self._values:
            return float(name in self._down)
        value = 0.5 * (self._values[name] + 1.0) if name in TRIGGERS else self._values[name]
        beyond = max(0.0, abs(value) - self.layout.dead_zone) / (1.0 - self.layout.dead_zone)
        return beyond if value > 0.0 else -beyond

    def _has(self, name: str) -> bool:
        return name in self.map.axes or name in self.map.buttons

    def _named(self, name: str) -> str:
        axes, buttons = self.map.axes, self.map.buttons
        return f"{name} (axis {axes[name]})" if name in axes else f"{name} (button {buttons[name]})"


def choose_map(maps: Mapping[str, PadMap], wanted: str, name: str, counts: tuple[int, int], where: str) -> PadMap:
    """The map of a device.

    Args:
        maps: As of :func:`load_maps`.
        wanted: Name of the map that was asked for; empty to choose by the device's name.
        name: The device's name.
        counts: Its numbers of axes and buttons.
        where: Its place, for messages.

    Raises:
        UnknownNameError: If there is no such map.
        TeleopError: If no map fits, with what to do.
    """
    if wanted:
        if wanted not in maps:
            raise UnknownNameError("map of a gamepad", wanted, maps)
        return maps[wanted]
    for pad in maps.values():
        if pad.fits(name, counts):
            return pad
    near = [f"'{key}' has {pad.counts[0]} and {pad.counts[1]}" for key, pad in maps.items() if pad.matches_name(name)]
    raise TeleopError(
        f"Gamepad '{name}' at {where} with {counts[0]} axes and {counts[1]} buttons is not known"
        + (f"; of that name {', '.join(near)}" if near else "")
        + f". Known maps: {', '.join(sorted(maps))}; take one of them with map=NAME, or write one: "
        f"'python -m gantry_deploy.teleop.gamepad {where}' shows the numbers, docs/teleop.md the form; then maps=FILE."
    )


def terms(text: str) -> list[tuple[str, float]]:
    """Names and signs of a sum such as ``right_trigger - left_trigger``.

    Raises:
        TeleopError: If it is no such sum.
    """
    found, rest = [], text.strip()
    while rest:
        term = _TERM.match(rest)
        if term is None or (found and not term[1]):
            raise TeleopError(f"'{text}' is no motion of controls, expected for example '-left_y' or 'rb - lb'.")
        found.append((term[2], -1.0 if term[1] == "-" else 1.0))
        rest = rest[term.end() :].strip()
    return found


def _read(path: Path) -> PadFile:
    return from_plain(PadFile, read_yaml(path), str(path), TeleopError)


def _known(what: str, names: object, known: object) -> None:
    for name in list(names):  # type: ignore[call-overload]
        if name not in known:  # type: ignore[operator]
            raise UnknownNameError(what, str(name), known)  # type: ignore[arg-type]
