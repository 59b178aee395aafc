"""Checks of the base's readings against each other: quaternion, gyroscope, accelerometer and odometry."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.diagnosis.findings import Diagnosis, FindingKind
from gantry_deploy.diagnosis.joints import CLEARER, FITS
from gantry_deploy.diagnosis.relations import DEGREES
from gantry_deploy.diagnosis.state_log import StateLog
from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_mapping.sensing.frames import rotation_matrix

FloatArray = NDArray[np.float64]

GRAVITY_TOLERANCE_RAD = 0.2
"""Largest median angle between the accelerometer's mean and the vertical by the quaternion."""
LEAST_TURNING_RAD_S = 0.03
"""Root mean square of the angular velocity from which the gyroscope can be judged."""
LEAST_SPEED_M_S = 0.05
"""Root mean square of the odometry's velocity from which it can be judged."""
MOST_TILT_RAD = 0.7
"""Largest tilt of a robot that stands or walks."""
_AVERAGE_S = 0.4
_WINDOWS_S = (0.1, 0.3, 1.0)
_AXES = "xyz"

_READINGS = {
    "": (0, 1, 2, 3),
    "came as (x, y, z, w), expected (w, x, y, z)": (3, 0, 1, 2),
    "was shifted: (x, y, z, w) was taken for (w, x, y, z) on the way": (1, 2, 3, 0),
}


def check_base(log: StateLog, diagnosis: Diagnosis) -> None:
    """All checks of the base's readings."""
    if not np.isfinite(log.quat_base_to_world_wxyz).all():
        diagnosis.unknown("orientation", "the robot reports none")
        return
    quat, acc = _unit(log.quat_base_to_world_wxyz), log.lin_acc_base_in_base_m_s2
    acc = _scaled_acceleration(acc, diagnosis)
    if _check_conventions(log, quat, acc, diagnosis) and _check_mounting(log, quat, diagnosis):
        _check_odometry(log, quat, diagnosis)


def _unit(quat: FloatArray) -> FloatArray:
    return quat / np.maximum(np.linalg.norm(quat, axis=1, keepdims=True), 1e-9)


def _scaled_acceleration(acc: FloatArray, diagnosis: Diagnosis) -> FloatArray | None:
    """Accelerations in m/s^2; None if they cannot be judged. A wrong unit is a finding."""
    if not np.isfinite(acc).all() or not acc.any():
        diagnosis.unknown("accelerometer", "the robot reports none")
        return None
    norm = float(np.median(np.linalg.norm(acc, axis=1)))
    if abs(norm - GRAVITY_M_S2) < 0.15 * GRAVITY_M_S2:
        return acc
    if norm < 0.3:
        text = f"the median length is {norm:.2f} m/s^2: gravity was subtracted, expected {GRAVITY_M_S2} at rest."
        diagnosis.wrong(FindingKind.OFFSET, "accelerometer", text)
        return None
    unit = " (g in place of m/s^2)" if abs(norm - 1.0) < 0.15 else ""
    text = f"every number is {norm / GRAVITY_M_S2:.3g} times what it should be{unit}: {norm:.2f} at rest."
    diagnosis.wrong(FindingKind.SCALE, "accelerometer", text)
    return acc * (GRAVITY_M_S2 / norm)


