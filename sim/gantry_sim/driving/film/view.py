"""A moment of an episode from above: the car in its surroundings, and everything else that is there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_deploy.observations.surroundings import PEDESTRIAN, STATIC, VEHICLE
from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.film.canvas import Camera, Canvas, FloatArray, Rgb
from gantry_sim.driving.film.scenery import GROUND, OUTLINE, PARKED, Scenery, box_corners, car_shapes
from gantry_sim.driving.film.watched import INFRACTIONS, Episode
from gantry_sim.driving.plane import placed

EGO: Rgb = (64, 220, 130)
"""The controlled car."""
EGO_HIT: Rgb = (240, 40, 60)
"""The same when it has hit something, or passed a red light."""
KINDS: dict[int, Rgb] = {VEHICLE: (66, 128, 245), PEDESTRIAN: (252, 222, 40), STATIC: PARKED}
"""Others by their kind."""
TRAIL: Rgb = (210, 240, 222)
"""Colour of the car's path."""
TRAIL_BACK: Rgb = (240, 150, 210)
"""Colour of the car's path backwards."""
AIM: Rgb = (255, 255, 255)
"""Places on the route that the policy looks at."""
BEAM: Rgb = (128, 118, 120)
RETURN: Rgb = (255, 92, 92)
"""A beam of the scan, and what it has met."""
SPEED_S = 1.0
"""Time after which a line shows the place of a road user that moves."""
WHEEL_SHARES = (0.16, 0.14)
"""Length and width of a wheel as shares of the car's wheelbase and width."""
UPS = ("heading", "north")
"""Directions that may be up in a film."""


@dataclass(frozen=True)
class Look:
    """From where a film looks; what is not given suits the kind of surroundings."""

    size_px: tuple[int, int] = (640, 640)
    """Width and height of the view."""
    up: str | None = None
    """A name of :data:`UPS`."""
    height_m: float | None = None
    """Height of the view on the ground."""

    def __post_init__(self) -> None:
        if self.up is not None and self.up not in UPS:
            raise GantryError(f"up is '{self.up}', expected {' or '.join(UPS)}.")
        if self.height_m is not None and not self.height_m > 0.0:
            raise GantryError(f"The view's height is {self.height_m} m, expected more than 0.")
        if min(self.size_px) < 64:
            raise GantryError(f"The view is {self.size_px} pixels, expected at least 64 both ways.")


