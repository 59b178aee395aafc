"""Forward kinematics and Jacobian of an arm's end effector, for numpy and torch (Array API standard).

Rodrigues' formula makes the rotation about an axis k by q ``I + sin(q) K + (1 - cos(q)) K^2`` with ``K = [k]x``. With
the constant rotation A of a joint's frame in the one before, a link's rotation is thus ``A + sin(q) B + (1 - cos(q))
C`` with B = A K and C = A K^2, which all joints compute at once; only the products along the chain are one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import device

from gantry_hardware.model.chain import Chain
from gantry_mapping.elevation.ops import namespace, solve
from gantry_mapping.sensing.frames import rotation_matrix

Array = Any


class ArmKinematics:
    """Forward kinematics of N arms of one kind; n joints.

    Args:
        chain: The geometry.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, chain: Chain, like: Array) -> None:
        xp = namespace(like)

        def asarray(values: Any) -> Array:
            return xp.asarray(np.asarray(values).tolist(), dtype=like.dtype, device=device(like))

        self.chain = chain
        self.num_joints = len(chain.frames)
        fixed = np.stack([_matrix(frame.quat_wxyz) for frame in chain.frames])
        cross = np.stack([_cross(frame.axis) for frame in chain.frames])
        self._xp = xp
        self._a, self._b, self._c = asarray(fixed), asarray(fixed @ cross), asarray(fixed @ cross @ cross)
        self._pos = [asarray([[x] for x in frame.pos_m]) for frame in chain.frames]
        self._axes = [asarray([[x] for x in frame.axis]) for frame in chain.frames]
        self._ee_pos = asarray([[x] for x in chain.pos_ee_m])
        self._ee_rot = asarray(_matrix(chain.quat_ee_wxyz))

    def forward(self, joint_pos_rad: Array) -> tuple[Array, Array]:
        """Pose of the end effector in the base frame.

        Args:
            joint_pos_rad: Shape (N, n), in the chain's order.

        Returns:
            Position (N, 3), m, and rotation matrix (N, 3, 3) that takes vectors from the end effector's frame.
        """
        rotation, position = None, self._pos[0]
        for i, local in enumerate(self._links(joint_pos_rad)):
            if rotation is None:
                rotation = local
                continue
            position = position + rotation @ self._pos[i]
            rotation = rotation @ local
        assert rotation is not None
        return (position + rotation @ self._ee_pos)[..., 0], rotation @ self._ee_rot

    def jacobian(self, joint_pos_rad: Array) -> tuple[Array, Array, Array]:
        """Pose of the end effector, and its velocity per velocity of each joint.

        A revolute joint with axis z at p turns the end effector at e with z and moves it with ``z x (e - p)``.

        Args:
            joint_pos_rad: Shape (N, n), in the chain's order.

        Returns:
            Position (N, 3), m; rotation (N, 3, 3); and the geometric Jacobian (N, 6, n) in the base frame: linear
            velocity (m/rad), then angular velocity (rad/rad).
        """
        xp = self._xp
        rotation, position = None, self._pos[0]
        places, axes = [], []
        for i, local in enumerate(self._links(joint_pos_rad)):
            if rotation is None:
                rotation = local
            else:
                position = position + rotation @ self._pos[i]
                rotation = rotation @ local
            # Broadcast: where the first joint sits depends on no angle.
            places.append(position + xp.zeros_like(rotation[:, :, :1]))
            axes.append(rotation @ self._axes[i])
        assert rotation is not None
        tip = position + rotation @ self._ee_pos
        axis = xp.concat(axes, axis=-1)
        linear = _cross_columns(xp, axis, tip - xp.concat(places, axis=-1))
        return tip[..., 0], rotation @ self._ee_rot, xp.concat((linear, axis), axis=-2)

    def _links(self, joint_pos_rad: Array) -> list[Array]:
        """Rotation of each joint's frame in the one before, n of (N, 3, 3)."""
        sin, cos = self._xp.sin(joint_pos_rad), self._xp.cos(joint_pos_rad)
        local = self._a + sin[..., None, None] * self._b + (1.0 - cos)[..., None, None] * self._c
        return [local[:, i] for i in range(self.num_joints)]


def rotation_error(rotation: Array, wanted: Array) -> Array:
    """The rotation vector (N, 3), rad, in the base frame, that takes ``rotation`` (N, 3, 3) to ``wanted`` (N, 3, 3).

    Exact in its direction and, up to a quarter of a turn, in its length: the antisymmetric part of the rotation between
    them has the length sin(angle).
    """
    xp = namespace(rotation)
    between = wanted @ xp.matrix_transpose(rotation)
    vector = 0.5 * xp.stack(
        (
            between[:, 2, 1] - between[:, 1, 2],
            between[:, 0, 2] - between[:, 2, 0],
            between[:, 1, 0] - between[:, 0, 1],
        ),
        axis=-1,
    )
    sine = xp.sqrt(xp.sum(vector * vector, axis=-1, keepdims=True))
    cosine = 0.5 * (between[:, 0, 0] + between[:, 1, 1] + between[:, 2, 2] - 1.0)[:, None]
    angle = xp.atan2(sine, cosine)
    small = sine < 1e-4
    return vector * xp.where(small, xp.ones_like(sine), angle / xp.where(small, xp.ones_like(sine), sine))


def rotation_of_vector(vector_rad: Array) -> Array:
    """Rotation matrices (N, 3, 3) of rotation vectors (N, 3), rad."""
    xp = namespace(vector_rad)
    angle = xp.sqrt(xp.sum(vector_rad * vector_rad, axis=-1, keepdims=True))
    tiny = angle < 1e-8
    half = 0.5 * angle
    share = xp.where(tiny, 0.5 * xp.ones_like(angle), xp.sin(half) / xp.where(tiny, xp.ones_like(angle), angle))
    return rotation_matrix(xp.concat((xp.cos(half), vector_rad * share), axis=-1))


def damped_step(jacobian: Array, error: Array, damping: float) -> Array:
    """Joint steps (N, n) that reduce a pose error (N, 6): damped least squares, ``J^T (J J^T + damping^2 I)^-1 e``.

    The damping bounds the step where the arm is stretched out and the inverse would not (Wampler 1986; Nakamura and
    Hanafusa 1986).
    """
    xp = namespace(jacobian)
    square = jacobian @ xp.matrix_transpose(jacobian)
    eye = xp.eye(square.shape[-1], dtype=square.dtype, device=device(square))
    weights = solve(square + damping**2 * eye, error[..., None])
    return (xp.matrix_transpose(jacobian) @ weights)[..., 0]


def _matrix(quat_wxyz: tuple[float, ...]) -> np.ndarray:
    quat = np.asarray(quat_wxyz, dtype=np.float64)
    return rotation_matrix((quat / np.linalg.norm(quat))[None])[0]


def _cross(axis: tuple[float, ...]) -> np.ndarray:
    x, y, z = axis
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def _cross_columns(xp: Any, left: Array, right: Array) -> Array:
    """Cross products of the columns of (N, 3, n) arrays."""
    a, b, c = left[:, 0], left[:, 1], left[:, 2]
    x, y, z = right[:, 0], right[:, 1], right[:, 2]
    return xp.stack((b * z - c * y, c * x - a * z, a * y - b * x), axis=-2)
