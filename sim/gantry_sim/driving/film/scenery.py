"""Static scenery around a car, ready to be drawn: roads with their markings and lights, parking lots, tracks."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gantry_sim.driving.film.canvas import Camera, Canvas, FloatArray, Rgb
from gantry_sim.driving.maps.graph import LEFT, RIGHT, ROAD_LEFT, ROAD_RIGHT, YAW, LaneMap
from gantry_sim.driving.maps.lines import edges
from gantry_sim.driving.plane import lengths_along, placed, points_at
from gantry_sim.driving.scenes.lot_scene import LotScene
from gantry_sim.driving.scenes.road_scene import RoadScene
from gantry_sim.driving.scenes.track_scene import TrackScene, wall_points

GROUND: Rgb = (166, 183, 150)
"""Beside all roads."""
KERB: Rgb = (196, 192, 184)
ROAD: Rgb = (88, 92, 99)
SOLID: Rgb = (226, 228, 230)
MIDDLE: Rgb = (222, 190, 96)
"""Between the two directions of a road."""
ROUTE: Rgb = (104, 124, 168)
"""The lane of the route ahead."""
ROUTE_LINE: Rgb = (150, 182, 255)
GIVE_WAY: Rgb = (240, 240, 240)
LIGHTS: dict[float, Rgb] = {0.0: (40, 190, 90), 0.5: (250, 200, 20), 1.0: (225, 40, 40)}
"""Of stop lines, by what their light shows."""
WALL: Rgb = (58, 52, 48)
PARKED: Rgb = (235, 146, 52)
SLOT: Rgb = (70, 200, 120)
OUTLINE: Rgb = (30, 33, 38)

KERB_M = 0.5
"""Width of the kerb."""
DASH_M, GAP_M = 3.0, 4.0
"""Of broken markings."""
STOPS_PX_PER_M = 3.0
"""Stop lines are not drawn at smaller scales."""
LINE_PX = 1.2
"""Width of markings."""


@dataclass(frozen=True)
class Shape:
    """A polygon or a line in the world, and a circle around it."""

    places_m: FloatArray
    """(k, 2)."""
    colour: Rgb
    """Of it."""
    width_px: float = 0.0
    """Of a line; 0 for a polygon."""
    middle_m: tuple[float, float] = field(init=False)
    """Of the circle."""
    radius_m: float = field(init=False)
    """Of the circle."""

    def __post_init__(self) -> None:
        low, high = self.places_m.min(axis=0), self.places_m.max(axis=0)
        object.__setattr__(self, "middle_m", tuple((0.5 * (low + high)).tolist()))
        object.__setattr__(self, "radius_m", 0.5 * float(np.hypot(*(high - low))))

    def near(self, camera: Camera) -> bool:
        """Whether a camera might show it."""
        away = math.dist(self.middle_m, camera.centre_m)
        return away <= self.radius_m + camera.reach_m

    def draw(self, canvas: Canvas) -> None:
        """Draw it within the canvas's view."""
        if not self.near(canvas.camera):
            return
        if self.width_px:
            canvas.line(self.places_m, self.colour, self.width_px)
        else:
            canvas.polygon(self.places_m, self.colour)


