"""Checks of when readings come: rate, age, freezes, bursts, and clocks that go back."""

from __future__ import annotations

import numpy as np

from gantry_deploy.diagnosis.findings import Diagnosis, FindingKind
from gantry_deploy.diagnosis.state_log import StateLog

MAX_AGE_S = 0.05
"""Largest age of a reading that a policy can be run with, unless it is known otherwise."""
MAX_FROZEN_S = 0.1
"""Longest time in which readings may be repeated."""
LEAST_MOTION = 0.02
"""Speed of a joint from which a robot moves, rad/s or m/s."""


def check_timing(log: StateLog, diagnosis: Diagnosis, max_age_s: float = MAX_AGE_S) -> None:
    """All checks of times."""
    if len(log.time_s) < 2:
        diagnosis.wrong(FindingKind.TIMING, "state", "fewer than two readings came.")
        return
    before = len(diagnosis.findings)
    steps = np.diff(log.stamp_s)
    if (back := int((steps < -1e-6).sum())) > 0:
        text = f"stamps go back {back} times, by up to {1e3 * -steps.min():.1f} ms: a clock was set, or two publish."
        diagnosis.wrong(FindingKind.TIMING, "state", text)
    _check_frozen(log, diagnosis)
    ages = log.time_s - log.stamp_s
    p50, p99 = (float(value) for value in np.percentile(ages, (50, 99)))
    if p99 > max_age_s:
        text = f"readings are {1e3 * p50:.0f} ms old in the median and {1e3 * p99:.0f} ms in one of a hundred; "
        diagnosis.wrong(FindingKind.TIMING, "state", text + f"expected at most {1e3 * max_age_s:.0f} ms.")
    if p50 < -1e-3:
        text = f"readings are stamped {-1e3 * p50:.1f} ms in the future: the clocks of robot and computer differ."
        diagnosis.wrong(FindingKind.TIMING, "state", text)
    if len(diagnosis.findings) == before:
        periods = np.diff(log.time_s)
        diagnosis.fine(
            "timing",
            f"{len(log.time_s)} readings, one each {1e3 * log.dt_s:.1f} ms (at most {1e3 * periods.max():.1f}), "
            f"{1e3 * max(p50, 0.0):.1f} ms old in the median, {1e3 * max(p99, 0.0):.1f} ms in one of a hundred",
        )


def _check_frozen(log: StateLog, diagnosis: Diagnosis) -> None:
    """Readings that repeat, with their old stamps or with new ones."""
    same = log.repeated[1:]
    stale = np.diff(log.stamp_s) == 0
    # What rests may well repeat its numbers.
    moves = np.asarray((np.abs(log.joint_vel_rad_s) > LEAST_MOTION).any(axis=1))[1:]
    for repeated, what in (
        (same & stale, "readings stopped"),
        (same & ~stale & moves, "readings repeat the same numbers under new stamps, as from a cache,"),
    ):
        longest_s = _longest(repeated, np.diff(log.time_s))
        if longest_s > MAX_FROZEN_S:
            diagnosis.wrong(FindingKind.TIMING, "state", f"{what} for {1e3 * longest_s:.0f} ms.")


def _longest(flags: np.ndarray, durations_s: np.ndarray) -> float:
    """Longest uninterrupted time in which a flag is set."""
    longest = current = 0.0
    for flag, duration in zip(flags.tolist(), durations_s.tolist(), strict=True):
        current = current + duration if flag else 0.0
        longest = max(longest, current)
    return longest
