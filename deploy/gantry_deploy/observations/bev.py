"""A car's surroundings from above as a picture of channels, in CaRL's way (arXiv 2504.17838); Array API standard.

Row 0 is farthest ahead, column 0 farthest to the left, so the car's heading points up; a pixel shows what is at its
middle. Edges are decided in arithmetic that torch and numpy do alike, to the last bit: angles in double precision, the
pixels in single precision with one rounding per operation. Places are first told from the car and rounded to single
precision, as ``surroundings_row`` does, so that a robot draws what training drew.
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_deploy.contract.bev_layout import CHANNELS as CHANNELS
from gantry_deploy.contract.bev_layout import BevLayout as BevLayout
from gantry_deploy.errors import SurroundingsError
from gantry_deploy.observations.route import RouteView, locate, to_car
from gantry_deploy.observations.surroundings import (
    PEDESTRIAN,
    ROAD,
    ROAD_BROKEN,
    ROAD_SOLID,
    STATIC,
    VEHICLE,
    Surroundings,
    some_rows,
)
from gantry_mapping.elevation.ops import namespace

Array = Any

FULL, BROKEN = 255, 127
"""Of what is there; of broken lane markings."""
STOP_CODES = (80, 170, 255)
"""Of a stop line: green or no light, yellow, red."""
SPEED_OFFSET_M_S, SPEED_SPAN_M_S = 2.67, 36.0
"""Speeds from -2.67 to 33.33 m/s are told apart."""
ROUTE_HALF_M = 1.5
"""Half the width of the route's line."""
STOP_HALF_M = 0.75
"""Half the thickness of a stop line."""
LANE_HALF_M = 4.0
"""Without a road map, lanes are drawn no wider to each side of their middle."""
COVER = 0.5 * math.sqrt(2.0)
"""Of a pixel's edge: a box or disc whose half extents are so large always holds the middle of some pixel."""
_MAX_WORK = 1 << 24
"""Pixels times objects that are worked on at once."""
_COUNT = 1 << 24
"""A sum of codes stays below this."""