def _check_conventions(log: StateLog, quat: FloatArray, acc: FloatArray | None, diagnosis: Diagnosis) -> bool:
    """Whether the quaternion is read rightly; gyroscope and accelerometer are compared with it."""
    readings = {words: quat[:, list(order)] for words, order in _READINGS.items()}
    readings["is that of the inverse rotation, from the world to the base"] = quat * np.array([1, -1, -1, -1.0])
    angles = {words: _gravity_angle(log, other, acc) for words, other in readings.items()}
    turning = {words: _gyro_left(log, other) for words, other in readings.items()}
    plain = (angles[""], turning[""])
    for words in list(readings)[1:]:
        better_angle = angles[words] < GRAVITY_TOLERANCE_RAD and turning[words] < max(FITS, CLEARER * plain[1])
        turns_clearly = turning[words] < FITS and turning[words] < CLEARER * plain[1]
        tilts_clearly = plain[0] > GRAVITY_TOLERANCE_RAD and angles[words] < CLEARER * plain[0]
        if better_angle and (turns_clearly or tilts_clearly) and not (np.isnan(turning[words]) and plain[0] < 0.2):
            diagnosis.wrong(FindingKind.FRAME, "orientation", f"the quaternion {words}.")
            return False
    _check_accelerometer(log, quat, acc, plain[0], diagnosis)
    _check_gyroscope(log, quat, plain[1], diagnosis)
    return True


def _gravity_angle(log: StateLog, quat: FloatArray, acc: FloatArray | None) -> float:
    """Median angle between the averaged acceleration and the vertical, both in the base's frame; NaN without one."""
    if acc is None:
        return float("nan")
    return float(np.median(_angles(_average(acc, log.dt_s), _average(_up_in_base(quat), log.dt_s))))


def _angles(a: FloatArray, b: FloatArray) -> FloatArray:
    cosine = (a * b).sum(axis=1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-9)
    return np.arccos(np.clip(cosine, -1.0, 1.0))


def _up_in_base(quat: FloatArray) -> FloatArray:
    """The world's vertical in the base's frame, (T, 3)."""
    return rotation_matrix(quat)[:, 2, :]


def _average(values: FloatArray, dt_s: float) -> FloatArray:
    """Moving average over ``_AVERAGE_S``, which steps of a gait shake less."""
    width = max(1, min(len(values), round(_AVERAGE_S / max(dt_s, 1e-6))))
    kernel = np.ones(width) / width
    return np.stack([np.convolve(values[:, i], kernel, mode="valid") for i in range(values.shape[1])], axis=1)


