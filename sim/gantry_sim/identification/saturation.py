"""Torque limit and torque-speed line of one motor, from readings in which it gave less than was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from gantry_sim.identification.uncertainty import SMALL_SAMPLE

FloatArray = NDArray[np.float64]

MIN_ROWS = 12
"""Least number of readings in saturation."""
BEYOND_SIGMA, BEYOND_SHARE = 6.0, 0.05
"""A motor saturates where more is asked for than measured by this many deviations of noise and this share of it."""
REACHED_SHARE = 0.9
"""Share of the largest measured torque that readings in saturation reach."""
MIN_SPEED_SPREAD = 0.15
"""Least share by which the limit falls before a line is told from a constant."""


@dataclass(frozen=True)
class Saturation:
    """Limit of one motor's torque. A deviation of infinity stands for what was not seen."""

    limit_nm: float
    """Largest torque."""
    limit_deviation_nm: float
    """Standard deviation of it."""
    corner_rad_s: float = 0.0
    """Speed up to which there is full torque."""
    corner_deviation_rad_s: float = float("inf")
    """Standard deviation of it."""
    no_load_rad_s: float = 0.0
    """Speed at which no torque is left."""
    no_load_deviation_rad_s: float = float("inf")
    """Standard deviation of it."""

    @property
    def has_curve(self) -> bool:
        """Whether torque was seen to fall with speed."""
        return bool(np.isfinite(self.no_load_deviation_rad_s))


def saturation_of(asked_nm: FloatArray, measured_nm: FloatArray, speed_rad_s: FloatArray) -> Saturation | None:
    """Limit of one motor; None where it always gave what was asked for.

    Args:
        asked_nm: Shape (m,), torque by the gains in effect.
        measured_nm: Shape (m,).
        speed_rad_s: Shape (m,), of the joint, at the same times.
    """
    sign = np.sign(asked_nm)
    asked, given, speed = np.abs(asked_nm), sign * measured_nm, sign * speed_rad_s
    error = measured_nm - asked_nm
    noise = 1.4826 * float(np.median(np.abs(error - np.median(error)))) + 1e-9
    rows = asked - given > np.maximum(BEYOND_SIGMA * noise, BEYOND_SHARE * asked)
    if rows.sum() < MIN_ROWS:
        return None
    # A motor that gives less than it has given elsewhere at that speed is no motor at its limit.
    if np.quantile(given[rows], 0.9) < REACHED_SHARE * np.quantile(np.abs(measured_nm), 0.999):
        return None
    given, speed = given[rows], speed[rows]
    top = float(np.median(given[given >= np.quantile(given, 0.75)]))
    limit = Saturation(top, noise / np.sqrt(max(1, int(np.sum(given > top - 3.0 * noise)))))
    falls = np.quantile(given, 0.05) < (1.0 - MIN_SPEED_SPREAD) * top
    return (_line(given, speed, top, noise) or limit) if falls else limit


def _line(given_nm: FloatArray, speed_rad_s: FloatArray, top_nm: float, noise_nm: float) -> Saturation | None:
    """Limit, corner and end of the line through readings (m,), N m and rad/s; None where they are on none."""

    def residuals(values: FloatArray) -> FloatArray:
        limit, corner, width = values
        return (limit * np.clip((corner + width - speed_rad_s) / width, 0.0, 1.0) - given_nm) / noise_nm

    fastest = max(float(speed_rad_s.max()), 0.1)
    best = min(
        (
            least_squares(residuals, (top_nm, share * fastest, fastest), bounds=((1e-3, 0.0, 1e-2), np.inf))
            for share in (0.3, 0.6, 0.9)
        ),
        key=lambda fit: fit.cost,
    )
    scale = max(1.0, 2.0 * float(best.cost) / max(1, len(given_nm) - 3))
    normal = best.jac.T @ best.jac
    if np.linalg.cond(normal) > 1e14 or scale > 100.0:
        return None
    # The end of the line is the sum of corner and width.
    spread = np.linalg.inv(normal) * scale
    turn = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    deviations = SMALL_SAMPLE * np.sqrt(np.diag(turn @ spread @ turn.T))
    limit, corner, end = turn @ best.x
    return Saturation(limit, deviations[0], corner, deviations[1], end, deviations[2])
