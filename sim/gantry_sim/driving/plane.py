"""Poses and polylines in the plane, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def placed(pose: Sequence[float] | NDArray[Any], places_m: ArrayLike) -> FloatArray:
    """Places in the world that are told from a pose.

    Args:
        pose: x, y in m and yaw in rad; what else it holds does not count.
        places_m: Shape (..., 2), ahead of it and to its left.
    """
    x, y, yaw = (float(value) for value in pose[:3])
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.asarray(places_m, dtype=np.float64) @ np.array([[cos, sin], [-sin, cos]]) + np.array([x, y])


def lengths_along(points_m: NDArray[Any]) -> FloatArray:
    """Length, m, of the polyline through points (P, 2), of any frame, up to each of them, shape (P,)."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points_m, axis=0).T))])


def points_at(points_m: NDArray[Any], along_m: NDArray[Any], places_m: ArrayLike) -> FloatArray:
    """Points (n, 2) of a polyline, in its frame, at lengths (n,) along it; its ends beyond them.

    Args:
        points_m: Shape (P, 2).
        along_m: Shape (P,), see :func:`lengths_along`.
        places_m: Shape (n,).
    """
    places = np.asarray(places_m, dtype=np.float64)
    return np.stack([np.interp(places, along_m, points_m[:, axis]) for axis in (0, 1)], axis=-1)
