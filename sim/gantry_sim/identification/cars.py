"""Identification of cars: steering and drive that follow their commands with gain, offset, lag and delay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.identification.findings import Curve, Findings
from gantry_sim.identification.legs import IdentifyCfg
from gantry_sim.identification.motion_log import POS, VEL, MotionLog
from gantry_sim.identification.parameters import DELAY
from gantry_sim.identification.uncertainty import CONFIDENCE_95, NormalEquations, noise_level

FloatArray = NDArray[np.float64]

DRIVING = "driving"
"""Kind of a car's recording."""
STEP_S = 0.005
"""Step of the simulation."""
NAMES = ("gain", "offset", "response_s")
"""Parameters of each joint, in the order of the vector; the delay of all follows."""
PRIOR = np.array([1.0, 1.0, 2.0])
"""Deviations of those parameters before any data, in their units."""
WIDEST = {"gain": 0.15, "offset": 0.1, "response_s": 0.15, DELAY: 0.05}
"""Half widths of intervals from which on a parameter is refused, in its unit."""
PRIOR_DELAY_S, LONGEST_DELAY_S, LONGEST_RESPONSE_S = 0.3, 0.5, 3.0
STARTS = ((0.05, 0.0), (0.2, 0.05), (0.5, 0.1))
"""Time constants and delays to begin with, s."""
BLOCK_S = 2.0
"""Time within which residuals may hang together."""
WARM_UP_S = 2.0
"""Time after which the initial state is forgotten."""


@dataclass(frozen=True)
class Follower:
    """One joint that follows its command."""

    joint: str
    """Name of the joint."""
    quantity: str
    """Quantity with its unit."""
    measured: FloatArray
    """Shape (T,), in the quantity's unit."""
    sent: FloatArray
    """Shape (K,), commands in the same unit."""
    rate_limit: float
    """Largest change of the quantity, its unit per second."""


def identify(spec: RobotSpec, logs: list[MotionLog], cfg: IdentifyCfg) -> Findings:
    """Identify a car from recordings of its driving.

    Args:
        spec: The car.
        logs: Its recordings; the longest one is used.
        cfg: Choices.

    Raises:
        GantryError: If the kind is not that of a car.
    """
    if cfg.kind not in ("auto", DRIVING):
        raise GantryError(f"'{spec.name}' is a car, which is recorded while it drives, not '{cfg.kind}'.")
    log = max(logs, key=lambda item: item.duration_s)
    findings = Findings(spec, [DRIVING])
    if len(logs) > 1:
        findings.notes.append(f"of {len(logs)} recordings the longest one was used, {log.source}")
    followers = [_follower(log, joint) for joint in range(spec.num_joints)]
    cfg.told("steering and drive")
    values = min((_search(log, followers, start) for start in STARTS), key=lambda item: item[0])[1]
    noise = _noise(log, followers, values)
    deviations = _deviations(log, followers, values, noise)
    simulated = _simulate(log, followers, values[None])[:, 0]
    for index, follower in enumerate(followers):
        moved = float(np.ptp(follower.measured))
        for place, name in enumerate(NAMES):
            number = 3 * index + place
            _take(findings, name, values[number], deviations[number], follower.joint, f"it moved over {moved:.3g}")
        findings.curves.append(
            Curve(follower.joint, follower.quantity, log.time_s, follower.measured, simulated[index])
        )
    _take(findings, DELAY, values[-1], deviations[-1], "", "commands change too little")
    return findings


def _take(findings: Findings, name: str, value: float, deviation: float, joint: str, why: str) -> None:
    half = CONFIDENCE_95 * float(deviation)
    if half > WIDEST[name]:
        findings.refuse(name, f"{why}, which tells it to +-{half:.2g} only, expected +-{WIDEST[name]:g}", joint)
    else:
        findings.found(name, float(value), float(deviation), joint)


def _follower(log: MotionLog, joint: int) -> Follower:
    """The joint's angle where it is held by position, otherwise its speed."""
    spec = log.spec.joints[joint]
    if spec.stiffness_nm_rad > 0.0:
        measured, sent = log.joint_pos_rad[:, joint], log.commands[:, POS, joint]
        return Follower(spec.name, "angle [rad]", measured, sent, spec.velocity_limit_rad_s)
    measured, sent = log.joint_vel_rad_s[:, joint], log.commands[:, VEL, joint]
    return Follower(spec.name, "speed [m/s]", measured, sent, spec.effort_limit_nm / spec.armature_kg_m2)


