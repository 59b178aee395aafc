"""A picture of the ground from above, drawn in pixels of half the size so that edges come out soft."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

FloatArray = NDArray[np.floating]
Rgb = tuple[int, int, int]

FINE = 2
"""Drawn pixels along the edge of a pixel of the picture."""
ANCHORS = {"left": "lm", "middle": "mm", "right": "rm"}
"""Anchors of a line of text."""


@dataclass(frozen=True)
class Camera:
    """Looks straight down."""

    centre_m: tuple[float, float]
    """Place in the world that is shown at ``anchor``."""
    up_rad: float
    """Direction in the world that points up in the picture; a quarter turn for north."""
    px_per_m: float
    """Scale."""
    size_px: tuple[int, int]
    """Width and height of the picture."""
    anchor: tuple[float, float] = (0.5, 0.5)
    """Shares of width and height, from the left and from above."""

    def pixels(self, places_m: FloatArray) -> NDArray[np.float64]:
        """Column and row (..., 2), px, of places (..., 2) in the world, m; whole numbers are corners of pixels."""
        gap = np.asarray(places_m, dtype=np.float64) - np.array(self.centre_m)
        # Up in the picture is against its rows.
        sin, cos = math.sin(self.up_rad), math.cos(self.up_rad)
        right, up = gap[..., 0] * sin - gap[..., 1] * cos, gap[..., 0] * cos + gap[..., 1] * sin
        middle = self.anchor[0] * self.size_px[0], self.anchor[1] * self.size_px[1]
        return np.stack((middle[0] + self.px_per_m * right, middle[1] - self.px_per_m * up), axis=-1)

    @property
    def reach_m(self) -> float:
        """From ``centre_m`` to the farthest corner of the picture."""
        across, along = (max(share, 1.0 - share) * px for share, px in zip(self.anchor, self.size_px, strict=True))
        return math.hypot(across, along) / self.px_per_m


class Canvas:
    """Draws places in the world.

    Args:
        camera: Part of the world that is shown.
        ground: Colour of what is not drawn on.
    """

    def __init__(self, camera: Camera, ground: Rgb) -> None:
        self.camera = camera
        width, height = camera.size_px
        self._image = Image.new("RGB", (FINE * width, FINE * height), ground)
        self._draw = ImageDraw.Draw(self._image)

    def _flat(self, places_m: FloatArray) -> list[float]:
        return (FINE * self.camera.pixels(places_m)).ravel().tolist()

    def polygon(self, corners_m: FloatArray, colour: Rgb, outline: Rgb | None = None, width_px: float = 1.0) -> None:
        """Fill places (k, 2) in the world, m, and draw a line around them if its colour is given."""
        if len(corners_m) < 2:
            return
        self._draw.polygon(self._flat(corners_m), fill=colour)
        if outline is not None:
            self.line(np.concatenate((corners_m, corners_m[:1])), outline, width_px)

    def line(self, places_m: FloatArray, colour: Rgb, width_px: float = 1.0) -> None:
        """Join places (k, 2) in the world, m."""
        if len(places_m) >= 2:
            self._draw.line(self._flat(places_m), fill=colour, width=max(1, round(FINE * width_px)), joint="curve")

    def segments(self, ends_m: FloatArray, colour: Rgb, width_px: float = 1.0) -> None:
        """Lines (k, 2, 2) in the world, m, each on its own."""
        width = max(1, round(FINE * width_px))
        for ends in (FINE * self.camera.pixels(ends_m)).reshape(-1, 4).tolist():
            self._draw.line(ends, fill=colour, width=width)

    def discs(self, places_m: FloatArray, colour: Rgb, radius_px: float, outline: Rgb | None = None) -> None:
        """Discs around places (k, 2) in the world, m."""
        radius = FINE * radius_px
        for x, y in (FINE * self.camera.pixels(np.reshape(places_m, (-1, 2)))).tolist():
            box = (x - radius, y - radius, x + radius, y + radius)
            self._draw.ellipse(box, fill=colour, outline=outline, width=FINE)

    def picture(self) -> Image.Image:
        """Drawn picture, in its own size."""
        return self._image.reduce(FINE)


@functools.cache
def font(size_px: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font that comes with Matplotlib."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf" / name), size_px)


def write(
    draw: ImageDraw.ImageDraw,
    place_px: tuple[float, float],
    text: str,
    size_px: int,
    colour: Rgb,
    *,
    align: str = "left",
    bold: bool = False,
) -> None:
    """A line of text beside a place in a picture, a name of :data:`ANCHORS`; in height it is in the middle."""
    draw.text(place_px, text, fill=colour, font=font(size_px, bold), anchor=ANCHORS[align])


def frame(image: Image.Image) -> NDArray[np.uint8]:
    """A picture as uint8 (height, width, 3)."""
    return np.asarray(image.convert("RGB"))


def contact_sheet(frames: Sequence[NDArray[np.uint8]], columns: int = 2) -> NDArray[np.uint8]:
    """Pictures, uint8 (height, width, 3) of one size, beside and below each other in reading order."""
    rows = -(-len(frames) // columns)
    height, width = frames[0].shape[:2]
    sheet = np.full((rows * height, min(columns, len(frames)) * width, 3), 255, np.uint8)
    for index, picture in enumerate(frames):
        row, column = divmod(index, columns)
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    return sheet
