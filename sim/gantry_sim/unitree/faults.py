"""Faults of a fake robot that can be switched while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.unitree.remote import BUTTONS, remote_bytes

HISTORY_MS = 4000
"""Time that ``replay`` can reach back."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "delay": {"ms": 5.0},
    "drop": {"share": 0.02},
    "duplicate": {"share": 0.1},
    "silence": {},
    "repeat": {},
    "freeze": {},
    "burst": {"ms": 200.0},
    "replay": {"ms": 1000.0},
    "crc": {"share": 1.0},
    "hot": {"joint": "", "c": 95.0},
    "battery": {"percent": 5.0},
    "upside_down": {},
    "joint": {"joint": "", "rad": 0.5},
    "buttons": {"names": "L2+B"},
    "sticks": {"forward": 0.0, "left": 0.0, "turn": 0.0},
    "lost": {"joint": ""},
    "clock_back": {"ms": 5000.0},
    "mode_machine": {"value": 9.0},
}
"""Every fault with its settings. ``for_ms`` ends any of them by itself."""


@dataclass(frozen=True)
class Reading:
    """Contents of one state, which faults change."""

    tick: int
    quat_wxyz: np.ndarray
    gyro_rad_s: np.ndarray
    acc_m_s2: np.ndarray
    pos_rad: np.ndarray
    vel_rad_s: np.ndarray
    effort_nm: np.ndarray
    foot_force: tuple[int, ...]
    temperature_c: np.ndarray
    lost: np.ndarray
    battery_percent: int
    remote: bytes
    mode_machine: int


