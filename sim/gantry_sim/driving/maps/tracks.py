"""Random closed race tracks for small cars: cubic B-splines of a jittered ring of points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.graph import FloatArray
from gantry_sim.driving.maps.lines import Line

_DENSE = 100
"""Points per spline segment before they are spaced equally."""


@dataclass(frozen=True)
class TrackConfig:
    """Settings of race tracks. Defaults suit cars at a tenth of the size, with 0.75 m of turning radius."""

    width_m: tuple[float, float] = (2.0, 3.0)
    """Range of the width, one per track."""

    length_m: tuple[float, float] = (60.0, 120.0)
    """Range of the length of the middle line."""

    corners: tuple[int, int] = (11, 18)
    """Fewest and most control points."""

    roughness: float = 0.75
    """Distance by which control points may move towards the middle, as a share of their distance from it."""

    boomerang: float = 0.8
    """Degree to which the ring of control points may be bent into a boomerang, so that tracks differ more."""

    tightest_radius_m: float = 1.5
    """No bend of the middle line is tighter than this, nor than the inner border allows."""

    spacing_m: float = 0.25
    """Distance between points."""

    speed_limit_m_s: float = 20.0
    """Written into the table; the car's own limits are usually lower."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.roughness < 1.0:
            raise GantryError(f"roughness must be in [0, 1), not {self.roughness}.")
        if self.corners[0] < 4:
            raise GantryError(f"A track needs at least 4 corners, not {self.corners[0]}.")


def race_track(seed: int, config: TrackConfig | None = None) -> Line:
    """A closed track that does not come near itself, driven one way or the other as chance has it.

    Args:
        seed: The same seed gives the same track; splits as for maps.
        config: What tracks look like.

    Raises:
        GantryError: A thousand random tracks all touched themselves or bent too tightly.
    """
    config = config or TrackConfig()
    rng = np.random.default_rng([seed, 7])
    for _ in range(1000):
        line = _attempt(rng, config)
        if line is not None:
            return line
    raise GantryError(f"No track for seed {seed} within {config}; try longer, narrower or smoother ones.")


def _attempt(rng: Generator, config: TrackConfig) -> Line | None:
    corners = int(rng.integers(config.corners[0], config.corners[1] + 1))
    angles = 2 * math.pi * (np.arange(corners) + rng.uniform(-0.3, 0.3, corners)) / corners + rng.uniform(
        0, 2 * math.pi
    )
    radii = 1.0 - config.roughness * rng.uniform(0.0, 1.0, corners)
    points = radii[:, None] * np.stack([rng.uniform(0.5, 1.0) * np.cos(angles), np.sin(angles)], axis=1)
    points[:, 0] += config.boomerang * rng.uniform() * points[:, 1] ** 2
    yaw = rng.uniform(0.0, 2 * math.pi)
    points = points @ np.array([[math.cos(yaw), math.sin(yaw)], [-math.sin(yaw), math.cos(yaw)]])
    if rng.uniform() < 0.5:
        points = points[::-1]
    wanted, width = float(rng.uniform(*config.length_m)), float(rng.uniform(*config.width_m))
    table = _equally_spaced(points, wanted, config.spacing_m)
    if np.abs(table[:, 3]).max() > 1.0 / max(config.tightest_radius_m, 0.75 * width):
        return None
    if comes_near_itself(table[:-1, :2], config.spacing_m, width):
        return None
    half = np.full((len(table), 2), 0.5 * width)
    rest = np.tile([config.speed_limit_m_s, 0.0], (len(table), 1))
    full = np.column_stack([table, half, rest, half])
    full.setflags(write=False)
    return Line(full, closed=True)


def _equally_spaced(control: FloatArray, length_m: float, spacing_m: float) -> FloatArray:
    """The uniform cubic B-spline of control points, scaled to a length: x, y, yaw, curvature at equal distances.

    Curvature of a cubic B-spline is continuous, since its second derivative is.
    """
    count = len(control)
    t = np.arange(count * _DENSE) / _DENSE
    segment, u = t.astype(int), t % 1.0
    around = [control[(segment + k - 1) % count] for k in range(4)]
    basis = [(1 - u) ** 3 / 6, (3 * u**3 - 6 * u**2 + 4) / 6, (-3 * u**3 + 3 * u**2 + 3 * u + 1) / 6, u**3 / 6]
    first = [-((1 - u) ** 2) / 2, (3 * u**2 - 4 * u) / 2, (-3 * u**2 + 2 * u + 1) / 2, u**2 / 2]
    second = [1 - u, 3 * u - 2, 1 - 3 * u, u]
    p, d1, d2 = (
        sum((w[:, None] * a for w, a in zip(weights, around, strict=True)), np.zeros((len(t), 2)))
        for weights in (basis, first, second)
    )
    steps = np.hypot(*(np.roll(p, -1, axis=0) - p).T)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    scale = length_m / along[-1]
    yaw = np.unwrap(np.arctan2(d1[:, 1], d1[:, 0]))
    yaw = np.append(yaw, yaw[0] + 2 * math.pi * round((yaw[-1] - yaw[0]) / (2 * math.pi)))
    curvature = (d1[:, 0] * d2[:, 1] - d1[:, 1] * d2[:, 0]) / np.hypot(*d1.T) ** 3 / scale
    dense = np.column_stack([np.vstack([p, p[:1]]) * scale, yaw, np.append(curvature, curvature[0])])
    at = np.linspace(0.0, along[-1], max(8, round(length_m / spacing_m)) + 1)
    return np.stack([np.interp(at, along, column) for column in dense.T], axis=1)


def comes_near_itself(points: FloatArray, spacing_m: float, width_m: float) -> bool:
    """Whether points far apart along the track lie closer than its width and some wall between."""
    count, room = len(points), 1.15 * width_m
    gap = points[:, None] - points
    apart = np.abs(np.arange(count)[:, None] - np.arange(count))
    apart = np.minimum(apart, count - apart) * spacing_m
    # Along a half circle of the tightest radius the distance is 2 / pi of the way.
    return bool(np.any((gap**2).sum(-1)[apart > 1.7 * room] < room**2))
