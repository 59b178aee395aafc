"""Doctor: what is wrong with a robot's readings and how it obeys, from a log of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gantry_deploy.diagnosis.base import check_base
from gantry_deploy.diagnosis.findings import Diagnosis
from gantry_deploy.diagnosis.joints import check_joints
from gantry_deploy.diagnosis.state_log import StateLog
from gantry_deploy.diagnosis.timing import check_timing

LEAST_READINGS = 20
"""Readings that differ from the one before; with fewer all are looked at."""


def examine(log: StateLog, *, upright: bool = False) -> Diagnosis:
    """All checks of a log.

    A robot that exchanges joints in its readings and in its commands alike, or whose IMU is turned about the vertical,
    is not found by this: commissioning moves one joint at a time for that.

    Args:
        log: Readings, and commands where there were any.
        upright: Whether the robot is known to have been upright all the time; else that follows from its modes.
    """
    if upright:
        log = replace(log, upright=np.ones_like(log.upright))
    diagnosis = Diagnosis()
    check_timing(log, diagnosis)
    fresh = ~log.repeated
    if fresh.sum() > LEAST_READINGS:
        log = log.rows(fresh)
    check_joints(log, diagnosis)
    if log.ang_vel_base_in_base_rad_s.any():
        check_base(log, diagnosis)
    else:
        diagnosis.unknown("base", "the robot reports no gyroscope; its base does not move or is not measured")
    return diagnosis