@dataclass(frozen=True)
class Scenery:
    """Everything that stands still around one car."""

    shapes: tuple[Shape, ...]
    """From below to above."""
    title: str
    """Name of the place, for people."""
    low_m: tuple[float, float]
    """Smallest x and y of it."""
    high_m: tuple[float, float]
    """Largest x and y of it."""
    marks: tuple[Shape, ...] = ()
    """Markings on the route."""
    line: FloatArray | None = None
    """(P, 4), the route or the middle of the track: x, y, and the distances to its left and right edge."""
    along_m: FloatArray | None = None
    """(P,), the arc length of its points."""
    normals: FloatArray | None = None
    """(P, 2), to the left of it."""
    closed: bool = False
    """Whether it leads round and round."""
    stops: tuple[tuple[Shape, int, int], ...] = ()
    """Stop lines with their junction and light group, -1 where one gives way."""
    slot: FloatArray | None = None
    """(5,), the parking slot to reach."""

    def draw(self, canvas: Canvas, lights: FloatArray | None = None, route_m: float | None = None) -> None:
        """Draw it.

        Args:
            canvas: Canvas to draw on.
            lights: (J, G), what light groups show; None where unknown.
            route_m: The route from there on is shown; None for none of it.
        """
        for shape in self.shapes:
            shape.draw(canvas)
        if route_m is not None and not self.closed:
            self._route(canvas, route_m)
        for shape in self.marks:
            shape.draw(canvas)
        for shape, junction, group in self.stops:
            if shape.near(canvas.camera) and canvas.camera.px_per_m >= STOPS_PX_PER_M:
                lit = lights is not None and group >= 0
                colour = LIGHTS[float(lights[junction, group])] if lit and lights is not None else GIVE_WAY
                canvas.line(shape.places_m, colour, shape.width_px)
        if self.slot is not None:
            _draw_slot(canvas, self.slot)

    def ahead(self, route_m: float, distances_m: FloatArray) -> FloatArray:
        """Places (L, 2) in the world, m, on the route so far ahead; empty without one."""
        if self.line is None or self.along_m is None:
            return np.zeros((0, 2))
        at = route_m + np.asarray(distances_m, dtype=np.float64)
        at = np.mod(at, self.along_m[-1]) if self.closed else np.minimum(at, self.along_m[-1])
        return points_at(self.line, self.along_m, at)

    def _route(self, canvas: Canvas, route_m: float) -> None:
        assert self.line is not None
        assert self.along_m is not None
        assert self.normals is not None
        first = int(np.searchsorted(self.along_m, route_m))
        part = slice(first, first + max(2, int(2.0 * canvas.camera.reach_m / max(self.along_m[1], 0.1))))
        line, normal = self.line[part], self.normals[part]
        if len(line) < 2:
            return
        left, right = line[:, :2] + 0.8 * line[:, 2:3] * normal, line[:, :2] - 0.8 * line[:, 3:4] * normal
        canvas.polygon(np.concatenate((left, right[::-1])), ROUTE)
        canvas.line(line[:, :2], ROUTE_LINE, 1.0)


@functools.singledispatch
def scenery_of(scene: Any, place: int) -> Scenery:
    """Scenery around a car.

    Args:
        scene: Of the environment.
        place: Row of its routes, lots or tracks.

    Raises:
        TypeError: If nothing here draws it.
    """
    raise TypeError(f"Nothing here draws a {type(scene).__name__}.")


@scenery_of.register
def _(scene: RoadScene, place: int) -> Scenery:
    table = scene.routes.table[place, : int(scene.routes.count[place])].double().cpu().numpy()
    return _road(scene.roads.maps[place // scene.roads.per_map], table, float(scene.routes.step_m[place]))


def _road(lane_map: LaneMap, table: FloatArray, step_m: float) -> Scenery:
    kerbs, roads, marks = [], [], []
    for lane in lane_map.lanes:
        points = lane.points
        kerbs.append(Shape(_strip(points, points[:, ROAD_LEFT] + KERB_M, points[:, ROAD_RIGHT] + KERB_M), KERB))
        roads.append(Shape(_strip(points, points[:, ROAD_LEFT], points[:, ROAD_RIGHT]), ROAD))
        if not lane.in_junction:
            marks += _markings(points, lane.left, lane.right)
    stops = []
    for stop in lane_map.stop_lines:
        end = lane_map.lanes[stop.lane].points[-1:]
        stops.append((Shape(np.concatenate(edges(end)), GIVE_WAY, 4.0), stop.junction, stop.group))
    low, high = _box([shape.places_m for shape in kerbs])
    return Scenery(
        shapes=(*kerbs, *roads),
        title=f"map {lane_map.seed}",
        low_m=low,
        high_m=high,
        marks=tuple(marks),
        stops=tuple(stops),
        **_line(table, step_m, closed=False),
    )


def _line(table: FloatArray, step_m: float, *, closed: bool) -> dict[str, Any]:
    """Fields of :class:`Scenery` about a route or a track."""
    yaw = table[:, YAW]
    return {
        "line": table[:, [0, 1, LEFT, RIGHT]],
        "along_m": step_m * np.arange(len(table)),
        "normals": np.stack((-np.sin(yaw), np.cos(yaw)), axis=-1),
        "closed": closed,
    }


def _markings(points: FloatArray, left: int, right: int) -> list[Shape]:
    """Of a lane with neighbours of its direction (-1 for none) to both sides."""
    marks = []
    for columns, sign, beside in (((LEFT, ROAD_LEFT), 1.0, left), ((RIGHT, ROAD_RIGHT), -1.0, right)):
        edge = _beside(points, sign * points[:, columns[0]])
        if beside >= 0:
            marks += [Shape(part, SOLID, LINE_PX) for part in _dashes(edge)]
        else:
            # What lies beyond the last lane of a direction is the other one, or the kerb.
            other = bool((points[:, columns[1]] - points[:, columns[0]]).max() > 1.0)
            marks.append(Shape(edge, MIDDLE if other else SOLID, LINE_PX))
    return marks


@scenery_of.register
def _lot(scene: LotScene, place: int) -> Scenery:
    lots = scene.lots
    boxes = lots.boxes[place][lots.taken[place]].double().cpu().numpy()
    walls = lots.walls[place].double().cpu().numpy()
    corners, slot = walls[:, :2], lots.goal[place].double().cpu().numpy()
    shapes = [Shape(corners, ROAD)]
    # Every parked car stands in a slot a little larger than itself.
    size = np.array([max(slot[3], 1.0), slot[4]])
    for box in boxes:
        outline = box_corners(np.concatenate((box[:3], size)))
        shapes.append(Shape(np.concatenate((outline, outline[:1])), SOLID, 1.0))
    shapes.append(Shape(np.concatenate((corners, corners[:1])), WALL, 4.0))
    for box in boxes:
        shapes += car_shapes(box, PARKED)
    low, high = _box([corners])
    return Scenery(tuple(shapes), f"lot {place}", low, high, slot=slot)


@scenery_of.register
def _track(scene: TrackScene, place: int) -> Scenery:
    lines = scene.tracks
    count = int(lines.count[place])
    table = lines.table[place, :count].double().cpu().numpy()
    walls = wall_points(lines)[place, :count].double().cpu().numpy()
    left, right = walls[:, 0], walls[:, 1]
    low, high = _box([left, right])
    shapes = (
        Shape(np.concatenate((left, right[::-1])), ROAD),
        Shape(table[:, :2], (110, 114, 122), 1.0),
        Shape(left, WALL, 3.0),
        Shape(right, WALL, 3.0),
        Shape(np.stack((left[0], right[0])), SOLID, 2.0),
    )
    return Scenery(shapes, f"track {place}", low, high, **_line(table, float(lines.step_m[place]), closed=True))


def box_corners(box: FloatArray) -> FloatArray:
    """Corners (4, 2), m, of a box (5,): middle, yaw, length and width; the front left one first, counter-clockwise."""
    return placed(box, np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]]) * box[3:])