@dataclass
class FaultBox:
    """The faults that are on, and what they do to contents and delivery of the states.

    Args:
        spec: The robot, for the joints' names.
        rng: Draws what is dropped or doubled.
    """

    spec: RobotSpec
    rng: np.random.Generator
    active: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fault to its settings."""
    _ends: dict[str, int] = field(default_factory=dict)
    _queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    _history: deque[bytes] = field(default_factory=lambda: deque(maxlen=HISTORY_MS // 2))
    _frozen: Reading | None = None
    _cached: bytes | None = None
    _replayed: deque[bytes] = field(default_factory=deque)
    _clock_offset: int = 0
    _lost_since_ms: int = 0
    _next_burst_ms: float = 0.0

    def switch_on(self, name: str, settings: dict[str, str], now_ms: int) -> None:
        """Switch a fault on, or on again with other settings.

        Raises:
            UnknownNameError: If there is no such fault, setting, joint or button.
            GantryError: If a value is no number.
        """
        if name not in DEFAULTS:
            raise UnknownNameError("fault", name, DEFAULTS)
        values = dict(DEFAULTS[name])
        for key, text in settings.items():
            if key not in (*values, "for_ms"):
                raise UnknownNameError(f"setting of fault '{name}'", key, (*values, "for_ms"))
            values[key] = text if isinstance(values.get(key), str) else _number(key, text)
        if "joint" in values:
            values["joint"] = self.spec.joint_index(values["joint"] or self.spec.joint_names[-1])
        if "names" in values:
            values["names"] = tuple(values["names"].split("+"))
            for button in values["names"]:
                if button not in BUTTONS:
                    raise UnknownNameError("button", button, BUTTONS)
        for_ms = values.pop("for_ms", None)
        self.active[name] = values
        self._ends.pop(name, None)
        if for_ms is not None:
            self._ends[name] = now_ms + int(for_ms)
        self._lost_since_ms = now_ms if name == "lost" else self._lost_since_ms
        if name == "clock_back":
            self._clock_offset -= int(values["ms"])
        if name == "replay":
            self._replayed = deque(list(self._history)[-int(values["ms"]) // 2 :])
        self._next_burst_ms = float(now_ms)

    def clear(self) -> None:
        """Switch every fault off; a clock that went back stays there."""
        self.active.clear()
        self._ends.clear()
        self._frozen = self._cached = None
        self._replayed.clear()

    def expire(self, now_ms: int) -> None:
        """Switch off what has lasted long enough."""
        for name in [name for name, end_ms in self._ends.items() if now_ms >= end_ms]:
            self.active.pop(name, None)
            del self._ends[name]
            self._frozen = None if name == "freeze" else self._frozen
            self._cached = None if name == "repeat" else self._cached

    def contents(self, reading: Reading) -> Reading:
        """The contents of a state as it will be told."""
        values: dict[str, Any] = dict(vars(reading))
        values["tick"] = (reading.tick + self._clock_offset) % (1 << 32)
        for name, change in self._CHANGES.items():
            if name in self.active:
                values.update(change(self, values, self.active[name]))
        told = Reading(**values)
        if "freeze" not in self.active:
            return told
        self._frozen = self._frozen or told
        return replace(self._frozen, tick=told.tick)

    def delivered(self, data: bytes, now_ms: float) -> list[bytes]:
        """The messages that leave the robot now, of those that were made so far."""
        if "repeat" in self.active:
            self._cached = self._cached or data
            data = self._cached
        self._history.append(data)
        if "replay" in self.active:
            data = self._replayed[0] if self._replayed else data
            self._replayed.rotate(-1)
        settings = self.active.get("drop")
        if "silence" not in self.active and not (settings and self.rng.random() < settings["share"]):
            self._queue.append((now_ms + self.active.get("delay", {"ms": 0.0})["ms"], data))
        if (settings := self.active.get("duplicate")) and self._queue and self.rng.random() < settings["share"]:
            self._queue.append(self._queue[-1])
        if (settings := self.active.get("burst")) is not None:
            if now_ms < self._next_burst_ms:
                return []
            self._next_burst_ms = now_ms + settings["ms"]
        due = []
        while self._queue and self._queue[0][0] <= now_ms:
            due.append(self._queue.popleft()[1])
        return due

    def spoils_crc(self) -> bool:
        """Whether the next state gets a wrong checksum."""
        settings = self.active.get("crc")
        return settings is not None and self.rng.random() < settings["share"]

    def _hot(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        return {"temperature_c": _replaced(values["temperature_c"], settings["joint"], settings["c"])}

    def _joint(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        beyond = self.spec.array("upper_rad")[settings["joint"]] + settings["rad"]
        return {"pos_rad": _replaced(values["pos_rad"], settings["joint"], beyond)}

    def _lost_motor(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        lost = 1 + (values["tick"] - self._clock_offset - self._lost_since_ms) // 2
        return {"lost": _replaced(values["lost"], settings["joint"], lost)}

    def _upside_down(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        """The IMU as if the base were turned by half a turn about its x axis."""
        w, x, y, z = values["quat_wxyz"]
        turn = np.array([1.0, -1.0, -1.0])
        return {
            "quat_wxyz": np.array([-x, w, z, -y]),
            "gyro_rad_s": turn * values["gyro_rad_s"],
            "acc_m_s2": turn * values["acc_m_s2"],
        }

    def _battery(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        return {"battery_percent": int(settings["percent"])}

    def _buttons(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        return {"remote": remote_bytes(settings["names"])}

    def _sticks(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        return {"remote": remote_bytes((), (settings["forward"], settings["left"], settings["turn"]))}

    def _machine(self, values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        return {"mode_machine": int(settings["value"])}

    _CHANGES: dict[str, Callable[[FaultBox, dict[str, Any], dict[str, Any]], dict[str, Any]]] = field(
        default_factory=lambda: {
            "hot": FaultBox._hot,
            "joint": FaultBox._joint,
            "lost": FaultBox._lost_motor,
            "upside_down": FaultBox._upside_down,
            "battery": FaultBox._battery,
            "sticks": FaultBox._sticks,
            "buttons": FaultBox._buttons,
            "mode_machine": FaultBox._machine,
        },
        init=False,
        repr=False,
    )


def _replaced(values: np.ndarray, index: int, value: float) -> np.ndarray:
    values = values.copy()
    values[index] = value
    return values


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise GantryError(f"Setting '{key}' is '{text}', expected a number.") from error
