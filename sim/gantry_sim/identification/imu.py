"""Mounting and latency of the IMU of a walking robot, by the kinematics of the legs that stand on flat ground."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_sim.identification.motion_log import MotionLog
from gantry_sim.identification.uncertainty import SMALL_SAMPLE, block_mean
from gantry_sim.robots.actuated_scene import SceneIndex, robot_with_motors

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

STILL_RAD_S = 0.3
"""Largest turning rate at which attitude and feet are compared."""
FOOT_HEIGHT_M = 3e-4
"""Standard deviation that is allowed for the height of a foot's centre over the ground: rubber, soil, tolerances."""
UNKNOWN_OFFSET_RAD = 0.01
"""Standard deviation that is allowed for the offset of an encoder that was not identified."""
MIN_ROWS = 100
"""Least number of readings."""
MIN_TURNING_ROWS = 500
"""Least number of readings for the latency."""
GUARD_S = 0.02
"""Time around a change of contacts that is left out."""
SMOOTH_S = 0.004
"""Width of the Gaussian by which the gyroscope is smoothed before it is read between its samples."""
BLOCK_S = 1.0
"""Time within which deviations may hang together."""
COMPLIANCE_S = {3: 1.5e-3, 2: 2.5e-3}
"""Standard deviation that is allowed for the lag of feet that yield, slip and roll, by how many stand at least."""
LAGS_S = np.arange(-0.01, 0.1001, 0.005)
"""Lags that are tried to begin with."""


@dataclass(frozen=True)
class Mounting:
    """Rotation of the IMU against the base."""

    roll_rad: float
    """About the base's x axis."""
    pitch_rad: float
    """About the base's y axis."""
    deviations_rad: tuple[float, float]
    """Standard deviations of both."""
    rows: int
    """Number of readings that were compared."""


class Feet:
    """Places and speeds of the feet in the base frame at T readings.

    Args:
        log: The recording; its encoders' offsets are taken off already.
    """

    def __init__(self, log: MotionLog) -> None:
        spec = log.spec
        self._model = robot_with_motors(spec, fixed_base=True, visuals=False)
        self._data, index = mujoco.MjData(self._model), SceneIndex(self._model, spec)
        self._sites = [self._model.site(foot).id for foot in spec.feet]
        self._radius = np.array([self._radius_of(site) for site in self._sites])
        self._qpos, self._qvel, self._base = index.joint_qpos, index.joint_qvel, index.base

    def places(self, pos_rad: FloatArray) -> FloatArray:
        """Centres of the feet, (T, feet, 3), m, in the base frame, at joint positions (T, n), rad."""
        found = np.zeros((len(pos_rad), len(self._sites), 3))
        for row, pose in enumerate(pos_rad):
            self._data.qpos[self._qpos] = pose
            mujoco.mj_kinematics(self._model, self._data)
            found[row] = self._data.site_xpos[self._sites] - self._data.xpos[self._base]
        return found

    def motion(self, pos_rad: FloatArray, vel_rad_s: FloatArray, up: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points of the feet that touch the ground, and their speeds against the base, (T, feet, 3), base frame.

        Args:
            pos_rad: Shape (T, n), joint positions.
            vel_rad_s: Shape (T, n), joint speeds.
            up: Shape (T, 3), unit vector away from the ground, in the base frame.
        """
        points, speeds = (np.zeros((len(pos_rad), len(self._sites), 3)) for _ in range(2))
        jacobian = np.zeros((3, self._model.nv))
        for row, (pose, vel) in enumerate(zip(pos_rad, vel_rad_s, strict=True)):
            self._data.qpos[self._qpos] = pose
            mujoco.mj_kinematics(self._model, self._data)
            mujoco.mj_comPos(self._model, self._data)
            base = self._data.xpos[self._base]
            for foot, site in enumerate(self._sites):
                point = self._data.site_xpos[site] - self._radius[foot] * up[row]
                mujoco.mj_jac(self._model, self._data, jacobian, None, point, int(self._model.site_bodyid[site]))
                points[row, foot] = point - base
                speeds[row, foot] = jacobian[:, self._qvel] @ vel
        return points, speeds

    def _radius_of(self, site: int) -> float:
        """Radius of the ball around a foot's site, m; 0 for another shape."""
        model, body = self._model, int(self._model.site_bodyid[site])
        balls = (model.geom_bodyid == body) & (model.geom_type == mujoco.mjtGeom.mjGEOM_SPHERE)
        near = balls & (np.linalg.norm(model.geom_pos - model.site_pos[site], axis=1) < 1e-3)
        return float(model.geom_size[near, 0].max()) if near.any() else 0.0


def up_by_imu(quat_wxyz: FloatArray) -> FloatArray:
    """Unit vectors (T, 3) that point up in the IMU's frame, from unit quaternions (T, 4) from it to the world."""
    w, x, y, z = (quat_wxyz / np.linalg.norm(quat_wxyz, axis=1, keepdims=True)).T
    return np.stack((2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)), axis=1)


