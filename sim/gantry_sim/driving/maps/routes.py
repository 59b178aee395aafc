"""Routes of a wanted length through a lane map."""

from __future__ import annotations

from numpy.random import Generator

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.graph import LaneMap
from gantry_sim.driving.maps.lines import Line, route_along

_VISITS = 4000


def random_route(lane_map: LaneMap, rng: Generator, length_m: float) -> Line:
    """A route that begins on some road and turns where chance has it, but nowhere into a dead end that comes too soon.

    Args:
        lane_map: Where.
        rng: Draws lanes and turns.
        length_m: Length, reached to within a point's distance.

    Raises:
        GantryError: No route is that long; says how long the longest is that was found.
    """
    path, start_m, found = find_path(lane_map, rng, length_m)
    if found < length_m:
        raise GantryError(
            f"Map of seed {lane_map.seed} has no route of {length_m} m; the longest found: {found:.0f} m."
        )
    return route_along(lane_map, path, length_m, start_m)


def find_path(lane_map: LaneMap, rng: Generator, length_m: float) -> tuple[tuple[int, ...], float, float]:
    """Lanes of a path of at least ``length_m``, or of the longest one that was found.

    Returns:
        The lanes, where on the first one to begin (m), and how long the path is from there (m).
    """
    starts = [index for index, lane in enumerate(lane_map.lanes) if not lane.in_junction]
    best: tuple[tuple[int, ...], float] = ((), 0.0)
    for start in rng.permutation(starts):
        path, length = _extend(lane_map, rng, int(start), length_m + 1.0)
        if path and length >= length_m + 1.0:
            spare = min(length - length_m - 1.0, lane_map.lanes[int(start)].length_m - 2.0)
            start_m = float(rng.uniform(0.0, max(spare, 0.0)))
            return path, start_m, length - start_m
        if length > best[1]:
            best = path, length
    return best[0], 0.0, best[1]


def _extend(lane_map: LaneMap, rng: Generator, start: int, length_m: float) -> tuple[tuple[int, ...], float]:
    """Depth first, with successors in random order and no lane twice: the first path long enough, or the longest."""
    lanes = lane_map.lanes
    best: tuple[tuple[int, ...], float] = ((), 0.0)
    stack = [((start,), lanes[start].length_m)]
    for _ in range(_VISITS):
        if not stack:
            break
        path, length = stack.pop()
        if length > best[1]:
            best = path, length
        if length >= length_m:
            break
        successors = [lane for lane in lanes[path[-1]].successors if lane not in path]
        stack += [
            ((*path, successors[i]), length + lanes[successors[i]].length_m) for i in rng.permutation(len(successors))
        ]
    return best
