"""Rigid motions as pairs of a rotation matrix (3, 3) and a translation (3,), m; and a least-squares solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.depth.site import quat_of_rpy
from gantry_mapping.sensing.frames import rotation_matrix

FloatArray = NDArray[np.float64]


class Pose(NamedTuple):
    """Pose of a frame A in a frame B: a point p in A is ``rotation @ p + pos_m`` in B."""

    rotation: FloatArray
    """Shape (3, 3)."""
    pos_m: FloatArray
    """Shape (3,)."""

    def __matmul__(self, other: Pose) -> Pose:
        """First the other one, then this one."""
        return Pose(self.rotation @ other.rotation, self.rotation @ other.pos_m + self.pos_m)

    def inverse(self) -> Pose:
        """The pose of B in A."""
        return Pose(self.rotation.T, -self.rotation.T @ self.pos_m)

    def apply(self, points_m: FloatArray) -> FloatArray:
        """Points (N, 3) in frame A, in frame B [m]."""
        return points_m @ self.rotation.T + self.pos_m


def pose_of_rpy(numbers: Sequence[float]) -> Pose:
    """The pose of x, y, z in m and roll, pitch, yaw in rad about fixed axes."""
    quat = np.array([quat_of_rpy(*numbers[3:6])])
    return Pose(rotation_matrix(quat)[0], np.array(numbers[:3], dtype=np.float64))


def turn_of(rotvec: FloatArray) -> FloatArray:
    """The rotation matrix (3, 3) of a turn (3,), its axis times its angle in rad."""
    angle = float(np.linalg.norm(rotvec))
    x, y, z = rotvec
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    if angle < 1e-8:
        return np.eye(3) + cross
    return np.eye(3) + np.sin(angle) / angle * cross + (1.0 - np.cos(angle)) / angle**2 * cross @ cross


def rotvec_of(rotation: FloatArray) -> FloatArray:
    """The turn (3,) of a rotation matrix, its axis times its angle in rad, up to pi."""
    from gantry_deploy.depth.site import quat_of_matrix

    quat = np.array(quat_of_matrix(rotation))
    size = float(np.linalg.norm(quat[1:]))
    if size < 1e-12:
        return np.zeros(3)
    return 2.0 * np.arctan2(size, quat[0]) * quat[1:] / size


def angle_between(a: FloatArray, b: FloatArray) -> float:
    """Angle between two rotation matrices (3, 3), rad."""
    return float(np.linalg.norm(rotvec_of(a.T @ b)))


def moved(pose: Pose, step: FloatArray) -> Pose:
    """A pose a small step (6,) further: a turn in its own frame [rad], then a translation [m]."""
    return Pose(pose.rotation @ turn_of(step[:3]), pose.pos_m + step[3:])


def least_squares(
    start: list[Pose], residuals: Callable[[list[Pose]], FloatArray], rounds: int = 50
) -> tuple[list[Pose], FloatArray]:
    """The poses with the least squares of residuals, by Levenberg's method from a start that is near.

    Args:
        start: The poses.
        residuals: From poses to residuals (K,), in any unit.
        rounds: Most steps.

    Returns:
        Poses, and the covariance (6 P, 6 P) of their steps for the scatter that the residuals show.
    """
    poses, damping = list(start), 1e-3
    value = residuals(poses)
    jacobian = np.zeros((len(value), 6 * len(poses)))
    for _ in range(rounds):
        for k in range(jacobian.shape[1]):
            step = np.zeros(6)
            step[k % 6] = 1e-6
            changed = [moved(pose, step) if i == k // 6 else pose for i, pose in enumerate(poses)]
            jacobian[:, k] = (residuals(changed) - value) / 1e-6
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ value
        change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -gradient)
        trial = [moved(pose, np.asarray(change[6 * i : 6 * i + 6], np.float64)) for i, pose in enumerate(poses)]
        found = residuals(trial)
        if found @ found > value @ value:
            damping *= 10.0
            if damping > 1e9:
                break
            continue
        gain = value @ value - found @ found
        poses, value, damping = trial, found, max(1e-9, 0.1 * damping)
        if gain <= 1e-12 * (value @ value + 1e-30):
            break
    free = max(1, len(value) - jacobian.shape[1])
    return poses, np.linalg.pinv(jacobian.T @ jacobian) * (value @ value) / free