def _turning(log: StateLog, quat: FloatArray, step: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Angular velocity of the base by its orientation and by the gyroscope, averaged over some readings.

    Returns:
        By the orientation (T - step, 3), rad/s, in the base's frame; by the gyroscope, as it is; and the orientation
        (T - step, 4) in the middle.
    """
    dt_s = log.stamp_s[step:] - log.stamp_s[:-step]
    rows = dt_s > 1e-6
    a, b = quat[:-step][rows], quat[step:][rows]
    b = b * np.where((a * b).sum(axis=1) < 0, -1.0, 1.0)[:, None]
    change = (b - a) / dt_s[rows, None]
    middle = _unit(a + b)
    w, vector = middle[:, :1], middle[:, 1:]
    # 2 conj(q) dq: the vector part.
    turning = 2.0 * (w * change[:, 1:] - change[:, :1] * vector - np.cross(vector, change[:, 1:]))
    total = np.cumsum(np.concatenate((np.zeros((1, 3)), log.ang_vel_base_in_base_rad_s)), axis=0)
    gyro = log.ang_vel_base_in_base_rad_s
    mean = (total[step:-1] - total[: -step - 1] + 0.5 * (gyro[step:] - gyro[:-step])) / step
    return turning, mean[rows], middle


def _windows(log: StateLog) -> list[int]:
    """Numbers of readings over which orientations are compared: a noisy one tells its change over longer times only."""
    steps = {1, *(max(1, round(seconds / max(log.dt_s, 1e-6))) for seconds in _WINDOWS_S)}
    return sorted(step for step in steps if step < len(log.time_s) // 4)


def _left(values: FloatArray, known: FloatArray) -> float:
    """Rest of vectors (T, 3) after subtracting known ones, in units of the root mean square."""
    return float(np.sqrt(((values - known) ** 2).mean()) / max(np.sqrt((values**2).mean()), 1e-9))


def _gyro_left(log: StateLog, quat: FloatArray) -> float:
    """Share of the gyroscope that the change of orientation does not explain; NaN if it turned too little."""
    left = [float("nan")]
    for step in _windows(log):
        known, told, _ = _turning(log, quat, step)
        if len(known) >= 20 and np.sqrt((told**2).mean()) > LEAST_TURNING_RAD_S:
            left.append(_left(told, known))
    return float(np.nanmin(left)) if len(left) > 1 else float("nan")


def _check_accelerometer(
    log: StateLog, quat: FloatArray, acc: FloatArray | None, angle_rad: float, diagnosis: Diagnosis
) -> None:
    if acc is None:
        return
    if angle_rad < GRAVITY_TOLERANCE_RAD:
        diagnosis.fine("accelerometer", f"the vertical is the quaternion's to within {DEGREES * angle_rad:.1f} degrees")
        return
    up, mean = _average(_up_in_base(quat), log.dt_s), _average(acc, log.dt_s)
    if float(np.median(_angles(-mean, up))) < GRAVITY_TOLERANCE_RAD:
        text = "it shows gravity, expected the reaction to it, upwards at rest: every number has the wrong sign."
        diagnosis.wrong(FindingKind.SIGN, "accelerometer", text)
        return
    words, left = _best_axes(mean, up * GRAVITY_M_S2)
    if left < FITS:
        diagnosis.wrong(FindingKind.FRAME, "accelerometer", f"its axes are not the base's: {words}.")
        return
    diagnosis.wrong(
        FindingKind.FRAME,
        "accelerometer",
        f"the vertical is {DEGREES * angle_rad:.0f} degrees from the quaternion's: IMU and base have different frames.",
    )


def _check_gyroscope(log: StateLog, quat: FloatArray, left: float, diagnosis: Diagnosis) -> None:
    if np.isnan(left):
        diagnosis.unknown("gyroscope", "the base has turned too little")
        return
    # Over longer times turns about the vertical prevail, which are the same in many frames.
    explained = [found for step in _windows(log) if (found := _gyro_fault(*_turning(log, quat, step)))]
    if explained:
        _, kind, text = min(explained)
        diagnosis.wrong(kind, "gyroscope", text)
        return
    if left < FITS:
        diagnosis.fine("gyroscope", f"it is the change of the quaternion; {100 * left:.0f} % is left")
        return
    text = f"{100 * left:.0f} % of it is not the change of the quaternion, and no other axes explain it"
    diagnosis.unknown("gyroscope", f"{text}: noise, or an estimator that lags")


def _gyro_fault(known: FloatArray, told: FloatArray, quat: FloatArray) -> tuple[float, FindingKind, str] | None:
    """Rest, kind and words of the best explanation; None without a good one."""
    if len(known) < 20:
        return None
    in_world = np.einsum("nij,nj->ni", rotation_matrix(quat), known)
    scale = float((told * known).sum() / max((known**2).sum(), 1e-9))
    words, axes_left = _best_axes(told, known)
    unit = " (degrees in place of radians)" if abs(abs(scale) / DEGREES - 1) < 0.2 else ""
    found = [
        (_left(told, in_world), FindingKind.FRAME, "it is in the world's frame, expected the base's."),
        (_left(told, -known), FindingKind.SIGN, "every number has the wrong sign."),
        (axes_left, FindingKind.FRAME, f"its axes are not the base's: {words}."),
    ]
    if abs(scale) > 1e-6 and not 0.5 < abs(scale) < 2.0:
        text = f"every number is {abs(scale):.3g} times what it should be{unit}."
        found.append((_left(told / scale, known), FindingKind.SCALE, text))
    best = min(found)
    return best if best[0] < min(FITS, CLEARER * _left(told, known)) else None


def _best_axes(told: FloatArray, known: FloatArray) -> tuple[str, float]:
    """The axes, with signs, that told vectors show of the known ones, in words, and what is then left."""
    best = ("", float("inf"))
    for order in permutations(range(3)):
        for signs in product((1.0, -1.0), repeat=3):
            left = _left(told, known[:, list(order)] * np.array(signs))
            # Fewer changes win where two explain as much.
            changes = sum(o != i for i, o in enumerate(order)) + sum(s < 0 for s in signs)
            left += 1e-3 * changes
            if left < best[1]:
                shown = [
                    f"{_AXES[i]} shows {'-' if s < 0 else ''}{_AXES[o]}"
                    for i, (o, s) in enumerate(zip(order, signs, strict=True))
                    if o != i or s < 0
                ]
                best = (", ".join(shown), left)
    return best


def _check_mounting(log: StateLog, quat: FloatArray, diagnosis: Diagnosis) -> bool:
    """Whether the IMU may be mounted as it should: a robot that stands or walks is upright."""
    if not log.upright.any():
        diagnosis.unknown("IMU mounting", "it is not known whether the robot stood upright")
        return True
    up = np.median(_up_in_base(quat[log.upright]), axis=0)
    tilt_rad = float(np.arccos(np.clip(up[2] / max(np.linalg.norm(up), 1e-9), -1.0, 1.0)))
    if tilt_rad < MOST_TILT_RAD:
        diagnosis.fine("IMU mounting", f"the base was {DEGREES * tilt_rad:.1f} degrees from upright while it stood")
        return True
    axis = _AXES[int(np.argmax(np.abs(up)))]
    side = "-" if up[int(np.argmax(np.abs(up)))] < 0 else ""
    text = (
        f"the robot stood, and its IMU says it was tilted by {DEGREES * tilt_rad:.0f} degrees: {side}{axis} points up."
    )
    diagnosis.wrong(FindingKind.FRAME, "IMU mounting", text)
    return False


def _check_odometry(log: StateLog, quat: FloatArray, diagnosis: Diagnosis) -> None:
    dt_s = np.diff(log.stamp_s)
    values = np.concatenate((log.pos_base_in_world_m, log.lin_vel_base_in_base_m_s), axis=1)
    known: NDArray[np.bool_] = np.asarray(np.isfinite(values).all(axis=1))
    rows = (dt_s > 1e-6) & known[1:] & known[:-1]
    if rows.sum() < 20:
        diagnosis.unknown("odometry", "the robot reports no place and velocity")
        return
    in_world = np.diff(log.pos_base_in_world_m, axis=0)[rows] / dt_s[rows, None]
    in_base = np.einsum("nji,nj->ni", rotation_matrix(quat)[:-1][rows], in_world)
    told = (0.5 * (log.lin_vel_base_in_base_m_s[1:] + log.lin_vel_base_in_base_m_s[:-1]))[rows]
    if np.sqrt((in_base**2).mean()) < LEAST_SPEED_M_S:
        diagnosis.unknown("odometry", "the base has moved too little")
        return
    left = _left(told, in_base)
    if left < FITS:
        diagnosis.fine("odometry", f"the velocity is the change of the place; {100 * left:.0f} % is left")
    elif _left(told, in_world) < min(FITS, CLEARER * left):
        diagnosis.wrong(FindingKind.FRAME, "odometry", "the velocity is in the world's frame, expected the base's.")
    else:
        words, axes_left = _best_axes(told, in_base)
        scale = float((told * in_base).sum() / (in_base**2).sum())
        if axes_left < FITS:
            diagnosis.wrong(FindingKind.FRAME, "odometry", f"the velocity's axes are not the base's: {words}.")
        elif abs(scale) > 1e-6 and _left(told / scale, in_base) < FITS:
            text = f"the velocity is {scale:.3g} times what it should be."
            diagnosis.wrong(FindingKind.SCALE, "odometry", text)
        else:
            text = f"{100 * left:.0f} % of the velocity is not the change of the place."
            diagnosis.wrong(FindingKind.UNEXPLAINED, "odometry", text)
