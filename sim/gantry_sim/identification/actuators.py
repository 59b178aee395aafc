"""Motors of a robot that moves freely: its torques against those that commands and readings ask for.

Torque is a sum of two products, of the position gain and the distance to the target, and of the velocity gain and the
difference of speeds. Their shares follow from a regression in which the noise of the readings is allowed for, at the
delay that fits best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_sim.identification.motion_log import DAMPING, EFFORT, POS, STIFFNESS, VEL, MotionLog
from gantry_sim.identification.saturation import Saturation, saturation_of
from gantry_sim.identification.uncertainty import SMALL_SAMPLE, noise_level

FloatArray = NDArray[np.float64]

MIN_RATE_HZ = 100.0
"""Least rate of readings; torques follow commands within milliseconds."""
MAX_DELAY_S = 0.08
"""Longest delay that is looked for."""
MAX_AGE_S = 0.008
"""Greatest age of torque readings beyond that of positions."""
COARSE_ROWS = 3000
"""Readings that the search for the delay looks at."""
BLOCK_S = 1.0
"""Time within which residuals may hang together."""
MIN_FREE = 200
"""Least number of readings without saturation."""
EDGE = 0.6
"""Half width, in times between readings, of the interval of a delay that lies between two of them."""


@dataclass(frozen=True)
class ActuatorFit:
    """Motors of n joints."""

    stiffness_share: FloatArray
    """Shape (n,)."""
    damping_share: FloatArray
    """Shape (n,)."""
    deviations: FloatArray
    """Shape (n, 2), standard deviations of both shares."""
    delay_s: float
    """Time from a command to its effect."""
    delay_deviation_s: float
    """Standard deviation of it."""
    saturation: list[Saturation | None]
    """Limits of n motors; None where none was reached."""
    asked_nm: FloatArray
    """Shape (T, n), torques that commands and readings ask for at the times of the readings."""
    largest_nm: FloatArray
    """Shape (n,), largest torque that was measured."""
    fastest_rad_s: FloatArray
    """Shape (n,), largest speed that was measured."""


def fit_actuators(log: MotionLog) -> ActuatorFit:
    """Fit the motors of all joints.

    Raises:
        GantryError: If readings come too seldom.
    """
    if log.rate_hz < MIN_RATE_HZ:
        raise GantryError(
            f"readings come {log.rate_hz:.0f} times per second, expected at least {MIN_RATE_HZ:g}: torques follow a "
            "command within milliseconds"
        )
    gap_s = 1.0 / log.rate_hz
    late_s, age_s = _times(log, gap_s)
    motors = _Motors(log, late_s, age_s, gap_s)
    age_s += motors.correct_age()
    found, limits = [], []
    for joint in range(log.spec.num_joints):
        shares, deviations = motors.regress(joint, motors.all)
        limit = motors.limit(joint, shares)
        if limit is not None:
            free = np.abs(motors.asked(joint, shares)) < 0.9 * limit.limit_nm
            if free.sum() > MIN_FREE:
                shares, deviations = motors.regress(joint, free)
            limit = motors.limit(joint, shares)
        found.append((shares, deviations))
        limits.append(limit)
    shares = np.array([item[0] for item in found])
    asked = np.full_like(log.joint_effort_nm, np.nan)
    for joint in range(log.spec.num_joints):
        asked[motors.rows, joint] = motors.asked(joint, shares[joint])
    return ActuatorFit(
        shares[:, 0],
        shares[:, 1],
        np.array([item[1] for item in found]),
        max(0.0, late_s - age_s - 0.5 * gap_s),
        EDGE * gap_s / 1.96,
        limits,
        asked,
        np.abs(log.joint_effort_nm).max(axis=0),
        np.abs(log.joint_vel_rad_s).max(axis=0),
    )


class _Motors:
    """Terms of the regressions of all joints, at one delay.

    Args:
        log: The recording.
        late_s: From a command to the torque readings that show it.
        age_s: Of the torque readings.
        gap_s: Time between two readings.
    """

    def __init__(self, log: MotionLog, late_s: float, age_s: float, gap_s: float) -> None:
        self._log, rows = log, np.arange(len(log.time_s))
        self.distance, self.speed, self.plain, self.rows = _terms(log, rows, late_s, age_s)
        before, after = (_terms(log, self.rows, late_s, age_s + sign * gap_s) for sign in (-1.0, 1.0))
        first = len(self.rows) - len(after[3])
        self.all = np.arange(len(self.rows)) >= first
        """Shape (m,), readings with a neighbour on either side."""
        self._slopes = np.zeros((2, *self.distance.shape))
        for index in range(2):
            self._slopes[index, first:] = (after[index] - before[index][first:]) / (2.0 * gap_s)
        self._effort, self._block = log.joint_effort_nm[self.rows], (log.time_s[self.rows] // BLOCK_S).astype(np.intp)
        sent = log.commands[log.command_rows(log.time_s[self.rows] - late_s)]
        sigma = np.stack((noise_level(log.joint_pos_rad), noise_level(log.joint_vel_rad_s)))
        self._noise = sent[:, [STIFFNESS, DAMPING]] * sigma
        self._age_s = self._age_variance = 0.0

    def correct_age(self) -> float:
        """Fraction of the time between readings, s, that the torques are older; the terms follow it from then on."""
        moves, weights = [], []
        for joint in range(self.distance.shape[1]):
            shares, _ = self.regress(joint, self.all)
            slope = self._slopes[0, :, joint] * shares[0] + self._slopes[1, :, joint] * shares[1]
            terms = np.column_stack((self.distance[:, joint], self.speed[:, joint], slope))
            target = self._effort[:, joint] - self.plain[:, joint]
            noise = np.column_stack((self._noise[:, :, joint], np.zeros(len(terms))))
            values, deviations = _regress(terms[self.all], target[self.all], noise[self.all], self._block[self.all])
            moves.append(values[2])
            weights.append(deviations[2] ** -2.0)
        self._age_s, self._age_variance = float(np.average(moves, weights=weights)), 1.0 / float(np.sum(weights))
        return self._age_s

    def regress(self, joint: int, use: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
        """Shares (2,) of stiffness and damping of a joint, and their deviations, from some of the readings (m,)."""
        terms = self._joint_terms(joint, self._age_s)[use]
        target = (self._effort - self.plain)[use, joint]
        shares, deviations = _regress(terms, target, self._noise[use][:, :, joint], self._block[use])
        # What the age of the torques is not known by shifts the shares.
        step_s = 1e-4
        moved, _ = _regress(
            self._joint_terms(joint, self._age_s + step_s)[use],
            target,
            self._noise[use][:, :, joint],
            self._block[use],
        )
        return shares, np.sqrt(deviations**2 + ((moved - shares) / step_s) ** 2 * self._age_variance)

    def asked(self, joint: int, shares: FloatArray) -> FloatArray:
        """Torques (m,), N m, that commands and readings ask of a joint with shares (2,) of its gains."""
        return self.plain[:, joint] + self._joint_terms(joint, self._age_s) @ shares

    def limit(self, joint: int, shares: FloatArray) -> Saturation | None:
        """Saturation of a joint with shares (2,) of its gains; None where there is none."""
        speed = self._log.joint_vel_rad_s[self.rows, joint]
        return saturation_of(self.asked(joint, shares)[self.all], self._effort[self.all, joint], speed[self.all])

    def _joint_terms(self, joint: int, age_s: float) -> FloatArray:
        terms = np.column_stack((self.distance[:, joint], self.speed[:, joint]))
        return terms + age_s * self._slopes[:, :, joint].T


def _times(log: MotionLog, gap_s: float) -> tuple[float, float]:
    """Time from a command to the torque readings that show it, and age of these, s.

    Commands that arrive between two readings show in the second, so that the largest of equally good delays is taken.
    Ages are whole times between readings, as the mean of two readings has less noise and would be preferred for that.
    """
    rows = np.linspace(0, len(log.time_s) - 1, min(COARSE_ROWS, len(log.time_s))).astype(np.intp)
    step_s = min(0.5 * gap_s, 1e-3)
    best = (np.inf, 0.0, 0.0)
    for age_s in np.arange(0.0, MAX_AGE_S + 1e-9, gap_s):
        for late_s in np.arange(age_s, MAX_DELAY_S + 1e-9, step_s):
            misfit = _misfit(log, rows, float(late_s), float(age_s))
            if misfit < best[0] * (1.0 - 1e-9) or (np.isclose(misfit, best[0], rtol=1e-9) and late_s > best[1]):
                best = (misfit, float(late_s), float(age_s))
    return best[1], best[2]


def _misfit(log: MotionLog, rows: NDArray[np.intp], late_s: float, age_s: float) -> float:
    distance, speed, plain, kept = _terms(log, rows, late_s, age_s)
    target = log.joint_effort_nm[kept] - plain
    # Two terms for each joint, solved at once.
    a, b, c = (distance**2).sum(axis=0), (distance * speed).sum(axis=0), (speed**2).sum(axis=0)
    x, y = (distance * target).sum(axis=0), (speed * target).sum(axis=0)
    det = np.maximum(a * c - b**2, 1e-12)
    explained = (x * (c * x - b * y) + y * (a * y - b * x)) / det
    scale = np.maximum((log.joint_effort_nm[kept] ** 2).sum(axis=0), 1e-9)
    return float((((target**2).sum(axis=0) - explained) / scale).sum())


def _terms(
    log: MotionLog, rows: NDArray[np.intp], late_s: float, age_s: float
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.intp]]:
    """Gain times distance, gain times speed and feed-forward, each (m, n), N m, and the rows that have a command."""
    sent = log.command_rows(log.time_s[rows] - late_s)
    good = (sent >= 0) & (log.time_s[rows] - age_s >= log.time_s[0])
    rows, sent = rows[good], sent[good]
    place = np.interp(log.time_s[rows] - age_s, log.time_s, np.arange(len(log.time_s)))
    first = np.minimum(place.astype(np.intp), len(log.time_s) - 2)
    share = (place - first)[:, None]
    pos = log.joint_pos_rad[first] * (1.0 - share) + log.joint_pos_rad[first + 1] * share
    vel = log.joint_vel_rad_s[first] * (1.0 - share) + log.joint_vel_rad_s[first + 1] * share
    command = log.commands[sent]
    distance = command[:, STIFFNESS] * (command[:, POS] - pos)
    return distance, command[:, DAMPING] * (command[:, VEL] - vel), command[:, EFFORT], rows


def _regress(
    terms: FloatArray, target: FloatArray, noise: FloatArray, block: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    """Factors (c,) of terms (m, c) that have noise (m, c), N m, and their standard deviations (c,)."""
    matrix = terms.T @ terms - np.diag((noise**2).sum(axis=0)) + 1e-9 * np.eye(terms.shape[1])
    factors = np.linalg.solve(matrix, terms.T @ target)
    score = terms * (target - terms @ factors)[:, None] + noise**2 * factors
    starts = np.flatnonzero(np.concatenate(([True], np.diff(block) != 0)))
    sums = np.add.reduceat(score, starts, axis=0)
    inverse = np.linalg.inv(matrix)
    spread = inverse @ (sums.T @ sums) @ inverse * len(sums) / max(1, len(sums) - 1)
    white = inverse * float(np.var(target - terms @ factors))
    deviations = SMALL_SAMPLE * np.sqrt(np.maximum(np.diag(spread), np.diag(white)))
    return np.asarray(factors, np.float64), np.asarray(deviations, np.float64)