def bev_raster(around: Surroundings, pose_in_world: Array, layout: BevLayout) -> Array:
    """Draw what is around B cars, each in its own frame.

    Without a road map (``around.road_cells``) the road is the lane along the route. Objects of unknown kind are
    vehicles. What is None is not drawn.

    Args:
        around: Arrays of B rows.
        pose_in_world: Shape (B, 3), x and y in m and yaw in rad of ``base_link``.
        layout: Of the raster.

    Returns:
        uint8, shape (B, channels, pixels, pixels).

    Raises:
        SurroundingsError: If kinds and objects do not go together.
    """
    rows = pose_in_world.shape[0]
    slots = 1 if around.objects is None else max(1, around.objects.shape[1])
    at_once = max(1, _MAX_WORK // (slots * layout.pixels**2))
    if rows <= at_once:
        return _Canvas(around, pose_in_world, layout).draw()
    xp = namespace(pose_in_world)
    spans = [slice(start, start + at_once) for start in range(0, rows, at_once)]
    return xp.concat([_Canvas(some_rows(around, part), pose_in_world[part], layout).draw() for part in spans], axis=0)


def speed_code(speed_m_s: Array) -> Array:
    """Brightness of speeds, m/s, of any shape: 127 to 255 as doubles, 127 + 128 clip((v + 2.67) / 36, 0, 1),
    rounded.
    """
    xp = namespace(speed_m_s)
    share = xp.clip((xp.astype(speed_m_s, xp.float64) + SPEED_OFFSET_M_S) / SPEED_SPAN_M_S, 0.0, 1.0)
    return xp.floor(127.0 + 128.0 * share + 0.5)


class _Canvas:
    """Draws one batch; B cars, rasters of H x W."""

    def __init__(self, around: Surroundings, pose_in_world: Array, layout: BevLayout) -> None:
        self.xp: Any = namespace(pose_in_world)
        self.around, self.layout = around, layout
        xp = self.xp
        self.device = device(pose_in_world)
        self.rows = pose_in_world.shape[0]
        pose = self._double(pose_in_world)
        self.origin = pose[:, :2]
        turns = xp.round(pose[:, 2] / (2.0 * math.pi))
        self.yaw = self._double(xp.astype(pose[:, 2] - 2.0 * math.pi * turns, xp.float32))
        self.turn = xp.cos(self.yaw), xp.sin(self.yaw)
        edge, count = layout.metres_per_pixel, layout.pixels
        middle = (xp.arange(count, dtype=xp.float64, device=self.device) + 0.5) * edge
        self.x_m = xp.astype(layout.ahead_m - middle, xp.float32)
        self.y_m = xp.astype(0.5 * layout.extent_m - middle, xp.float32)
        self.cover_m = COVER * edge
        points = around.route_points_in_world_m
        self.route: RouteView | None = None
        if points is not None and points.shape[1] > 1:
            self.route = locate(points, pose_in_world)
        self.ways: Any = None if self.route is None else self._to_car(self._double(self.route.from_car_m))

    def draw(self) -> Array:
        """uint8 (B, C, H, W)."""
        xp, found = self.xp, {}
        wanted = set(self.layout.channels)
        if wanted & {"road", "markings"}:
            found |= self._road()
        if wanted & {"vehicles", "pedestrians", "static"}:
            found |= self._objects()
        if "stop_line" in wanted:
            found["stop_line"] = self._stop_line()
        if wanted & {"route", "speed_limit"}:
            found |= self._route()
        return xp.stack([found[name] for name in self.layout.channels], axis=1)

    def _road(self) -> dict[str, Array]:
        cells, place = self.around.road_cells, self.around.road_place
        if cells is None or place is None:
            return self._lane()
        xp = self.xp
        edge = self._double(place[:, 2])
        corner = self._from_car(place[:, None, :2])[:, 0] / edge[:, None]
        cos, sin = (part / edge for part in self.turn)
        # The world place of a pixel in cells: column along x, row along y.
        column = xp.floor(self._plane(cos, -sin, -corner[:, 0]))
        row = xp.floor(self._plane(sin, cos, -corner[:, 1]))
        height, width = cells.shape[1], cells.shape[2]
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        row, column = (xp.astype(xp.where(inside, part, xp.zeros_like(part)), xp.int64) for part in (row, column))
        index = row * width + column
        first = xp.arange(self.rows, dtype=xp.int64, device=self.device) * (height * width)
        flat = xp.reshape(index + first[:, None, None], (-1,))
        seen = xp.reshape(xp.take(xp.reshape(cells, (-1,)), flat, axis=0), index.shape)
        seen = xp.where(inside, seen, xp.zeros_like(seen))
        solid, broken = seen == ROAD_SOLID, seen == ROAD_BROKEN
        marks = xp.where(solid, self._code(FULL), xp.where(broken, self._code(BROKEN), self._code(0)))
        return {"road": self._filled((seen == ROAD) | solid | broken), "markings": marks}

    def _lane(self) -> dict[str, Array]:
        """The lane along the route, where there is no map."""
        left, right = self.around.route_left_m, self.around.route_right_m
        if self.route is None or left is None or right is None:
            return {"road": self._nothing(), "markings": self._nothing()}
        xp = self.xp
        left, right = self._double(left), self._double(right)
        normal = self._normals()
        middle = self.ways + 0.5 * (left - right)[..., None] * normal
        # Where points are repeated, beyond the route's ends, there are no sides.
        sided = xp.sum(normal * normal, axis=-1) > 0.5
        half = xp.where(sided, xp.clip(0.5 * (left + right), 0.0, LANE_HALF_M), -4.0 * LANE_HALF_M)
        thin = self._denser(xp.where(sided, self.cover_m, -4.0 * self.cover_m))
        road = self._dots(self._denser(middle), self._denser(half), LANE_HALF_M)
        sides = (self.ways + left[..., None] * normal, self.ways - right[..., None] * normal)
        edges = xp.concat([self._denser(side) for side in sides], axis=1)
        marks = self._dots(edges, xp.concat((thin, thin), axis=1), self.cover_m)
        return {"road": self._filled(road > 0), "markings": self._filled(marks > 0)}

    def _route(self) -> dict[str, Array]:
        if self.route is None:
            return {"route": self._nothing(), "speed_limit": self._nothing()}
        xp = self.xp
        half = max(ROUTE_HALF_M, self.cover_m)
        ahead = self.route.along_m >= self.route.here_m[:, None]
        # Nothing behind the car, nor half-way from there.
        radius = self._denser(xp.where(ahead, half, -4.0 * half))
        places, limit = self._denser(self.ways), self.around.route_speed_limit_m_s
        if limit is None:
            return {"route": self._filled(self._dots(places, radius, half) > 0), "speed_limit": self._nothing()}
        # Number and sum of codes in one sum.
        both = self._dots(places, radius, half, xp.floor(self._denser(speed_code(limit))) + _COUNT)
        count = both // _COUNT
        mean = (both % _COUNT) // xp.where(count > 0, count, xp.ones_like(count))
        return {"route": self._filled(count > 0), "speed_limit": xp.astype(mean, xp.uint8)}

    def _objects(self) -> dict[str, Array]:
        objects, kinds = self.around.objects, self.around.object_kinds
        names = {"vehicles": VEHICLE, "pedestrians": PEDESTRIAN, "static": STATIC}
        if objects is None or objects.shape[1] == 0:
            return {name: self._nothing() for name in names}
        if kinds is not None and tuple(kinds.shape) != tuple(objects.shape[:2]):
            raise SurroundingsError(
                f"The objects' kinds have shape {tuple(kinds.shape)}, expected {tuple(objects.shape[:2])}."
            )
        xp = self.xp
        there = objects[..., 6] > 0.5
        # What stands in a slot that is not taken does not count, whatever it is.
        objects = xp.where(there[..., None], self._double(objects), 0.0)
        speed, half = objects[..., 3], xp.clip(0.5 * objects[..., 4:6], self.cover_m, None)
        kind_of = xp.zeros_like(speed) if kinds is None else self._double(kinds)
        speed = xp.where(xp.abs(kind_of - STATIC) < 0.5, 0.0, speed)
        along, across = self._box_axes(self._to_car(self._from_car(objects[..., :2])), objects[..., 2])
        # How far pixels lie outside of a box, along it or beside it; one comparison in the end costs the least.
        beside, sizes = xp.abs(across), (self._pixelwise(half[..., 0]), self._pixelwise(half[..., 1]))
        outside = xp.maximum(xp.abs(along) - sizes[0], beside - sizes[1])
        if self.layout.speed_lines:
            # From the nose, or backwards from the tail; what of the line lies inside changes nothing.
            middle, reach = self._pixelwise(0.5 * speed), self._pixelwise(half[..., 0] + 0.5 * xp.abs(speed))
            thin = beside - 0.5 * self.layout.metres_per_pixel
            outside = xp.minimum(outside, xp.maximum(xp.abs(along - middle) - reach, thin))
        shown = xp.astype(outside <= 0.0, xp.uint8)
        code, found = speed_code(speed), {}
        for name, kind in names.items():
            same = there & (xp.abs(kind_of - kind) < 0.5)
            value = xp.where(same, code if kind != STATIC else xp.full_like(code, FULL), 0.0)
            found[name] = xp.max(shown * xp.astype(value, xp.uint8)[..., None, None], axis=1)
        return found

    def _stop_line(self) -> Array:
        told = self.around.stop_line
        left, right = self.around.route_left_m, self.around.route_right_m
        if told is None or self.route is None or left is None or right is None:
            return self._nothing()
        xp, route = self.xp, self.route
        distance = told[:, 0:1] + self.layout.nose_m
        there = (route.here_m[:, None] + distance >= 0.0) & (
            route.here_m[:, None] + distance <= route.along_m[:, -1:] - 0.5
        )
        ways = [
            self._to_car(
                self._double(xp.stack([route.values(route.from_car_m[..., i], at) for i in (0, 1)], axis=-1)),
            )
            for at in (distance - 0.5, distance, distance + 0.5)
        ]
        step = ways[2] - ways[0]
        yaw = xp.atan2(step[..., 1], step[..., 0])
        sides = [self._double(route.values(values, distance)) for values in (left, right)]
        shift = 0.5 * (sides[0] - sides[1])
        centre = ways[1] + shift[..., None] * xp.stack((-xp.sin(yaw), xp.cos(yaw)), axis=-1)
        along, across = self._box_axes(centre, yaw + self.yaw[:, None])
        half = xp.clip(0.5 * (sides[0] + sides[1]), self.cover_m, None)
        thick = max(STOP_HALF_M, self.cover_m)
        shown = (xp.abs(along) <= thick) & (xp.abs(across) <= self._pixelwise(half))
        shown = (shown & there[..., None, None])[:, 0]
        state = told[:, 1][:, None, None]
        go, wait, stop = (self._code(code) for code in STOP_CODES)
        code = xp.where(state > 0.75, stop, xp.where(state > 0.25, wait, go))
        return xp.where(shown, code, self._code(0))

    def _normals(self) -> Array:
        """Unit vectors (B, P, 2) to the left of the route, in the car's frame; 0 where its points are one."""
        xp, ways = self.xp, self.ways
        step = xp.concat((ways[:, 1:] - ways[:, :-1], ways[:, -1:] - ways[:, -2:-1]), axis=1)
        length = xp.sqrt(xp.sum(step * step, axis=-1))[..., None]
        unit = step / xp.where(length > 1e-6, length, xp.ones_like(length))
        return xp.stack((-unit[..., 1], unit[..., 0]), axis=-1)

    def _denser(self, values: Array) -> Array:
        """Values (B, S) or (B, S, 2) of points a metre apart, and after them those half-way between (B, 2 S - 1)."""
        return self.xp.concat((values, 0.5 * (values[:, 1:] + values[:, :-1])), axis=1)

    def _dots(self, places: Array, radius_m: Array, most_m: float, weight: Array | None = None) -> Array:
        """Discs of places (B, S, 2) in the car's frame: on each pixel how many, or the sum of their weights (B, S).

        Args:
            places: Middles, m.
            radius_m: Shape (B, S); of what is negative nothing is drawn.
            most_m: The largest radius.
            weight: Whole numbers; None for ones.
        """
        xp, layout = self.xp, self.layout
        edge, count = layout.metres_per_pixel, layout.pixels
        row = (layout.ahead_m - places[..., 0]) / edge
        column = (0.5 * layout.extent_m - places[..., 1]) / edge
        reach = math.ceil(most_m / edge)
        steps = xp.arange(-reach, reach + 1, dtype=xp.float64, device=self.device)
        rows, columns = (xp.floor(part)[..., None] + steps for part in (row, column))
        near_x, near_y = ((part[..., None] - (at + 0.5)) * edge for part, at in ((row, rows), (column, columns)))
        away = near_x[..., :, None] ** 2 + near_y[..., None, :] ** 2
        limit = xp.where(radius_m < 0.0, -1.0, radius_m * radius_m)[..., None, None]
        fits = [(part >= 0) & (part < count) for part in (rows, columns)]
        drawn = (away <= limit) & fits[0][..., :, None] & fits[1][..., None, :]
        first = xp.arange(self.rows, dtype=xp.float64, device=self.device)[:, None, None, None] * count**2
        index = first + rows[..., :, None] * count + columns[..., None, :]
        kept = xp.astype(index[drawn], xp.int64)
        if weight is None:
            found = xp.bincount(kept, minlength=self.rows * count**2)
        else:
            # Sums of whole numbers are exact in any order.
            of_each = (xp.zeros_like(index) + weight[..., None, None])[drawn]
            found = xp.bincount(kept, weights=of_each, minlength=self.rows * count**2)
        return xp.reshape(xp.astype(found, xp.int64), (self.rows, count, count))

    def _box_axes(self, centre: Array, yaw_in_world: Array) -> tuple[Array, Array]:
        """Pixels along and across boxes (B, K), from their middles in the car's frame (B, K, 2): (B, K, H, W) each."""
        yaw = yaw_in_world - self.yaw[:, None]
        cos, sin = self.xp.cos(yaw), self.xp.sin(yaw)
        x, y = centre[..., 0], centre[..., 1]
        return self._plane(cos, sin, -(cos * x + sin * y)), self._plane(-sin, cos, sin * x - cos * y)

    def _plane(self, of_x: Array, of_y: Array, constant: Array) -> Array:
        """of_x x + of_y y + constant at all pixels, each (...): (..., H, W), single precision."""
        a, b, c = (self._pixelwise(part) for part in (of_x, of_y, constant))
        return (a * self.x_m[:, None] + c) + b * self.y_m

    def _pixelwise(self, values: Array) -> Array:
        """Values (...) as (..., 1, 1), single precision."""
        return self.xp.astype(values, self.xp.float32)[..., None, None]

    def _from_car(self, places: Array) -> Array:
        """Places (B, S, 2) in the world as vectors from the car along the world's axes."""
        return self._double(self.xp.astype(self._double(places) - self.origin[:, None], self.xp.float32))

    def _to_car(self, vectors: Array) -> Array:
        """Vectors (B, S, 2) along the world's axes, in the car's frame."""
        return to_car(vectors, *self.turn)

    def _filled(self, shown: Array) -> Array:
        return self.xp.where(shown, self._code(FULL), self._code(0))

    def _nothing(self) -> Array:
        shape = (self.rows, self.layout.pixels, self.layout.pixels)
        return self.xp.zeros(shape, dtype=self.xp.uint8, device=self.device)

    def _code(self, value: int) -> Array:
        return self.xp.full((), value, dtype=self.xp.uint8, device=self.device)

    def _double(self, values: Array) -> Array:
        return self.xp.astype(values, self.xp.float64)