def mounting_of(log: MotionLog, feet: Feet, offset_deviations_rad: FloatArray) -> Mounting | None:
    """Mounting of the IMU; None where three feet never stood on the ground for long enough.

    Args:
        log: The recording, with encoders' offsets taken off.
        feet: Its kinematics.
        offset_deviations_rad: Shape (n,), standard deviations of those offsets.
    """
    stands = (log.foot_contact > 0.5).sum(axis=1) >= 3
    quiet = np.linalg.norm(log.ang_vel_base_in_base_rad_s, axis=1) < STILL_RAD_S
    rows = np.flatnonzero(stands & quiet & _settled(log))
    if len(rows) < MIN_ROWS:
        return None
    rows = rows[:: max(1, len(rows) // 4000)]
    contact, pose = log.foot_contact[rows] > 0.5, log.joint_pos_rad[rows]
    imu = up_by_imu(log.quat_base_to_world_wxyz[rows])
    roll, pitch = _turn(_normals(feet.places(pose), contact), imu)
    block = (log.time_s[rows] // BLOCK_S).astype(np.intp)
    (roll_rad, roll_sd), (pitch_rad, pitch_sd) = block_mean(roll, block), block_mean(pitch, block)
    few = rows[:: max(1, len(rows) // 100)]
    own = feet.places(log.joint_pos_rad[few])
    variances = np.zeros(2)
    for joint, deviation in enumerate(offset_deviations_rad):
        moved = log.joint_pos_rad[few].copy()
        moved[:, joint] += 1e-3
        on = log.foot_contact[few] > 0.5
        change = _slopes(_normals(feet.places(moved), on) - _normals(own, on)) / 1e-3
        variances += (change * deviation) ** 2
    place = own[:, :, :2] - own[:, :, :2].mean(axis=1, keepdims=True)
    x, y = np.sqrt((place**2).sum(axis=1).mean(axis=0))
    variances += (FOOT_HEIGHT_M / np.array([y, x])) ** 2
    deviations = SMALL_SAMPLE * np.sqrt(variances + np.array([roll_sd, pitch_sd]) ** 2)
    return Mounting(roll_rad, pitch_rad, (float(deviations[0]), float(deviations[1])), len(rows))


def _normals(places: FloatArray, contact: BoolArray) -> FloatArray:
    """Unit vectors (m, 3) up from the planes through the feet (m, feet, 3) that stand, base frame."""
    weight = contact.astype(np.float64)[..., None]
    around = (places - (places * weight).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)) * weight
    _, _, axes = np.linalg.svd(around)
    normal = axes[:, 2]
    return normal * np.sign(normal[:, 2:])


def _turn(up: FloatArray, up_imu: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Roll and pitch (m,), rad, of the rotation from unit vectors of the IMU (m, 3) to those of the base (m, 3)."""
    middle, gap = 0.5 * (up + up_imu), up - up_imu
    return -gap[:, 1] / middle[:, 2], gap[:, 0] / middle[:, 2]


def _slopes(change: FloatArray) -> FloatArray:
    """Mean change of roll and pitch (2,) by that of normals (m, 3)."""
    return np.array([-change[:, 1].mean(), change[:, 0].mean()])


def _settled(log: MotionLog) -> BoolArray:
    """Readings (T,) around which no foot touches down or lifts off."""
    guard = max(1, round(GUARD_S * log.rate_hz))
    changes = np.concatenate(([0], np.any(np.diff(log.foot_contact > 0.5, axis=0), axis=1).astype(np.int64)))
    near = np.convolve(changes, np.ones(2 * guard + 1), mode="same")
    return near < 0.5


@dataclass(frozen=True)
class Latency:
    """Age of the IMU's readings beyond those of the joints."""

    delay_s: float
    """Its value."""
    deviation_s: float
    """Standard deviation of it."""
    rows: int
    """Number of readings that were compared."""


def latency_of(log: MotionLog, feet: Feet, mount: FloatArray) -> Latency | None:
    """Latency of the IMU; None where too little is on the ground or nothing turns.

    Two feet that stand say how the base turns, but for the rotation about the line through both: their speeds against
    the base differ by its turning rate times their distance.

    Args:
        log: The recording, with encoders' offsets taken off.
        feet: Its kinematics.
        mount: Shape (3, 3), rotates vectors of the IMU's frame into the base frame.
    """
    edge_s = float(-LAGS_S[0]) + 0.01
    inside = (log.time_s > log.time_s[0] + edge_s) & (log.time_s < log.time_s[-1] - LAGS_S[-1] - edge_s)
    standing, usable = (log.foot_contact > 0.5).sum(axis=1), inside & _settled(log)
    # Three feet on the ground hold each other; two of a trot rock and slip, which looks like a lag.
    counts = [least for least in COMPLIANCE_S if (usable & (standing >= least)).sum() >= MIN_TURNING_ROWS]
    if not counts:
        return None
    rows = np.flatnonzero(usable & (standing >= counts[0]))
    rows = rows[:: max(1, len(rows) // 12000)]
    up = up_by_imu(log.quat_base_to_world_wxyz[rows]) @ mount.T
    points, speeds = feet.motion(log.joint_pos_rad[rows], log.joint_vel_rad_s[rows], up)
    arms, gaps, times = _pairs(points, speeds, log.foot_contact[rows] > 0.5, log.time_s[rows])
    grid_s, gyro = _smoothed(log)
    turning, slope = gyro @ mount.T, np.gradient(gyro @ mount.T, grid_s, axis=0)

    def residuals(lag_s: float) -> tuple[FloatArray, FloatArray]:
        at = times + lag_s
        rate = np.stack([np.interp(at, grid_s, turning[:, axis]) for axis in range(3)], axis=1)
        change = np.stack([np.interp(at, grid_s, slope[:, axis]) for axis in range(3)], axis=1)
        return np.cross(rate, arms) + gaps, np.cross(change, arms)

    lag_s = float(min(LAGS_S, key=lambda lag: float(np.median(np.abs(residuals(float(lag))[0])))))
    block = (times // BLOCK_S).astype(np.intp)
    deviation_s = np.inf
    for _ in range(12):
        error, change = residuals(lag_s)
        size = np.linalg.norm(error, axis=1)
        good = size < 4.0 * np.median(size)
        power = float((change[good] ** 2).sum())
        if power <= 1e-9:
            return None
        score = (change * error).sum(axis=1) * good
        lag_s = float(np.clip(lag_s - score.sum() / power, LAGS_S[0], LAGS_S[-1]))
        sums = np.bincount(block - block.min(), weights=score)
        deviation_s = float(np.sqrt((sums**2).sum())) / power
    return Latency(lag_s, SMALL_SAMPLE * float(np.hypot(deviation_s, COMPLIANCE_S[counts[0]])), len(rows))


def _pairs(
    points: FloatArray, speeds: FloatArray, contact: BoolArray, times_s: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Distances and differences of speeds, (k, 3) each, of pairs of feet that stand, and their times (k,)."""
    arms, gaps, times = [], [], []
    feet = points.shape[1]
    for i in range(feet):
        for j in range(i + 1, feet):
            both = contact[:, i] & contact[:, j]
            arms.append((points[:, i] - points[:, j])[both])
            gaps.append((speeds[:, i] - speeds[:, j])[both])
            times.append(times_s[both])
    order = np.argsort(np.concatenate(times), kind="stable")
    return np.concatenate(arms)[order], np.concatenate(gaps)[order], np.concatenate(times)[order]


def _smoothed(log: MotionLog) -> tuple[FloatArray, FloatArray]:
    """Even times (k,), s, and the smoothed gyroscope (k, 3), rad/s, in the IMU's frame."""
    step_s = 1.0 / log.rate_hz
    grid_s = np.arange(log.time_s[0], log.time_s[-1], step_s)
    gyro = np.stack([np.interp(grid_s, log.time_s, log.ang_vel_base_in_base_rad_s[:, i]) for i in range(3)], axis=1)
    reach = max(1, round(4.0 * SMOOTH_S / step_s))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step_s / SMOOTH_S) ** 2)
    kernel /= kernel.sum()
    smooth = [np.convolve(gyro[:, i], kernel, mode="same").astype(np.float64) for i in range(3)]
    return np.asarray(grid_s, np.float64), np.stack(smooth, axis=1)
