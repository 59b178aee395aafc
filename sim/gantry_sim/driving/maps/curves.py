"""Planar curves whose curvature is piecewise linear in arc length: straights, arcs and the clothoids between them.

Heading is the integral of curvature, so it is exact; position is integrated with Gauss-Legendre quadrature.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_hardware.errors import GantryError

FloatArray = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_STEP_M = 1.0


@dataclass(frozen=True)
class Pose:
    """A place and a heading in the plane, world frame."""

    x: float
    """World, m."""

    y: float
    """World, m."""

    yaw: float
    """Counter-clockwise from world x, rad."""

    def ahead(self, forward_m: float, left_m: float = 0.0, turn_rad: float = 0.0) -> Pose:
        """The pose ``forward_m`` ahead of and ``left_m`` beside this one, turned by ``turn_rad``."""
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        return Pose(
            self.x + forward_m * cos - left_m * sin, self.y + forward_m * sin + left_m * cos, self.yaw + turn_rad
        )

    def reversed(self) -> Pose:
        """The same place, looking back."""
        return Pose(self.x, self.y, self.yaw + math.pi)

    def seen_from(self, other: Pose) -> Pose:
        """This pose in the frame of ``other``."""
        dx, dy = self.x - other.x, self.y - other.y
        cos, sin = math.cos(other.yaw), math.sin(other.yaw)
        return Pose(cos * dx + sin * dy, -sin * dx + cos * dy, self.yaw - other.yaw)


@dataclass(frozen=True)
class Piece:
    """A stretch over which curvature changes linearly."""

    length_m: float
    """Arc length, m, not negative."""

    start_curvature: float
    """At its start, 1/m, left turns positive."""

    end_curvature: float
    """At its end, 1/m."""


class Curve:
    """A curve from ``start`` along pieces of linear curvature.

    Args:
        start: Pose at arc length 0.
        pieces: In order; pieces of no length are dropped.

    Raises:
        GantryError: Nothing is left, or a length is negative.
    """

    def __init__(self, start: Pose, pieces: Sequence[Piece]) -> None:
        if any(piece.length_m < -1e-9 for piece in pieces):
            raise GantryError(f"A curve's pieces must have lengths >= 0 m, not {[p.length_m for p in pieces]}.")
        kept = [piece for piece in pieces if piece.length_m > 1e-9]
        if not kept:
            raise GantryError("A curve needs at least one piece longer than 0 m.")
        self.start = start
        self.pieces = tuple(kept)
        lengths = np.array([piece.length_m for piece in kept])
        self._k0 = np.array([piece.start_curvature for piece in kept])
        self._slope = (np.array([piece.end_curvature for piece in kept]) - self._k0) / lengths
        self._s0 = np.concatenate([[0.0], np.cumsum(lengths)])
        turns = self._k0 * lengths + 0.5 * self._slope * lengths**2
        self._yaw0 = start.yaw + np.concatenate([[0.0], np.cumsum(turns)])

    @property
    def length_m(self) -> float:
        """Arc length of the whole."""
        return float(self._s0[-1])

    @functools.cached_property
    def _knots(self) -> tuple[FloatArray, FloatArray]:
        """Arc lengths between which a quadrature is good to far below a micrometre, and the positions there."""
        cuts = [
            np.linspace(a, b, max(2, math.ceil((b - a) / _STEP_M) + 1))[:-1]
            for a, b in zip(self._s0[:-1], self._s0[1:], strict=True)
        ]
        s = np.concatenate([*cuts, self._s0[-1:]])
        steps = self._displacement(s[:-1], s[1:])
        origin = np.array([[self.start.x, self.start.y]])
        return s, np.concatenate([origin, origin + np.cumsum(steps, axis=0)])

    def _displacement(self, begin: FloatArray, end: FloatArray) -> FloatArray:
        half = 0.5 * (end - begin)
        at = 0.5 * (begin + end)[:, None] + half[:, None] * _NODES
        yaw = self.yaw(at)
        return half[:, None] * np.stack([np.cos(yaw) @ _WEIGHTS, np.sin(yaw) @ _WEIGHTS], axis=1)

    def _piece(self, s: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        index = np.clip(np.searchsorted(self._s0, s, side="right") - 1, 0, len(self.pieces) - 1)
        return index, s - self._s0[index]

    def yaw(self, s_m: ArrayLike) -> FloatArray:
        """Heading at arc lengths of any shape, rad, not wrapped."""
        index, u = self._piece(np.asarray(s_m, dtype=float))
        return self._yaw0[index] + self._k0[index] * u + 0.5 * self._slope[index] * u**2

    def curvature(self, s_m: ArrayLike) -> FloatArray:
        """Curvature at arc lengths of any shape, 1/m."""
        index, u = self._piece(np.asarray(s_m, dtype=float))
        return self._k0[index] + self._slope[index] * u

    def position(self, s_m: FloatArray) -> FloatArray:
        """World x and y at arc lengths (n,), shape (n, 2), m."""
        knots, positions = self._knots
        index = np.clip(np.searchsorted(knots, s_m, side="right") - 1, 0, len(knots) - 2)
        return positions[index] + self._displacement(knots[index], s_m)

    @property
    def end(self) -> Pose:
        """Pose at the end."""
        (x, y), yaw = self._knots[1][-1], float(self._yaw0[-1])
        return Pose(float(x), float(y), yaw)

    def parallel(self, left_m: float, spacing_m: float = 1.0) -> FloatArray:
        """Points of the curve at ``left_m`` beside this one, equally spaced by about ``spacing_m``.

        Arc length there is s - left_m * (yaw - yaw at the start), curvature is k / (1 - left_m * k).

        Returns:
            Shape (n, 4): world x, y in m, yaw in rad (not wrapped), curvature in 1/m.

        Raises:
            GantryError: The parallel curve folds back, because a bend is tighter than ``left_m``.
        """
        tightest = max((left_m * k for p in self.pieces for k in (p.start_curvature, p.end_curvature)), default=0.0)
        if tightest >= 0.98:
            raise GantryError(
                f"A parallel at {left_m} m folds: left_m * curvature reaches {tightest:.2f}, must be < 1."
            )
        fine = np.linspace(0.0, self.length_m, max(3, math.ceil(self.length_m / 0.25) + 1))
        along = fine - left_m * (self.yaw(fine) - self.start.yaw)
        count = max(1, round(float(along[-1]) / spacing_m))
        s = np.interp(np.linspace(0.0, along[-1], count + 1), along, fine)
        yaw, curvature = self.yaw(s), self.curvature(s)
        normal = np.stack([-np.sin(yaw), np.cos(yaw)], axis=1)
        points = self.position(s) + left_m * normal
        return np.column_stack([points, yaw, curvature / (1.0 - left_m * curvature)])


def turned_around(points: FloatArray) -> FloatArray:
    """The same points (n, 4) driven the other way."""
    back = points[::-1].copy()
    back[:, 2] += math.pi
    back[:, 3] *= -1.0
    return back


def bend(turn_rad: float, length_m: float, transition: float) -> tuple[Piece, ...]:
    """Clothoid, arc, clothoid: a bend that begins and ends straight.

    Args:
        turn_rad: Change of heading, left positive.
        length_m: Arc length of the whole.
        transition: Share of the length in each clothoid, in (0, 0.5].
    """
    if not 0.0 < transition <= 0.5:
        raise GantryError(f"transition must be in (0, 0.5], not {transition}.")
    peak = turn_rad / (length_m * (1.0 - transition))
    ramp = transition * length_m
    return Piece(ramp, 0.0, peak), Piece(length_m - 2 * ramp, peak, peak), Piece(ramp, peak, 0.0)


def connect(start: Pose, end: Pose, transition: float = 0.3) -> tuple[Piece, ...]:
    """Pieces from one pose to another whose tangents cross ahead of the one and behind the other.

    A symmetric bend fills the shorter tangent, a straight the rest of the longer one; curvature is zero at both ends.

    Raises:
        GantryError: The tangents do not cross so, or the poses are parallel and not in line.
    """
    there = end.seen_from(start)
    turn = math.remainder(there.yaw, 2 * math.pi)
    if abs(math.sin(turn)) < 1e-6:
        if abs(there.y) > 1e-6 or there.x <= 0.0 or math.cos(turn) < 0.0:
            raise GantryError(f"No straight leads from {start} to {end}.")
        return (Piece(there.x, 0.0, 0.0),)
    after = there.y / math.sin(turn)
    before = there.x - after * math.cos(turn)
    if min(before, after) <= 0.0:
        raise GantryError(
            f"The tangents of {start} and {end} cross {before:.2f} m ahead and {after:.2f} m behind; > 0."
        )
    unit = Curve(Pose(0.0, 0.0, 0.0), bend(turn, 1.0, transition)).end
    length = min(before, after) / (unit.y / math.sin(turn))
    return (
        Piece(before - min(before, after), 0.0, 0.0),
        *bend(turn, length, transition),
        Piece(after - min(before, after), 0.0, 0.0),
    )