class View:
    """Draws the moments of an episode.

    Args:
        episode: What happened.
        scenery: Where.
        car: The car.
        lookahead_m: (L,) distances along the route that the policy looks at.
        lidar: Of its scan, where there is one.
        look: From where; the usual if not given.
    """

    def __init__(
        self,
        episode: Episode,
        scenery: Scenery,
        car: CarSpec,
        lookahead_m: tuple[float, ...] = (),
        lidar: LidarLayout | None = None,
        look: Look | None = None,
    ) -> None:
        self.episode, self.scenery, self.car, self.look = episode, scenery, car, look or Look()
        self._ahead = np.array(lookahead_m)
        self._lidar = lidar
        self._lot = scenery.slot is not None

    def camera(self, index: int) -> Camera:
        """View at a moment: ahead of the car, or of a whole lot."""
        look, scenery = self.look, self.scenery
        x, y, yaw = (float(value) for value in self.own_box(index)[:3])
        width, height = look.size_px
        if self._lot and look.up is None:
            (low_x, low_y), (high_x, high_y) = scenery.low_m, scenery.high_m
            span = 1.06 * max(high_x - low_x, high_y - low_y, 1.0)
            scale = min(width, height) / (span if look.height_m is None else look.height_m)
            return Camera((0.5 * (low_x + high_x), 0.5 * (low_y + high_y)), 0.5 * math.pi, scale, look.size_px)
        # Cars are of 4.5 m on roads and of half a metre on tracks.
        scale = height / (13.0 * self.car.length_m if look.height_m is None else look.height_m)
        if scenery.closed and look.height_m is None:
            scale = height / (30.0 * self.car.length_m)
        if look.up == "north":
            return Camera((x, y), 0.5 * math.pi, scale, look.size_px)
        return Camera((x, y), yaw, scale, look.size_px, (0.5, 0.66))

    def draw(self, index: int) -> Image.Image:
        """The picture of a moment."""
        seen = self.episode.seen
        canvas = Canvas(self.camera(index), GROUND)
        lights = seen["lights"][index] if "lights" in seen else None
        route_m = float(seen["route_m"][index]) if "route_m" in seen else None
        self.scenery.draw(canvas, lights, route_m)
        self._trail(canvas, index)
        if "scan" in seen:
            self._scan(canvas, seen["scan"][index], seen["pose"][index])
        self._others(canvas, index, walkers=False)
        if route_m is not None and len(self._ahead):
            canvas.discs(self.scenery.ahead(route_m, self._ahead), AIM, 3.0, OUTLINE)
        self._own(canvas, index)
        # A pedestrian that is run over lies on top, to be seen.
        self._others(canvas, index, walkers=True)
        return canvas.picture()

    def own_box(self, index: int) -> FloatArray:
        """The car's box (5,) in the world at a moment: middle, yaw, length and width, m and rad."""
        pose, car = self.episode.seen["pose"][index], self.car
        return np.array([*placed(pose, (car.center_x_in_base_m, 0.0)), pose[2], car.length_m, car.width_m])

    def is_fault(self, index: int) -> bool:
        """Whether this is the moment of an infraction."""
        return index >= self.episode.steps and self.episode.ended in INFRACTIONS

    def _trail(self, canvas: Canvas, index: int) -> None:
        way = self.episode.seen["pose"][: index + 1, :2]
        canvas.line(way, TRAIL, 1.5)
        back = self.episode.seen["speed_m_s"][1 : index + 1] < -0.05
        if back.any():
            canvas.segments(np.stack((way[:-1], way[1:]), axis=1)[back], TRAIL_BACK, 2.0)

    def _scan(self, canvas: Canvas, ranges_m: FloatArray, pose: FloatArray) -> None:
        layout = self._lidar
        if layout is None:
            return
        width = (layout.angle_max_rad - layout.angle_min_rad) / len(ranges_m)
        angle = float(pose[2]) + layout.angle_min_rad + width * (np.arange(len(ranges_m)) + 0.5)
        origin = placed(pose, (layout.pos_x_in_base_m, 0.0))
        ends = origin + ranges_m[:, None] * np.stack((np.cos(angle), np.sin(angle)), axis=-1)
        canvas.segments(np.stack((np.broadcast_to(origin, ends.shape), ends), axis=1), BEAM, 0.5)
        canvas.discs(ends[ranges_m < layout.range_max_m - 1e-3], RETURN, 2.5)

    def _others(self, canvas: Canvas, index: int, *, walkers: bool) -> None:
        seen = self.episode.seen
        if "objects" not in seen:
            return
        objects = seen["objects"][index]
        kinds = seen["kinds"][index] if "kinds" in seen else np.zeros(len(objects))
        for one, kind in zip(objects, kinds, strict=True):
            if one[6] < 0.5 or (int(kind) == PEDESTRIAN) != walkers:
                continue
            if math.dist(one[:2], canvas.camera.centre_m) > canvas.camera.reach_m + 10.0:
                continue
            colour, box = KINDS[int(kind)], one[[0, 1, 2, 4, 5]]
            self._speed_line(canvas, box, float(one[3]), colour)
            if int(kind) == VEHICLE:
                for shape in car_shapes(box, colour):
                    shape.draw(canvas)
            elif int(kind) == PEDESTRIAN:
                canvas.discs(one[:2], colour, max(4.0, 0.5 * canvas.camera.px_per_m * float(one[5])), OUTLINE)
            else:
                corners = box_corners(box)
                canvas.polygon(corners, colour, OUTLINE)
                canvas.segments(np.stack((corners[[0, 2]], corners[[1, 3]])), OUTLINE, 1.0)

    @staticmethod
    def _speed_line(canvas: Canvas, box: FloatArray, speed_m_s: float, colour: Rgb) -> None:
        if abs(speed_m_s) < 0.1:
            return
        nose = math.copysign(0.5 * float(box[3]), speed_m_s)
        canvas.line(placed(box, [(nose, 0.0), (nose + SPEED_S * speed_m_s, 0.0)]), _light(colour), 2.0)

    def _own(self, canvas: Canvas, index: int) -> None:
        seen, car = self.episode.seen, self.car
        colour, box = EGO_HIT if self.is_fault(index) else EGO, self.own_box(index)
        self._speed_line(canvas, box, float(seen["speed_m_s"][index]), colour)
        pose, steering = seen["pose"][index], float(seen["steering_rad"][index])
        length, width = WHEEL_SHARES[0] * 2.0 * car.wheelbase_m, WHEEL_SHARES[1] * car.width_m
        for along, angle in ((0.0, 0.0), (car.wheelbase_m, steering)):
            for side in (-0.5, 0.5):
                wheel = [*placed(pose, (along, side * car.width_m)), float(pose[2]) + angle, length, width]
                canvas.polygon(box_corners(np.array(wheel)), OUTLINE)
        for shape in car_shapes(box, colour):
            shape.draw(canvas)
        if float(seen["action"][index][1]) * (1.0 if seen["speed_m_s"][index] >= 0.0 else -1.0) < -0.05:
            self._brake_lights(canvas, box)

    @staticmethod
    def _brake_lights(canvas: Canvas, box: FloatArray) -> None:
        for side in (-0.34, 0.34):
            light = [*placed(box, (-0.47, side) * box[3:]), box[2], *(0.07, 0.2) * box[3:]]
            canvas.polygon(box_corners(np.array(light)), (255, 30, 30))


def _light(colour: Rgb) -> Rgb:
    """Half way to white."""
    return (colour[0] + 255) // 2, (colour[1] + 255) // 2, (colour[2] + 255) // 2
