"""Surroundings of a car beside its own state: route, other road users, scan, stop line, goal.

Frames: ``world`` is whichever the car's pose is told in, x, y in m and yaw in rad, counter-clockwise from x. Arrays
lead with B cars, 1 on a robot. What a policy does not ask for may be None.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.errors import SurroundingsError

Array = Any

OBJECT_FIELDS = ("x", "y", "yaw", "speed", "length", "width", "taken")
"""Fields of the last axis of :attr:`Surroundings.objects`."""
STOP_GO, STOP_YELLOW, STOP_RED = 0.0, 0.5, 1.0
"""States of a stop line: none or green, yellow, red."""
VEHICLE, PEDESTRIAN, STATIC = 0, 1, 2
"""Kinds of object."""
NO_ROAD, ROAD, ROAD_BROKEN, ROAD_SOLID = 0, 1, 2, 3
"""Values of a cell of a road map: no road or unknown, road, a broken marking on it, a solid one."""


@dataclass(frozen=True)
class Surroundings:
    """Everything around a car that a policy may see, with a leading batch dimension B."""

    route_points_in_world_m: Array | None = None
    """Shape (B, P, 2), the route around the car about every metre, some of it behind; the last point is repeated where
    the route ends."""
    route_speed_limit_m_s: Array | None = None
    """Shape (B, P)."""
    route_left_m: Array | None = None
    """Shape (B, P), from the route's line to the left edge of the lane."""
    route_right_m: Array | None = None
    """Shape (B, P), likewise to the right."""
    objects: Array | None = None
    """Shape (B, K, 7), see :data:`OBJECT_FIELDS`: place of the middle and yaw in the world, speed along the yaw in m/s,
    length and width in m, 1 where the slot is taken and 0 where it is not."""
    scan_ranges_m: Array | None = None
    """Shape (B, beams), counter-clockwise; no return is the largest range."""
    stop_line: Array | None = None
    """Shape (B, 2), distance along the route from the front of the car to the next stop line in m, large if there is
    none, and its state."""
    goal_pose: Array | None = None
    """Shape (B, 3), x, y and yaw in the world where the car shall end."""
    object_kinds: Array | None = None
    """Shape (B, K), :data:`VEHICLE`, :data:`PEDESTRIAN` or :data:`STATIC`; None where the source does not tell them
    apart.
    """
    road_cells: Array | None = None
    """Shape (B, R, C), uint8, :data:`NO_ROAD` and so on: a map around the car, rows along the world's y, columns along
    its x, as in ``nav_msgs/OccupancyGrid``."""
    road_place: Array | None = None
    """Shape (B, 3), x and y of the outer corner of the map's first cell in the world, and the edge of a cell, m."""

    def given(self) -> dict[str, Array]:
        """The arrays that there are, by their names; shapes, units and frames are those of the fields."""
        pairs = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: values for name, values in pairs if values is not None}


def road_from_occupancy(values: NDArray[Any], free_up_to: int = 50) -> NDArray[np.uint8]:
    """A road map without markings, uint8 (R, C), from the data of a ``nav_msgs/OccupancyGrid``.

    Args:
        values: Shape (R, C), percent, -1 where unknown.
        free_up_to: Cells that are no more likely to be occupied are road.

    Returns:
        :data:`ROAD` and :data:`NO_ROAD`, shape (R, C).
    """
    return np.where((values >= 0) & (values <= free_up_to), ROAD, NO_ROAD).astype(np.uint8)


def surroundings_row(seen: Surroundings, origin_m: NDArray[np.float64]) -> Surroundings:
    """Surroundings for a robot's network: one row in single precision, with places relative to ``origin_m``.

    Single precision resolves centimetres at a hundred kilometres; terms use differences of places alone, so that moving
    all of them changes nothing else.

    Args:
        seen: Arrays of one row.
        origin_m: Shape (2,), x, y of the new origin in the world.

    Raises:
        SurroundingsError: If a number is not finite, naming the field.
    """
    row: dict[str, NDArray[Any]] = {}
    for name, values in seen.given().items():
        if name == "road_cells":
            row[name] = np.asarray(values, dtype=np.uint8)
            continue
        array = np.array(values, dtype=np.float64)
        if not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            raise SurroundingsError(f"Surroundings: {name} is not finite: {count} of {array.size} numbers.")
        if name in ("route_points_in_world_m", "objects", "goal_pose", "road_place"):
            array[..., :2] -= origin_m
        row[name] = array.astype(np.float32)
    return Surroundings(**row)


def some_rows(around: Surroundings, rows: slice) -> Surroundings:
    """Surroundings of some of the cars."""
    return Surroundings(**{name: values[rows] for name, values in around.given().items()})
