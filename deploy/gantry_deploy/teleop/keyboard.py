"""Keyboard of the terminal as an operator's device; works over SSH, and needs neither a display nor a library.

A terminal tells of presses and repetitions, never of releases: a motion ends when its key has not come for a while.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.files import readable
from gantry_deploy.teleop.keys import KeyParser, KeyRepeat
from gantry_deploy.teleop.operator import Axis, OperatorInput, TeleopEvent
from gantry_deploy.teleop.terminal import CbreakTerminal
from gantry_hardware.files.bounds import finite

ESCAPE_S = 0.1
"""Time after which an escape that nothing follows is the key, and not the beginning of a sequence, s."""
EVENT_KEYS = {
    "s": TeleopEvent.SUCCESS,
    "f": TeleopEvent.FAILURE,
    "escape": TeleopEvent.FAILURE,
    "r": TeleopEvent.RERECORD,
    "n": TeleopEvent.START,
    "enter": TeleopEvent.START,
    "p": TeleopEvent.PAUSE,
    "t": TeleopEvent.TERMINATE,
    "v": TeleopEvent.VETO,
    "q": TeleopEvent.QUIT,
    "x": TeleopEvent.ESTOP,
    "backspace": TeleopEvent.ESTOP,
}
"""Key -> event."""
TOGGLE = "space"
"""Key that takes over and gives back."""
MOTION_KEYS: dict[str, tuple[tuple[Axis, float], ...]] = {
    "up": ((Axis.X, 1.0), (Axis.THROTTLE, 1.0)),
    "down": ((Axis.X, -1.0), (Axis.THROTTLE, -1.0)),
    "left": ((Axis.Y, 1.0), (Axis.STEER, 1.0)),
    "right": ((Axis.Y, -1.0), (Axis.STEER, -1.0)),
    "i": ((Axis.Z, 1.0),),
    "k": ((Axis.Z, -1.0),),
    "page_up": ((Axis.Z, 1.0),),
    "page_down": ((Axis.Z, -1.0),),
    "j": ((Axis.YAW, 1.0),),
    "l": ((Axis.YAW, -1.0),),
    "u": ((Axis.PITCH, -1.0),),
    "m": ((Axis.PITCH, 1.0),),
    ",": ((Axis.ROLL, -1.0),),
    ".": ((Axis.ROLL, 1.0),),
    "o": ((Axis.GRIPPER, 1.0),),
    "c": ((Axis.GRIPPER, -1.0),),
}
"""Key -> axes and directions; a policy's kind of robot uses one of them at most."""
_LETS_GO = (*(set(TeleopEvent) - {TeleopEvent.START, TeleopEvent.VETO, TeleopEvent.INTERVENTION}),)
_SIDES = {
    Axis.X: ("back", "ahead"),
    Axis.Y: ("right", "left"),
    Axis.Z: ("down", "up"),
    Axis.ROLL: ("roll to the left", "roll to the right"),
    Axis.PITCH: ("nose up", "nose down"),
    Axis.YAW: ("turn right", "turn left"),
    Axis.GRIPPER: ("close", "open"),
    Axis.THROTTLE: ("brake", "accelerate"),
    Axis.STEER: ("right", "left"),
}