def _search(log: MotionLog, followers: list[Follower], start: tuple[float, float]) -> tuple[float, FloatArray]:
    """Cost and values of the best fit from one beginning; each in its unit."""
    first = np.array([1.0, 0.0, start[0]] * len(followers) + [start[1]])
    low = np.array([0.02, -5.0, 1e-3] * len(followers) + [0.0])
    high = np.array([8.0, 5.0, LONGEST_RESPONSE_S] * len(followers) + [LONGEST_DELAY_S])
    noise = np.array([max(float(noise_level(item.measured[:, None])[0]), 1e-4) for item in followers])

    def residuals(values: FloatArray) -> FloatArray:
        return _residuals(log, followers, values[None], noise)[0].ravel()

    def slopes(values: FloatArray) -> FloatArray:
        return _slopes(log, followers, values, noise).reshape(len(values), -1).T

    scale = np.array([0.1, 0.05, 0.1] * len(followers) + [0.02])
    fit = least_squares(residuals, first, jac=slopes, bounds=(low, high), x_scale=scale, loss="soft_l1", max_nfev=60)  # type: ignore[arg-type]
    return float(fit.cost), np.asarray(fit.x, dtype=np.float64)


def _noise(log: MotionLog, followers: list[Follower], values: FloatArray) -> FloatArray:
    """Deviation of every follower from its simulation, in its unit."""
    ones = np.ones(len(followers))
    return np.maximum(np.sqrt(np.mean(_residuals(log, followers, values[None], ones)[0] ** 2, axis=1)), 1e-6)


def _deviations(log: MotionLog, followers: list[Follower], values: FloatArray, noise: FloatArray) -> FloatArray:
    rows = _rows(log)
    block = ((log.time_s[rows] - log.time_s[0]) // BLOCK_S).astype(np.intp)
    sums = NormalEquations(len(values), int(block[-1]) + 1)
    residual, slope = _residuals(log, followers, values[None], noise)[0], _slopes(log, followers, values, noise)
    for index in range(len(followers)):
        sums.add(residual[index], slope[:, index].T, np.arange(len(values)), block)
    return sums.deviations(np.append(np.tile(PRIOR, len(followers)), PRIOR_DELAY_S))


def _slopes(log: MotionLog, followers: list[Follower], values: FloatArray, noise: FloatArray) -> FloatArray:
    """Shape (p, joints, m), derivatives of the residuals by central differences."""
    step = np.array([1e-3, 1e-3, 1e-3] * len(followers) + [STEP_S])
    sides = np.array([values + sign * np.diag(step) for sign in (1.0, -1.0)]).reshape(-1, len(values))
    sides[:, [*range(2, len(values) - 1, 3), -1]] = np.maximum(sides[:, [*range(2, len(values) - 1, 3), -1]], 0.0)
    found = _residuals(log, followers, sides, noise)
    p = len(values)
    gaps = np.array([sides[i, i] - sides[p + i, i] for i in range(p)])
    return (found[:p] - found[p:]) / gaps[:, None, None]


def _residuals(log: MotionLog, followers: list[Follower], sets: FloatArray, noise: FloatArray) -> FloatArray:
    """Shape (sets, joints, m), simulation minus reading in units of the noise, without the warm-up."""
    rows = _rows(log)
    measured = np.stack([item.measured[rows] for item in followers])
    return (_simulate(log, followers, sets)[:, :, rows].transpose(1, 0, 2) - measured) / noise[:, None]


def _rows(log: MotionLog) -> NDArray[np.intp]:
    return np.flatnonzero(log.time_s >= log.time_s[0] + WARM_UP_S)


def _simulate(log: MotionLog, followers: list[Follower], sets: FloatArray) -> FloatArray:
    """Shape (joints, sets, T), readings for sets of values (sets, p), each in its unit."""
    grid_s = np.arange(log.time_s[0], log.time_s[-1] + 2.0 * STEP_S, STEP_S)
    found = np.zeros((len(followers), len(sets), len(log.time_s)))
    for index, item in enumerate(followers):
        gain, offset, response_s = sets[:, 3 * index : 3 * index + 3].T
        target = gain * _mean_commands(log, item.sent, grid_s, sets[:, -1]) + offset
        share = 1.0 - np.exp(-STEP_S / np.maximum(response_s, 1e-6))
        most, now = item.rate_limit * STEP_S, np.full(len(sets), item.measured[0])
        course = np.zeros((len(grid_s), len(sets)))
        course[0] = now
        for step in range(len(grid_s) - 1):
            now = now + np.minimum(np.maximum((target[step] - now) * share, -most), most)
            course[step + 1] = now
        for number in range(len(sets)):
            found[index, number] = np.interp(log.time_s, grid_s, course[:, number])
    return found


def _mean_commands(log: MotionLog, sent: FloatArray, grid_s: FloatArray, delays_s: FloatArray) -> FloatArray:
    """Shape (steps, sets), mean of a command over every step, later by the delay (sets,), s, of each set."""
    times = log.command_time_s
    sums = np.concatenate(([0.0], np.cumsum(sent[:-1] * np.diff(times))))

    def integral(at_s: FloatArray) -> FloatArray:
        rows = np.clip(np.searchsorted(times, at_s, side="right") - 1, 0, None)
        return sums[rows] + sent[rows] * (at_s - times[rows])

    edges = np.append(grid_s, grid_s[-1] + STEP_S)
    return np.stack([np.diff(integral(edges - delay)) / STEP_S for delay in delays_s], axis=1)