def car_shapes(box: FloatArray, colour: Rgb) -> list[Shape]:
    """A car in a box (5,), m and rad: body, outline, and the windscreen, so that one sees which end is its front."""
    # Rounder in front than behind.
    side = np.array(
        [[0.5, 0.26], [0.487, 0.38], [0.455, 0.46], [0.40, 0.5], [-0.44, 0.5], [-0.485, 0.46], [-0.5, 0.36]]
    )
    body = np.concatenate((side, side[::-1] * [1.0, -1.0]))
    glass = np.array([[0.24, 0.34], [0.06, 0.40], [0.06, -0.40], [0.24, -0.34]])
    rear = np.array([[-0.30, 0.36], [-0.38, 0.32], [-0.38, -0.32], [-0.30, -0.36]])
    body, glass, rear = (placed(box, part * box[3:]) for part in (body, glass, rear))
    dark: Rgb = (colour[0] // 4, colour[1] // 4, colour[2] // 4 + 10)
    around = np.concatenate((body, body[:1]))
    return [Shape(body, colour), Shape(glass, dark), Shape(rear, dark), Shape(around, OUTLINE, 1.0)]


def _draw_slot(canvas: Canvas, slot: FloatArray) -> None:
    corners = box_corners(slot)
    canvas.line(np.concatenate((corners, corners[:1])), SLOT, 2.5)
    for arrow in ([[-0.3, 0.0], [0.36, 0.0]], [[0.24, 0.14], [0.36, 0.0], [0.24, -0.14]]):
        canvas.line(placed(slot, np.array(arrow) * slot[3:]), SLOT, 2.0)


def _beside(points: FloatArray, lateral_m: FloatArray) -> FloatArray:
    yaw = points[:, YAW]
    return points[:, :2] + lateral_m[:, None] * np.stack((-np.sin(yaw), np.cos(yaw)), axis=-1)


def _strip(points: FloatArray, left_m: FloatArray, right_m: FloatArray) -> FloatArray:
    return np.concatenate((_beside(points, left_m), _beside(points, -right_m)[::-1]))


def _dashes(line: FloatArray) -> list[FloatArray]:
    along = lengths_along(line)
    starts = np.arange(0.0, along[-1] - DASH_M, DASH_M + GAP_M)
    return [points_at(line, along, (start, start + DASH_M)) for start in starts]


def _box(parts: list[FloatArray]) -> tuple[tuple[float, float], tuple[float, float]]:
    low = np.min([part.min(axis=0) for part in parts], axis=0)
    high = np.max([part.max(axis=0) for part in parts], axis=0)
    return (float(low[0]), float(low[1])), (float(high[0]), float(high[1]))
