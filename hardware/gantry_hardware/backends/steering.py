"""Estimate of a steering angle that no sensor reports."""

from __future__ import annotations

import numpy as np


class SteeringEstimate:
    """Angle of a steering that was told where to go, at most as fast as it can turn.

    Args:
        rate_rad_s: Its largest speed.
    """

    def __init__(self, rate_rad_s: float) -> None:
        self._rate = rate_rad_s
        self._angle, self._target, self._since_s = 0.0, 0.0, 0.0

    def tell(self, target_rad: float, now_s: float) -> None:
        """It is told an angle."""
        self._angle, self._target, self._since_s = self.at(now_s), target_rad, now_s

    def at(self, now_s: float) -> float:
        """Its angle, rad."""
        reach = self._rate * max(0.0, now_s - self._since_s)
        return self._angle + float(np.clip(self._target - self._angle, -reach, reach))
