"""Distribution of a wrench on the base to contact forces of the feet (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_mapping.elevation.ops import namespace

Array = Any

WEIGHTS = (1.0, 1.0, 2.0, 20.0, 10.0, 5.0)
"""Weights of a newton of the force and a newton metre of the torque, x, y and z each, where not all can be given."""
REGULAR = 0.01
"""Weight of the forces themselves."""
STRONGEST_N = 220.0
"""Most that a foot pushes with along z."""


def skew(vector: Array) -> Array:
    """Matrices (..., 3, 3) of the cross product with vectors (..., 3) of any unit."""
    xp = namespace(vector)
    x, y, z = vector[..., 0], vector[..., 1], vector[..., 2]
    zero = xp.zeros_like(x)
    return xp.reshape(xp.stack((zero, -z, y, z, zero, -x, -y, x, zero), axis=-1), (*x.shape, 3, 3))


def foot_forces(force_n: Array, torque_nm: Array, arms_m: Array, on: Array, friction: float) -> Array:
    """Forces of the ground on each foot, (N, f, 3), N.

    Regularised least squares, after which each foot is limited by itself: it pushes and does not pull, and slides not.

    Args:
        force_n: (N, 3) wanted on the base; all vectors in one frame whose z is up.
        torque_nm: (N, 3) wanted about its centre of mass.
        arms_m: (N, f, 3) from there to the feet.
        on: (N, f) bool, which feet are on the ground; the others carry nothing.
        friction: Greatest horizontal force, as a share of the vertical one.
    """
    xp = namespace(force_n)
    count, feet = on.shape
    place = {"dtype": force_n.dtype, "device": device(force_n)}
    carries, weights = xp.astype(on, force_n.dtype), xp.asarray(WEIGHTS, **place)
    turns = skew(-arms_m)
    unit = xp.eye(3, **place) + xp.zeros_like(turns)
    back = xp.concat((unit, turns), axis=-1) * carries[:, :, None, None] * weights
    back = xp.reshape(back, (count, 3 * feet, 6))
    wanted = xp.concat((force_n, torque_nm), axis=-1) * weights
    normal = xp.matrix_transpose(back) @ back + REGULAR * xp.eye(6, **place)
    forces = xp.reshape(back @ xp.linalg.solve(normal, wanted[..., None]), (count, feet, 3))
    up = limited(forces[..., 2], 0.0, STRONGEST_N) * carries
    flat = forces[..., :2]
    norm = xp.sqrt(xp.sum(flat * flat, axis=-1))
    limit = limited(friction * up / limited(norm, 1e-6, None), None, 1.0)
    return xp.concat((flat * limit[..., None], up[..., None]), axis=-1)