class Keyboard:
    """Motion, taking over, and events of keys. It knows no terminal: :meth:`press` is told of each key.

    Args:
        axes: Axes that the policy's kind of robot uses.
        hold_s: Motion lasts for this time after each repetition of its key, s.
        first_hold_s: The same after the first press, long enough for the first repetition to come, s.
        timeout_s: Without any key for this time the person has let go, s.
        share: Size of a motion, in (0, 1].
    """

    def __init__(
        self,
        axes: tuple[Axis, ...],
        hold_s: float = 0.25,
        first_hold_s: float = 0.6,
        timeout_s: float = 10.0,
        share: float = 1.0,
    ) -> None:
        self._repeat = KeyRepeat(
            finite("hold_s", hold_s, 0.02, 5.0, TeleopError),
            finite("first_hold_s", first_hold_s, 0.02, 5.0, TeleopError),
        )
        self.timeout_s = finite("timeout_s", timeout_s, 0.1, 3600.0, TeleopError)
        self._share = finite("share", share, 0.01, 1.0, TeleopError)
        self.axes = axes
        self.engaged = False
        """Whether the person has taken over."""
        self.heard_s = -float("inf")
        """Time of the last key, monotonic."""
        self._until: dict[Axis, tuple[float, float]] = {}
        self._events: deque[TeleopEvent] = deque()

    def press(self, key: str, now_s: float) -> None:
        """Take a key.

        Args:
            key: Name as of :class:`gantry_deploy.teleop.keys.KeyParser`.
            now_s: Monotonic time.
        """
        self.expire(now_s)
        self.heard_s = now_s
        repeat = self._repeat.is_repeat(key, now_s)
        if key in MOTION_KEYS:
            lasts_s = self._repeat.hold_s if repeat else self._repeat.first_hold_s
            for axis, side in MOTION_KEYS[key]:
                if self.engaged and axis in self.axes:
                    self._until[axis] = (side * self._share, now_s + lasts_s)
        elif repeat:
            return  # A key that is held is one press.
        elif key == TOGGLE:
            self._until.clear()
            self.engaged = not self.engaged
        elif key in EVENT_KEYS:
            event = EVENT_KEYS[key]
            self._events.append(event)
            if event in _LETS_GO:
                self.release()

    def release(self) -> None:
        """Let go."""
        self.engaged = False
        self._until.clear()

    def expire(self, now_s: float) -> None:
        """Let go if no key has come for too long."""
        if self.engaged and now_s - self.heard_s > self.timeout_s:
            self.release()

    def motion(self, now_s: float) -> dict[Axis, float]:
        """Motion by axis at a monotonic time, in [-1, 1]; all axes that are used."""
        found = {axis: 0.0 for axis in self.axes}
        found.update({axis: value for axis, (value, until_s) in self._until.items() if now_s < until_s})
        return found

    def take_events(self) -> tuple[TeleopEvent, ...]:
        """Events since the last call."""
        found = tuple(self._events)
        self._events.clear()
        return found

    def describe(self) -> list[str]:
        """Lines with all keys that do something."""
        lines = ["Space takes over and gives back; Ctrl-C ends. Motion, once taken over:"]
        for axis in self.axes:
            keys = [
                "/".join(_shown(key) for key, parts in MOTION_KEYS.items() if (axis, side) in parts)
                for side in (1.0, -1.0)
            ]
            down, up = _SIDES[axis]
            lines.append(f"  {axis.value:<8} {keys[0]} {up}, {keys[1]} {down}")
        events = list(dict.fromkeys(EVENT_KEYS.values()))
        for event in events:
            keys = "/".join(_shown(key) for key, other in EVENT_KEYS.items() if other is event)
            lines.append(f"  {keys:<12} {event.value}")
        lines.append(f"Without any key for {self.timeout_s:g} s the policy gets the robot back.")
        return lines


class KeyboardDevice:
    """Keyboard of the terminal on standard input.

    Args:
        contract: Of the policy that is corrected.
        hold_s: See :class:`Keyboard`, as the others.
        first_hold_s: The same.
        timeout_s: The same.
        share: The same.

    Raises:
        TeleopError: If a number makes no sense.
    """

    name = "keyboard"

    def __init__(
        self,
        contract: PolicyContract,
        hold_s: float = 0.25,
        first_hold_s: float = 0.6,
        timeout_s: float = 10.0,
        share: float = 1.0,
    ) -> None:
        self._keys = Keyboard(make_operator_map(contract).axes, hold_s, first_hold_s, timeout_s, share)
        self._lock = threading.Lock()
        self._terminal: CbreakTerminal | None = None
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None
        self._start_s = 0.0

    def connect(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.connect`."""
        if self._thread is not None:
            return
        terminal = CbreakTerminal(_descriptor())
        terminal.open()
        self._terminal, self._wake = terminal, os.pipe()
        self._start_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(terminal.fd, self._wake[0]), name="keys", daemon=True)
        self._thread.start()

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.read`."""
        here_s = time.monotonic()
        with self._lock:
            keys = self._keys
            keys.expire(here_s)
            age_s = here_s - max(keys.heard_s, self._start_s)
            return OperatorInput(now_s - age_s, keys.engaged, keys.motion(here_s), events=keys.take_events())

    def release(self) -> None:
        """See :class:`gantry_deploy.teleop.operator.TogglingDevice`."""
        with self._lock:
            self._keys.release()

    def describe(self) -> list[str]:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.describe`."""
        return self._keys.describe()

    def close(self) -> None:
        """Give the terminal its settings back."""
        if self._wake is not None:
            os.write(self._wake[1], b"\0")
        if self._thread is not None:
            self._thread.join(1.0)
        if self._terminal is not None:
            self._terminal.close()
        for fd in self._wake or ():
            os.close(fd)
        self._terminal = self._thread = self._wake = None

    def _run(self, fd: int, wake: int) -> None:
        parser = KeyParser()
        try:
            while True:
                ready = readable((fd, wake), ESCAPE_S if parser.waits else None)
                if wake in ready:
                    return
                data = os.read(fd, 1024) if ready else b""
                if ready and not data:
                    return
                names = parser.feed(data) if data else parser.flush()
                with self._lock:
                    for name in names:
                        self._keys.press(name, time.monotonic())
        except OSError:
            return  # The terminal is gone.
        finally:
            with self._lock:
                self._keys.release()


def _descriptor() -> int:
    """File descriptor of standard input, -1 without one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return sys.stdin.fileno()
    return -1


def _shown(key: str) -> str:
    return key.replace("_", " ").title() if len(key) > 1 else key
