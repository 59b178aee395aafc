"""SpaceMouse of 3Dconnexion as a raw HID device, without a driver: a cap with six axes, and buttons.

Report 1 holds the translation, or translation and rotation on newer models; 2 the rotation; 3 the buttons as bits.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.files import FileReader
from gantry_deploy.teleop.operator import Axis, OperatorInput, TeleopEvent
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import finite
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.yaml_file import read_yaml

BUILT_IN = Path(__file__).with_name("spacemice.yaml")
"""Models that come along; a person's own file has the same form."""
SYSTEM = Path("/sys/class/hidraw")
CHANNELS = ("x", "y", "z", "rx", "ry", "rz")
TRANSLATION, ROTATION, BUTTONS = 1, 2, 3
"""Numbers of reports."""
CLOSE, OPEN, HOLD = "close", "open", "hold"
ENGAGE = ("motion", "button")
"""Ways to take over: a moved cap or any gripper button, or the button that is called ``hold`` alone."""
_THREE, _SIX = struct.Struct("<3h"), struct.Struct("<6h")
_MOST_BUTTON_BYTES = 8


@dataclass(frozen=True)
class MouseLayout:
    """Meaning of the cap's axes and of the buttons."""

    motion: Mapping[str, str]
    """Axis of motion -> channel, with a sign before it."""
    buttons: Mapping[int, str] = field(default_factory=dict)
    """Number of a button -> ``close``, ``open``, ``hold``, or an event."""
    dead_zone: float = 0.1
    """Share of the cap's way that counts as none."""

    def __post_init__(self) -> None:
        finite("dead_zone", self.dead_zone, 0.0, 0.9, TeleopError)
        axes, meanings = [axis.value for axis in Axis], [CLOSE, OPEN, HOLD, *(event.value for event in TeleopEvent)]
        for axis, channel in self.motion.items():
            if axis not in axes:
                raise UnknownNameError("axis of motion", axis, axes)
            if channel.lstrip("+-") not in CHANNELS:
                raise UnknownNameError("channel of a SpaceMouse", channel, CHANNELS)
        for number, meaning in self.buttons.items():
            if meaning not in meanings:
                raise UnknownNameError(f"meaning of button {number}", meaning, meanings)


@dataclass(frozen=True)
class MouseModel:
    """Model, as USB names it."""

    vendor: int
    """Number of the maker."""
    product: int
    """Number of the model."""


@dataclass(frozen=True)
class MouseFile:
    """Contents of a file of models."""

    layout: MouseLayout
    """Of all of them."""
    models: Mapping[str, MouseModel]
    """By name."""
    full_scale: float = 350.0
    """Reading at the end of the cap's way."""


