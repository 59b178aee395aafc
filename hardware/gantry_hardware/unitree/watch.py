"""Faults that a Unitree robot's states show, beside those that any robot's state shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.model.capabilities import RobotFault
from gantry_hardware.unitree.codec import LOST_BITS, LowState
from gantry_hardware.unitree.remote import STOP


@dataclass(frozen=True)
class WatchLimits:
    """Limits of what is watched."""

    max_motor_c: float = 85.0
    """Temperature of a motor's winding above which the robot is damped."""
    min_battery_percent: float = 10.0
    """Charge below which the robot is damped; of robots that tell it."""
    frozen_after_s: float = 0.08
    """Time for which not one bit of IMU and joints changes while the clock goes on: 40 states at 500 Hz, which no sound
    sensor shows."""
    max_crc_errors: int = 5
    """States in a row with a wrong checksum; none of them is used."""
    max_back_ms: int = 100
    """By which a state may be older than the newest one: those are left out, older ones mean a clock that went back."""
    max_lost: int = 10
    """Messages that a motor may miss within 0.1 s."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, "Option ", RobotError)


_RANGES = {
    "max_motor_c": Range(30.0, 150.0),
    "min_battery_percent": Range(0.0, 100.0),
    "frozen_after_s": Range(0.02, 10.0),
    "max_crc_errors": Range(1, 1000),
    "max_back_ms": Range(1, 10_000),
    "max_lost": Range(1, 1_000_000),
}
_LOST_WINDOW_S = 0.1
CLOCK_BACK = "clock_back"
"""Kind of the fault of a clock that went back."""


class StateWatch:
    """Looks at every state and keeps the first fault until it is reset.

    Args:
        joints: Names, in the order of the states.
        limits: What is allowed.
    """

    def __init__(self, joints: tuple[str, ...], limits: WatchLimits) -> None:
        self._joints, self._limits = joints, limits
        self.fault: RobotFault | None = None
        """The first fault since the last reset."""
        self._crc_errors = 0
        self._body: tuple[object, ...] | None = None
        self._changed_s = self._window_s = 0.0
        self._lost_before: np.ndarray | None = None
        self._machine: int | None = None
        self._checks: tuple[Callable[[LowState, float], RobotFault | None], ...] = (
            self._temperature,
            self._battery,
            self._motors,
            self._frozen,
            self._machine_kind,
        )

    def reset(self) -> None:
        """Forget the fault and what led to it."""
        self.fault = None
        self._crc_errors = 0
        self._body = self._lost_before = self._machine = None

    def note(self, kind: str, text: str) -> None:
        """Keep a fault, unless there is one already."""
        if self.fault is None:
            self.fault = RobotFault(kind, text)

    def wrong_crc(self) -> None:
        """A state with a wrong checksum came in, and is not used."""
        self._crc_errors += 1
        if self._crc_errors > self._limits.max_crc_errors:
            self.note(
                "state_crc",
                f"{self._crc_errors} states in a row have a wrong checksum, allowed are "
                f"{self._limits.max_crc_errors} (max_crc_errors): other firmware, or a damaged line.",
            )

    def went_back(self, ahead_ms: int) -> bool:
        """Whether a state is older than the newest one by so much that the clock must have gone back."""
        if ahead_ms >= -self._limits.max_back_ms:
            return False
        self.note(
            CLOCK_BACK,
            f"The robot's clock went back by {-ahead_ms} ms, allowed are {self._limits.max_back_ms} ms: "
            "its computer restarted, or a cache repeats old states.",
        )
        return True

    def look(self, state: LowState, robot_s: float) -> None:
        """Look at a state with a right checksum that is newer than all before.

        Args:
            state: The state.
            robot_s: Its time on the robot's clock.
        """
        self._crc_errors = 0
        for check in self._checks:
            found = check(state, robot_s)
            if found is not None and self.fault is None:
                self.fault = found

    def pressed_stop(self) -> None:
        """The operator pressed the buttons that damp."""
        self.note("remote_stop", f"The operator pressed {'+'.join(STOP)} on the remote controller.")

    def _temperature(self, state: LowState, robot_s: float) -> RobotFault | None:
        hottest = int(np.argmax(state.temperature_c))
        if state.temperature_c[hottest] <= self._limits.max_motor_c:
            return None
        text = (
            f"The motor of '{self._joints[hottest]}' has {state.temperature_c[hottest]:g} C, allowed are "
            f"{self._limits.max_motor_c:g} C (max_motor_c)."
        )
        return RobotFault("motor_hot", text)

    def _battery(self, state: LowState, robot_s: float) -> RobotFault | None:
        if not state.battery_percent < self._limits.min_battery_percent:
            return None
        text = (
            f"The battery has {state.battery_percent:g} % left, needed are {self._limits.min_battery_percent:g} % "
            "(min_battery_percent)."
        )
        return RobotFault("battery_low", text)

    def _motors(self, state: LowState, robot_s: float) -> RobotFault | None:
        bad = np.flatnonzero(state.errors & LOST_BITS)
        if bad.size:
            return RobotFault("motor_lost", f"The motor of '{self._joints[bad[0]]}' does not answer.")
        if self._lost_before is None:
            self._lost_before, self._window_s = state.lost, robot_s
        grown = (state.lost - self._lost_before) % (1 << 32)
        worst = int(np.argmax(grown))
        if grown[worst] > self._limits.max_lost:
            text = (
                f"The motor of '{self._joints[worst]}' missed {grown[worst]} messages within "
                f"{1e3 * _LOST_WINDOW_S:g} ms, allowed are {self._limits.max_lost}."
            )
            return RobotFault("motor_lost", text)
        if robot_s - self._window_s >= _LOST_WINDOW_S:
            self._lost_before, self._window_s = state.lost, robot_s
        return None

    def _frozen(self, state: LowState, robot_s: float) -> RobotFault | None:
        if state.body != self._body:
            self._body, self._changed_s = state.body, robot_s
            return None
        still_s = robot_s - self._changed_s
        if still_s <= self._limits.frozen_after_s:
            return None
        text = (
            f"IMU and joints have not changed by a bit for {1e3 * still_s:.0f} ms while the robot's clock went on, "
            f"allowed are {1e3 * self._limits.frozen_after_s:g} ms (frozen_after_s)."
        )
        return RobotFault("state_frozen", text)

    def _machine_kind(self, state: LowState, robot_s: float) -> RobotFault | None:
        if self._machine is None:
            self._machine = state.mode_machine
        if state.mode_machine == self._machine:
            return None
        text = f"The robot's mode_machine changed from {self._machine} to {state.mode_machine}."
        return RobotFault("mode_machine", text)
