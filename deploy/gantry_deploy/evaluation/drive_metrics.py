"""Driving scores in the terms of CARLA's leaderboard: completion, infractions, and their product.

The same definition scores training, the simulated car over ROS 2 and other simulators. What it measures on procedural
routes says nothing about CARLA's own routes: a score falls with the length of a route, since penalties multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.evaluation.metrics import Score, bootstrap_mean, rate_interval
from gantry_hardware.errors import GantryError, UnknownNameError

FloatArray = NDArray[np.float64]

COEFFICIENTS: dict[str, dict[str, float]] = {
    "carla-2.0": {
        "pedestrian": 0.50,
        "vehicle": 0.60,
        "static": 0.65,
        "red_light": 0.70,
        "stop_sign": 0.80,
        "blocked": 0.70,
    },
}
"""Version -> what each infraction leaves of a score, once for every time it happens."""
COLLISIONS = ("pedestrian", "vehicle", "static")
"""Infractions that are collisions."""


@dataclass(frozen=True)
class DriveEpisodes:
    """E finished episodes."""

    completion: FloatArray
    """Shape (E,), share of the route that was driven, 0 to 1."""
    driven_m: FloatArray
    """Shape (E,), along the route."""
    duration_s: FloatArray
    """Shape (E,)."""
    infractions: Mapping[str, NDArray[np.integer]]
    """Kind, a name in :data:`COEFFICIENTS`, -> how often it happened, shape (E,)."""
    off_route_share: FloatArray
    """Shape (E,), share of the time outside the route's lanes; the leaderboard counts the way."""
    lateral_rmse_m: FloatArray
    """Shape (E,), root of the mean square distance from the lane's middle."""
    discomfort_share: FloatArray
    """Shape (E,), share of the time in which some limit of comfort was exceeded."""

    def __post_init__(self) -> None:
        count = len(self.completion)
        sizes = {name: len(values) for name, values in vars(self).items() if name != "infractions"}
        sizes |= {name: len(values) for name, values in self.infractions.items()}
        wrong = {name: size for name, size in sizes.items() if size != count}
        if wrong:
            raise GantryError(f"There are {count} episodes, but of {wrong}.")
        if not count:
            raise GantryError("There is no finished episode to score.")


@dataclass(frozen=True)
class DriveScores:
    """Means over episodes with 95 % intervals."""

    coefficients: str
    """Version of the penalties, a name of :data:`COEFFICIENTS`."""
    episodes: int
    """E."""
    driving_score: Score
    """Completion times penalties, 0 to 100."""
    completion: Score
    """In percent."""
    infraction_score: Score
    """Product of the penalties, 0 to 1."""
    finished: Score
    """Share of episodes that drove the whole route."""
    collided: Score
    """Share of episodes with a collision."""
    lateral_rmse_m: Score
    """Mean over episodes."""
    discomfort: Score
    """Share of the time outside the limits of comfort."""
    per_km: dict[str, float]
    """Infractions of each kind for each kilometre driven by all episodes together."""
    km: float
    """Kilometres driven by all of them."""


def infraction_scores(episodes: DriveEpisodes, version: str = "carla-2.0") -> FloatArray:
    """Product of the penalties of each episode, shape (E,), 0 to 1.

    Args:
        episodes: What happened.
        version: A name of :data:`COEFFICIENTS`.

    Raises:
        UnknownNameError: If there is no such version, or an infraction that it does not know.
    """
    if version not in COEFFICIENTS:
        raise UnknownNameError("version of penalties", version, COEFFICIENTS)
    left = 1.0 - np.asarray(episodes.off_route_share, dtype=np.float64)
    for kind, counts in episodes.infractions.items():
        if kind not in COEFFICIENTS[version]:
            raise UnknownNameError(f"infraction of {version}", kind, COEFFICIENTS[version])
        left = left * COEFFICIENTS[version][kind] ** np.asarray(counts)
    return left


def drive_scores(episodes: DriveEpisodes, version: str = "carla-2.0") -> DriveScores:
    """Score episodes.

    Args:
        episodes: What happened.
        version: A name of :data:`COEFFICIENTS`.

    Raises:
        UnknownNameError: See :func:`infraction_scores`.
    """
    kept = infraction_scores(episodes, version)
    count = len(kept)
    collided = sum(
        (np.asarray(episodes.infractions.get(kind, np.zeros(count))) for kind in COLLISIONS), np.zeros(count)
    )
    km = float(np.sum(episodes.driven_m)) / 1000.0
    return DriveScores(
        coefficients=version,
        episodes=count,
        driving_score=bootstrap_mean(100.0 * episodes.completion * kept),
        completion=bootstrap_mean(100.0 * episodes.completion),
        infraction_score=bootstrap_mean(kept),
        finished=rate_interval(int(np.sum(episodes.completion >= 1.0)), count),
        collided=rate_interval(int(np.sum(collided > 0)), count),
        lateral_rmse_m=bootstrap_mean(episodes.lateral_rmse_m),
        discomfort=bootstrap_mean(episodes.discomfort_share),
        per_km={kind: float(np.sum(n)) / max(km, 1e-9) for kind, n in episodes.infractions.items()},
        km=km,
    )
