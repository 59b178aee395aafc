"""A speed set-point to the pedals of a car that takes forces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PedalGains:
    """Accelerations of a whole pedal, and gain on the difference between them and the resulting acceleration."""

    drive_m_s2: float
    """Acceleration of a pedal of 1."""
    brake_m_s2: float
    """Deceleration of a pedal of -1."""
    integral: float = 0.3
    """Share of what the last set-point was missed by that is added to what is asked for, each decision."""
    integral_limit_m_s2: float = 1.5
    """The sum of these is no larger."""


HOLD_M_S = 0.1
"""A car that is told to stand and is slower than this is left alone: MetaDrive's car stands still without a pedal, and
trembles under its brake."""


class SpeedServo:
    """Proportional and integral control of the speed, in discrete time.

    A set-point is the speed that shall be reached a decision later, so the acceleration asked for is the difference
    over the decision's length: the gain with which a car that does what its pedals say arrives in one step. The
    integral is of what earlier set-points were missed by, not of the difference now, which is there on purpose. It
    starts over when the foot changes the pedal: engine and brakes are wrong by different amounts.

    Args:
        gains: Of the car.
        dt_s: Length of a decision.
    """

    def __init__(self, gains: PedalGains, dt_s: float) -> None:
        self._gains, self._dt_s = gains, dt_s
        self.reset()

    def reset(self) -> None:
        """A new car, or a new episode."""
        self._told_m_s: float | None = None
        self._more_m_s2 = 0.0
        self._brakes = False
        self._ended = False

    def __call__(self, target_m_s: float, speed_m_s: float) -> float:
        """The pedal, in [-1, 1], brake negative.

        Args:
            target_m_s: Speed set-point.
            speed_m_s: Measured.
        """
        gains = self._gains
        if target_m_s <= 0.0 and abs(speed_m_s) < HOLD_M_S:
            self.reset()
            return 0.0
        # A pedal that was at its end says nothing about the gains.
        if self._told_m_s is not None and not self._ended:
            missed = (self._told_m_s - speed_m_s) / self._dt_s
            limit = gains.integral_limit_m_s2
            self._more_m_s2 = min(limit, max(-limit, self._more_m_s2 + gains.integral * missed))
        asked = (target_m_s - speed_m_s) / self._dt_s
        if (asked < 0.0) != self._brakes:
            self._brakes, self._more_m_s2 = asked < 0.0, 0.0
        total = asked + self._more_m_s2
        pedal = total / (gains.drive_m_s2 if total >= 0.0 else gains.brake_m_s2)
        self._ended, self._told_m_s = abs(pedal) >= 1.0, target_m_s
        return min(1.0, max(-1.0, pedal))
