"""Maps with routes of one length through them, by split: what a task trains and is judged on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gantry_sim.driving.maps.generate import MapConfig, lane_map, split_seeds
from gantry_sim.driving.maps.graph import LaneMap, table_digest
from gantry_sim.driving.maps.lines import Line
from gantry_sim.driving.maps.routes import random_route


@dataclass(frozen=True)
class RouteSet:
    """Maps and routes through them."""

    maps: tuple[LaneMap, ...]
    """The maps, in the order of their seeds."""

    routes: tuple[Line, ...]
    """All routes, map after map."""

    map_of_route: NDArray[np.int64]
    """Which map each route leads through, shape (routes,)."""

    @property
    def digest(self) -> str:
        """SHA-256 over maps and routes, for reports."""
        parts = [*(found.digest for found in self.maps), *(route.digest for route in self.routes)]
        return table_digest([], [part.encode() for part in parts])


def route_set(
    split: str, count: int, length_m: float, config: MapConfig | None = None, *, per_map: int = 1, first: int = 0
) -> RouteSet:
    """The first maps of a split with random routes; always the same for the same arguments.

    Args:
        split: "train", "validation" or "test".
        count: Number of maps.
        length_m: Length of every route.
        config: What maps are made of; maps without any route that long are drawn again.
        per_map: Routes through each map.
        first: Skip so many seeds of the split.

    Raises:
        UnknownNameError: No such split.
        GantryError: The split has fewer seeds, or no map of this kind is large enough.
    """
    # A route may begin up to some metres after its lane's beginning, and ends at a point.
    config = replace(config or MapConfig(), min_route_m=length_m + 2.0)
    maps = tuple(lane_map(seed, config) for seed in split_seeds(split, count, first))
    routes = tuple(
        random_route(found, np.random.default_rng([found.seed, 3, index]), length_m)
        for found in maps
        for index in range(per_map)
    )
    return RouteSet(maps, routes, np.repeat(np.arange(count, dtype=np.int64), per_map))
