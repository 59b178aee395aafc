"""The way from where an arm is to where it is told to be, when commands begin or begin again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import finite

FloatArray = NDArray[np.float64]


class StartRamp:
    """Position commands that begin at the measured position.

    The first command, and the first one after a pause, is the measured position itself, wherever the target is; from
    there the commands approach the targets at a limited speed. Once they have caught up, targets pass unchanged.

    Args:
        speed_rad_s: Largest speed of a joint on the way, rad/s, of a sliding joint m/s.
        pause_s: Time without commands after which the next one is a first one.

    Raises:
        RobotError: If a number is out of range.
    """

    def __init__(self, speed_rad_s: float, pause_s: float) -> None:
        self._speed = finite("start_speed_rad_s", speed_rad_s, 1e-3, 100.0, RobotError)
        self._pause_s = finite("command_timeout_s", pause_s, 0.01, 60.0, RobotError)
        self._last: FloatArray | None = None
        self._last_s = 0.0
        self._ramping = False

    def restart(self) -> None:
        """Let the next command be a first one."""
        self._last = None

    def starts_anew(self, now_s: float) -> bool:
        """Whether a command at this time would be a first one, which needs the measured position."""
        return self._last is None or now_s - self._last_s > self._pause_s

    def limit(self, target_rad: FloatArray, measured_rad: FloatArray, now_s: float) -> FloatArray:
        """Position (n,) to command now.

        Args:
            target_rad: Shape (n,), where the joints are told to be.
            measured_rad: Shape (n,), where they are; used by a first command alone.
            now_s: On a clock that does not go back.
        """
        if self._last is None or self.starts_anew(now_s):
            self._ramping = True
            commanded = np.array(measured_rad, dtype=np.float64)
        elif self._ramping:
            reach = self._speed * max(0.0, now_s - self._last_s)
            commanded = self._last + np.clip(target_rad - self._last, -reach, reach)
            self._ramping = not np.array_equal(commanded, target_rad)
        else:
            commanded = np.array(target_rad, dtype=np.float64)
        self._last, self._last_s = commanded, now_s
        return commanded.copy()