class SpaceMouseDevice:
    """SpaceMouse of this machine. One that was unplugged is looked for until it is back.

    Args:
        contract: Of the policy that is corrected.
        path: Device file; empty for the first known model.
        models: The person's own file of models; empty for those that come along.
        engage: ``motion`` or ``button``, see :data:`ENGAGE`.
        hold: Number of the button that is the dead-man switch, with ``engage=button``; -1 for the file's.
        linger_s: A cap at rest still counts as moved for this time, s, as the person's hand does between two motions.
        timeout_s: A moved cap that reports nothing for this time is at rest, s.

    Raises:
        TeleopError: If an option makes no sense.
    """

    name = "spacemouse"

    def __init__(
        self,
        contract: PolicyContract,
        path: str = "",
        models: str = "",
        engage: str = "motion",
        hold: int = -1,
        linger_s: float = 0.5,
        timeout_s: float = 0.3,
    ) -> None:
        if engage not in ENGAGE:
            raise UnknownNameError("way to take over", engage, ENGAGE)
        self._file, self._path = load_models(models), path
        self._cap = Cap(self._layout(hold), make_operator_map(contract).axes, self._file.full_scale)
        if engage == "button" and HOLD not in self._cap.layout.buttons.values():
            raise TeleopError("engage=button needs the number of the dead-man switch: hold=0 for the left button.")
        self._by_button = engage == "button"
        self._linger_s = finite("linger_s", linger_s, 0.0, 60.0, TeleopError)
        self._timeout_s = finite("timeout_s", timeout_s, 0.01, 60.0, TeleopError)
        self._lock = threading.Lock()
        self._present, self._heard_s, self._moved_s = False, -float("inf"), -float("inf")
        self._title = "not connected"
        self._reader = FileReader("spacemouse", self._open, self)

    def connect(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.connect`."""
        self._reader.start()

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.read`."""
        here_s = time.monotonic()
        with self._lock:
            cap, events = self._cap, self._cap.take_events()
            if not self._present:
                return OperatorInput(now_s - (here_s - self._heard_s), events=events)
            if here_s - self._heard_s > self._timeout_s:
                cap.rest()
            if cap.is_moved or cap.gripper:
                self._moved_s = here_s
            engaged = cap.held if self._by_button else here_s - self._moved_s <= self._linger_s
            return OperatorInput(now_s, engaged, cap.motion(), events=events)

    def describe(self) -> list[str]:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.describe`."""
        layout, cap = self._cap.layout, self._cap
        how = "the button 'hold' held" if self._by_button else "a moved cap or a gripper button"
        moves = ", ".join(f"{axis} {layout.motion[axis]}" for axis in cap.axes if axis in layout.motion)
        buttons = [f"button {number}: {meaning}" for number, meaning in layout.buttons.items()]
        return [self._title, f"{how}: the person moves the robot", f"cap: {moves}", *buttons]

    def close(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.close`."""
        self._reader.close()

    def opened(self) -> None:
        """See :meth:`gantry_deploy.teleop.files.FileListener.opened`."""
        with self._lock:
            self._cap.reset()
            self._present, self._heard_s, self._moved_s = True, time.monotonic(), -float("inf")

    def take(self, data: bytes) -> None:
        """See :meth:`gantry_deploy.teleop.files.FileListener.take`: one report, as raw HID devices give them."""
        with self._lock:
            self._heard_s = time.monotonic()
            self._cap.take(data)

    def lost(self, reason: str) -> None:
        """See :meth:`gantry_deploy.teleop.files.FileListener.lost`."""
        with self._lock:
            self._cap.reset()
            self._present = False

    def _layout(self, hold: int) -> MouseLayout:
        layout = self._file.layout
        return layout if hold < 0 else replace(layout, buttons={**layout.buttons, hold: HOLD})

    def _open(self) -> int:
        path, name = (self._path, self._path) if self._path else find_mouse(self._file.models)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            raise TeleopError(
                f"{path} ({name}) may not be read. Allow it with a udev rule: "
                'KERNEL=="hidraw*", ATTRS{idVendor}=="256f", MODE="0660", TAG+="uaccess".'
            ) from error
        except OSError as error:
            raise TeleopError(f"The SpaceMouse at {path} cannot be opened: {error.strerror}.") from error
        self._title = f"{name} at {path}" if name != path else path
        return fd


class Cap:
    """State of cap and buttons.

    Args:
        layout: Their meaning.
        axes: Axes of motion that the policy's kind of robot uses.
        full_scale: Reading at the end of the cap's way.
    """

    def __init__(self, layout: MouseLayout, axes: tuple[Axis, ...], full_scale: float) -> None:
        self.layout, self.axes = layout, axes
        self._full_scale = finite("full_scale", full_scale, 1.0, 32767.0, TeleopError)
        self._events: deque[TeleopEvent] = deque()
        self.reset()

    def reset(self) -> None:
        """Forget cap and buttons, not the events."""
        self._values: dict[str, int] = dict.fromkeys(CHANNELS, 0)
        self._bits = 0

    def rest(self) -> None:
        """Put the cap to its middle."""
        self._values = dict.fromkeys(CHANNELS, 0)

    def take(self, report: bytes) -> None:
        """Take a report.

        Raises:
            TeleopError: If a translation, rotation or state of buttons is not as long as it is.
        """
        kind, data = report[0], report[1:]
        if kind == TRANSLATION and len(data) == _SIX.size:
            self._values = dict(zip(CHANNELS, _SIX.unpack_from(data), strict=True))
        elif kind in (TRANSLATION, ROTATION) and len(data) == _THREE.size:
            names = CHANNELS[:3] if kind == TRANSLATION else CHANNELS[3:]
            self._values.update(zip(names, _THREE.unpack(data), strict=True))
        elif kind == BUTTONS and 1 <= len(data) <= _MOST_BUTTON_BYTES:
            self._press(int.from_bytes(data, "little"))
        elif kind in (TRANSLATION, ROTATION, BUTTONS):
            raise TeleopError(f"The SpaceMouse sent report {kind} with {len(data)} bytes, expected 6 or 12.")

    @property
    def is_moved(self) -> bool:
        """Whether a channel that moves something is beyond the dead zone."""
        return any(self.motion(with_gripper=False).values())

    @property
    def held(self) -> bool:
        """Whether the dead-man switch is pressed."""
        return self._is_pressed(HOLD)

    @property
    def gripper(self) -> float:
        """-1 closes, 1 opens."""
        return float(self._is_pressed(OPEN)) - float(self._is_pressed(CLOSE))

    def motion(self, *, with_gripper: bool = True) -> dict[Axis, float]:
        """Motion by axis in [-1, 1]."""
        channels = self.layout.motion
        found = {axis: self._share(channels[axis.value]) for axis in self.axes if axis.value in channels}
        return {**found, Axis.GRIPPER: self.gripper} if with_gripper and Axis.GRIPPER in self.axes else found

    def take_events(self) -> tuple[TeleopEvent, ...]:
        """Events since the last call."""
        found = tuple(self._events)
        self._events.clear()
        return found

    def _press(self, bits: int) -> None:
        pressed, self._bits = bits & ~self._bits, bits
        for number, meaning in self.layout.buttons.items():
            if pressed >> number & 1 and meaning not in (CLOSE, OPEN, HOLD):
                self._events.append(TeleopEvent(meaning))

    def _is_pressed(self, meaning: str) -> bool:
        return any(self._bits >> number & 1 for number, other in self.layout.buttons.items() if other == meaning)

    def _share(self, channel: str) -> float:
        value = self._values[channel.lstrip("+-")] / self._full_scale
        beyond = min(1.0, max(0.0, abs(value) - self.layout.dead_zone) / (1.0 - self.layout.dead_zone))
        return beyond if (value > 0.0) != channel.startswith("-") else -beyond


def load_models(path: str = "") -> MouseFile:
    """Models and layout of a file; empty for those that come along.

    Raises:
        GantryError: If the file makes no sense.
    """
    own = Path(path) if path else BUILT_IN
    return from_plain(MouseFile, read_yaml(own), str(own), TeleopError)


def find_mouse(models: Mapping[str, MouseModel], system: Path = SYSTEM) -> tuple[str, str]:
    """Device file and model's name of the first known device.

    Args:
        models: By name.
        system: Folder in which the kernel lists raw HID devices.

    Raises:
        TeleopError: If there is none, with the devices that are there.
    """
    names = {(model.vendor, model.product): name for name, model in models.items()}
    seen = []
    for folder in sorted(system.glob("hidraw*")):
        try:
            facts = dict(
                line.split("=", 1) for line in (folder / "device" / "uevent").read_text().splitlines() if "=" in line
            )
            _, vendor, product = (int(part, 16) for part in facts["HID_ID"].split(":"))
        except (OSError, ValueError, KeyError):
            continue
        if (vendor, product) in names:
            return f"/dev/{folder.name}", names[vendor, product]
        seen.append(f"{vendor:04x}:{product:04x} {facts.get('HID_NAME', '')}".strip())
    raise TeleopError(
        f"There is no SpaceMouse of a known model among {len(seen)} HID devices"
        + (f" ({'; '.join(seen[:8])})" if seen else "")
        + ". Plug one in, or name its file with path=/dev/hidrawN."
    )
