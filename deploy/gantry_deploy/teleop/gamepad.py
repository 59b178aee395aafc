"""Gamepad on the Linux joystick API: ``/dev/input/js*``, events of eight bytes, no library.

``python -m gantry_deploy.teleop.gamepad [PATH]`` shows the numbers of axes and buttons as they are moved.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.files import FileReader
from gantry_deploy.teleop.operator import OperatorInput, TeleopEvent
from gantry_deploy.teleop.pads import Pad, choose_map, load_maps
from gantry_hardware.errors import GantryError
from gantry_hardware.files.bounds import finite
from gantry_hardware.files.text import printable

FOLDER = Path("/dev/input")
EVENT = struct.Struct("<IhBB")
"""Time in ms, value, type, number: ``js_event`` of ``linux/joystick.h``."""
BUTTON, AXIS, INITIAL = 0x01, 0x02, 0x80
"""Types of events; INITIAL is added for the state at the beginning."""
FULL = 32767.0
"""Value of an axis at its end."""
_NAME_BYTES = 128
_GET_AXES, _GET_BUTTONS, _GET_NAME = 0x80016A11, 0x80016A12, 0x80006A13 + (_NAME_BYTES << 16)


class GamepadDevice:
    """Gamepad of this machine. A pad that was unplugged is looked for until it is back.

    Args:
        contract: Of the policy that is corrected.
        path: Device file; empty for the first one whose map is known.
        map: Name of the map; empty to choose by the device's name.
        maps: The person's own file of maps.
        dead_zone: Share of a stick's way that counts as none; None for the map's.
        silence_s: A wireless pad that moves and presses nothing for this time counts as let go, s; 0 for never.

    Raises:
        TeleopError: If an option makes no sense.
    """

    name = "gamepad"

    def __init__(
        self,
        contract: PolicyContract,
        path: str = "",
        map: str = "",
        maps: str = "",
        dead_zone: float | None = None,
        silence_s: float = 0.0,
    ) -> None:
        self._path, self._wanted, self._maps = path, map, load_maps(maps)
        if dead_zone is not None:
            for key, pad in self._maps.items():
                assert pad.layout is not None
                self._maps[key] = replace(pad, layout=replace(pad.layout, dead_zone=dead_zone))
        self._silence_s = finite("silence_s", silence_s, 0.0, 3600.0, TeleopError)
        self._axes = make_operator_map(contract).axes
        self._lock = threading.Lock()
        self._events: deque[TeleopEvent] = deque()
        self._pad: Pad | None = None
        self._title = ""
        self._present, self._heard_s = False, -float("inf")
        self._rest = b""
        self._reader = FileReader("gamepad", self._open, self)

    def connect(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.connect`."""
        self._reader.start()

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.read`."""
        here_s = time.monotonic()
        with self._lock:
            events = tuple(self._events)
            self._events.clear()
            pad, silent_s = self._pad, here_s - self._heard_s
            if pad is None or not self._present:
                return OperatorInput(now_s - silent_s, events=events)
            if 0.0 < self._silence_s < silent_s:
                pad.let_go()
            return OperatorInput(now_s, pad.engaged, pad.motion(), events=events)

    def describe(self) -> list[str]:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.describe`."""
        with self._lock:
            if self._pad is None:
                return ["not connected"]
            return [self._title, *self._pad.describe()]

    def close(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.close`."""
        self._reader.close()

    def opened(self) -> None:
        """See :meth:`gantry_deploy.teleop.files.FileListener.opened`."""
        with self._lock:
            self._rest, self._present, self._heard_s = b"", True, time.monotonic()
            if self._pad is not None:
                self._pad.reset()

    def take(self, data: bytes) -> None:
        """See :meth:`gantry_deploy.teleop.files.FileListener.take`."""
        with self._lock:
            data = self._rest + data
            whole = len(data) - len(data) % EVENT.size
            self._rest, self._heard_s = data[whole:], time.monotonic()
            for _, value, kind, number in EVENT.iter_unpack(data[:whole]):
                self._take(value, kind, number)

    def lost(self, reason: str) -> None:
        """See :meth:`gantry_deploy.teleop.files.FileListener.lost`."""
        with self._lock:
            self._present = False
            if self._pad is not None:
                self._pad.reset()

    def _take(self, value: int, kind: int, number: int) -> None:
        assert self._pad is not None
        initial, kind_of = bool(kind & INITIAL), kind & ~INITIAL
        if kind_of == BUTTON:
            self._pad.set_button(number, value != 0, initial=initial)
        elif kind_of == AXIS:
            self._pad.set_axis(number, value / FULL, initial=initial)
        else:
            raise TeleopError(f"The gamepad sent an event of type {kind:#x}, expected {BUTTON:#x} or {AXIS:#x}.")

    def _open(self) -> int:
        problem: Exception | None = None
        for path in [self._path] if self._path else _joysticks():
            try:
                return self._open_one(path)
            except (OSError, GantryError) as error:
                problem = problem or error
        if isinstance(problem, PermissionError):
            raise TeleopError(f"{problem.filename} may not be read; add the user to the group 'input'.") from problem
        if isinstance(problem, OSError):
            raise TeleopError(f"The gamepad at {problem.filename} cannot be opened: {problem.strerror}.") from problem
        if problem is not None:
            raise problem
        raise TeleopError(f"There is no gamepad: no {FOLDER}/js*. Plug one in, or choose another device.")

    def _open_one(self, path: str) -> int:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            name, counts = device_facts(fd)
            chosen = choose_map(self._maps, self._wanted, name, counts, path)
            with self._lock:
                if self._pad is None or self._pad.map is not chosen:
                    self._pad = Pad(chosen, self._axes, self._events)
                key = next(key for key, other in self._maps.items() if other is chosen)
                self._title = f"'{name or path}' by the map '{key}'"
        except BaseException:
            os.close(fd)
            raise
        return fd


def device_facts(fd: int) -> tuple[str, tuple[int, int]]:
    """Name of a joystick, and its numbers of axes and buttons; empty and zeros of a file that is none."""
    name, axes, buttons = bytearray(_NAME_BYTES), bytearray(1), bytearray(1)
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, _GET_NAME, name)
        fcntl.ioctl(fd, _GET_AXES, axes)
        fcntl.ioctl(fd, _GET_BUTTONS, buttons)
    return printable(name.split(b"\0")[0].decode(errors="replace")), (axes[0], buttons[0])


def events_of(fd: int) -> Iterator[str]:
    """Lines about a joystick's events, for a person that writes a map; ends with the device."""
    while data := os.read(fd, EVENT.size):
        if len(data) == EVENT.size:
            _, value, kind, number = EVENT.unpack(data)
            yield f"{'axis' if kind & AXIS else 'button'} {number:<3} {value / FULL if kind & AXIS else value:+.2f}"


def _joysticks() -> list[str]:
    return [str(path) for path in sorted(FOLDER.glob("js*"))]


def _show(arguments: list[str]) -> int:
    paths = arguments or _joysticks()[:1]
    if not paths:
        print(f"There is no gamepad: no {FOLDER}/js*.", file=sys.stderr)
        return 2
    try:
        fd = os.open(paths[0], os.O_RDONLY)
        name, counts = device_facts(fd)
        print(f"'{name}': {counts[0]} axes, {counts[1]} buttons. Move each; Ctrl-C ends.")
        for line in events_of(fd):
            print(line, flush=True)
    except OSError as error:
        print(f"{paths[0]}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(_show(sys.argv[1:]))
