"""Maps as pictures, in numpy: colours, hill shading, a panel that knows which pixel shows which place, and text."""

from __future__ import annotations

import functools
import itertools
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_mapping.elevation.grid import GridSpec

FloatArray = NDArray[np.floating]
Picture = NDArray[np.floating]
"""Shape (height, width, 3), 0 to 1."""

Rgb = tuple[float, float, float]

HEIGHT_SPAN_M = 0.8
"""Heights are told apart by colour within this, below and above the zero of a picture."""
HEIGHT_COLOURS = ((0.10, 0.16, 0.42), (0.30, 0.48, 0.66), (0.74, 0.76, 0.70), (0.85, 0.62, 0.33), (0.55, 0.18, 0.12))
"""From the lowest to the highest."""
SIGMA_RANGE_M = (0.01, 1.0)
"""Standard deviations are told apart, in powers, within this."""
SIGMA_COLOURS = ((0.16, 0.32, 0.30), (0.32, 0.58, 0.48), (0.80, 0.82, 0.55), (0.96, 0.94, 0.86))
"""From sure to unsure."""
SHARE_COLOURS = ((0.12, 0.13, 0.17), (0.45, 0.12, 0.38), (0.86, 0.30, 0.18), (0.99, 0.75, 0.22), (1.0, 0.98, 0.80))
"""From nothing to the share that :func:`share_scale` says."""
MANY_TIMES_EVEN = 4.0
"""See :func:`share_scale`."""
UNSEEN: Rgb = (0.30, 0.31, 0.34)
"""Cells of which nothing is known, and what lies beyond a map."""

_SUN = np.array([0.42, 0.42, 0.80])
_AMBIENT = 0.35


@dataclass(frozen=True)
class Panel:
    """A rectangle of pixels that shows a rectangle of the ground.

    Seen from above: with ``turned`` x points up and y to the left, as a robot sees the ground ahead of it; otherwise x
    points to the right and y up, as on a map of the world.
    """

    low_m: tuple[float, float]
    """Smallest x and y that it shows."""
    high_m: tuple[float, float]
    """Largest x and y that it shows."""
    px_per_m: float
    """Scale."""
    turned: bool = False
    """Whether the picture is turned so that the heading points up."""

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        x, y = (max(1, round((high - low) * self.px_per_m)) for low, high in zip(self.low_m, self.high_m, strict=True))
        return (x, y) if self.turned else (y, x)

    def pixel(self, xy_m: FloatArray) -> FloatArray:
        """Row and column (..., 2), px, of places (..., 2), m, in the panel's frame; whole numbers are pixels'
        centres.
        """
        x, y = xy_m[..., 0], xy_m[..., 1]
        if self.turned:
            place = np.stack((self.high_m[0] - x, self.high_m[1] - y), axis=-1)
        else:
            place = np.stack((self.high_m[1] - y, x - self.low_m[0]), axis=-1)
        return place * self.px_per_m - 0.5

    def places(self) -> FloatArray:
        """Shape (height, width, 2), x and y in m of the centres of the pixels."""
        row, col = ((np.arange(count) + 0.5) / self.px_per_m for count in self.shape)
        if self.turned:
            return np.stack(np.meshgrid(self.high_m[0] - row, self.high_m[1] - col, indexing="ij"), axis=-1)
        y, x = np.meshgrid(self.high_m[1] - row, self.low_m[0] + col, indexing="ij")
        return np.stack((x, y), axis=-1)


@functools.lru_cache(maxsize=32)
def _cells(panel: Panel, grid: GridSpec) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    row, col, inside = grid.index_of(panel.places())
    return row * grid.cols + col, inside


def paint(panel: Panel, grid: GridSpec, colours: Picture, background: Picture | Rgb = UNSEEN) -> Picture:
    """The cells of a grid as squares of colour.

    Args:
        panel: Where.
        grid: Where the cells are, in the panel's frame.
        colours: Shape (rows, cols, 3) of the cells, 0 to 1.
        background: What shows beyond the grid.
    """
    index, inside = _cells(panel, grid)
    return np.where(inside[..., None], colours.reshape(-1, 3)[index], background)


def ramp(share: FloatArray, colours: tuple[Rgb, ...]) -> Picture:
    """Colours (..., 3) of shares (...), 0 to 1 from the first to the last of ``colours``."""
    table = np.array(colours)
    knots = np.linspace(0.0, 1.0, len(table))
    return np.stack([np.interp(share, knots, table[:, channel]) for channel in range(3)], axis=-1)


def height_colours(height_m: FloatArray) -> Picture:
    """Colours (..., 3) of heights (...) over a picture's zero, m."""
    return ramp(0.5 + 0.5 * np.asarray(height_m) / HEIGHT_SPAN_M, HEIGHT_COLOURS)


def sigma_colours(variance_m2: FloatArray) -> Picture:
    """Colours (..., 3) of variances (...), m^2, by the logarithm of the standard deviation."""
    low, high = np.log(SIGMA_RANGE_M)
    sigma = 0.5 * np.log(np.maximum(variance_m2, SIGMA_RANGE_M[0] ** 2))
    return ramp((sigma - low) / (high - low), SIGMA_COLOURS)


def share_scale(share: FloatArray) -> float:
    """Value of the brightest colour of shares (rows, cols): the largest one, but at least
    :data:`MANY_TIMES_EVEN` times an even spread, so that an even spread looks dull."""
    return max(float(np.max(share)), MANY_TIMES_EVEN / share.size)


def share_colours(share: FloatArray) -> Picture:
    """Colours (rows, cols, 3) of the shares (rows, cols) of a window's cells; see :func:`share_scale`."""
    return ramp(share / share_scale(share), SHARE_COLOURS)


def hillshade(height_m: FloatArray, resolution_m: float) -> FloatArray:
    """Brightness (rows, cols) of ground lit from ahead and the left; level ground is 1.

    Args:
        height_m: Shape (rows, cols), row i along x, column j along y; cells that are not finite are level.
        resolution_m: Edge length of a cell.
    """
    height = np.where(np.isfinite(height_m), height_m, 0.0)
    along_x, along_y = np.gradient(height, resolution_m)
    # A cliff is a slope of many metres per metre here; all of them are as dark, or as bright, as each other.
    along_x, along_y = np.clip(along_x, -2.0, 2.0), np.clip(along_y, -2.0, 2.0)
    light = (_SUN[2] + along_x * -_SUN[0] + along_y * -_SUN[1]) / np.sqrt(1.0 + along_x**2 + along_y**2)
    return _AMBIENT + (1.0 - _AMBIENT) * np.clip(light, 0.0, None) / _SUN[2]


def shaded(height_m: FloatArray, resolution_m: float, zero_m: float) -> Picture:
    """Hill-shaded colours (rows, cols, 3) of ground; cells that are not finite are :data:`UNSEEN`.

    Args:
        height_m: Shape (rows, cols).
        resolution_m: Edge length of a cell.
        zero_m: The height that is drawn in the colour of the middle.
    """
    known = np.isfinite(height_m)
    level = np.where(known, height_m, zero_m)
    lit = height_colours(level - zero_m) * hillshade(level, resolution_m)[..., None]
    return np.where(known[..., None], np.clip(lit, 0.0, 1.0), UNSEEN)


def draw_line(picture: Picture, panel: Panel, points_m: FloatArray, colour: Rgb, width_px: float = 2.0) -> None:
    """Draw a line through places (k, 2) [m], in the panel's frame, into a picture, with soft edges; what is outside
    is left out.
    """
    place = panel.pixel(np.asarray(points_m, dtype=np.float64))
    reach = 0.5 * width_px + 1.0
    for start, end in itertools.pairwise(place):
        corner = np.maximum(np.floor(np.minimum(start, end) - reach), 0).astype(int)
        far = np.minimum(np.ceil(np.maximum(start, end) + reach) + 1, picture.shape[:2]).astype(int)
        if (far <= corner).any() or not np.isfinite(place).all():
            continue
        pixels = np.stack(np.meshgrid(*(np.arange(a, b) for a, b in zip(corner, far, strict=True)), indexing="ij"), -1)
        along, offset = end - start, pixels - start
        length = float(along @ along)
        share = np.clip(offset @ along / length, 0.0, 1.0) if length > 0.0 else np.zeros(pixels.shape[:2])
        distance = np.linalg.norm(offset - share[..., None] * along, axis=-1)
        cover = np.clip(0.5 * width_px + 0.5 - distance, 0.0, 1.0)[..., None]
        part = picture[corner[0] : far[0], corner[1] : far[1]]
        part += cover * (np.array(colour) - part)


def draw_dot(picture: Picture, panel: Panel, place_m: FloatArray, colour: Rgb, radius_px: float) -> None:
    """Draw a disc at a place (2,) [m]."""
    place = np.asarray(place_m, dtype=np.float64)
    draw_line(picture, panel, np.stack((place, place)), colour, 2.0 * radius_px)


def draw_outline(picture: Picture, panel: Panel, corners_m: FloatArray, colour: Rgb, width_px: float = 1.0) -> None:
    """Draw a closed line through places (k, 2) [m]."""
    draw_line(picture, panel, np.concatenate((corners_m, corners_m[:1])), colour, width_px)


@functools.lru_cache(maxsize=512)
def text_mask(text: str, size_px: float, bold: bool = False) -> NDArray[np.float64]:
    """Ink in each pixel of a line of text, (height, width), 0 to 1. Needs matplotlib, for its font."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = round(1.5 * size_px)
    figure = Figure(figsize=(0.01 * max(1.0, 0.9 * size_px * len(text)), 0.01 * height), dpi=100)
    canvas = FigureCanvasAgg(figure)
    figure.text(0.0, 0.28, text, fontsize=0.72 * size_px, weight="bold" if bold else "normal", parse_math=False)
    canvas.draw()
    ink = 1.0 - np.asarray(canvas.buffer_rgba())[..., 0] / 255.0
    columns = np.flatnonzero(ink.any(axis=0))
    return ink[:, : columns[-1] + 2] if len(columns) else ink[:, :1]


def write(
    picture: Picture, row: int, col: int, text: str, size_px: float = 13.0, colour: Rgb = (0.1, 0.1, 0.1), **style: bool
) -> None:
    """Write a line of text into a picture, its upper left corner at a pixel; what is outside is left out."""
    mask = text_mask(text, size_px, **style)
    part = picture[row : row + mask.shape[0], col : col + mask.shape[1]]
    part += mask[: part.shape[0], : part.shape[1], None] * (np.array(colour) - part)


def as_frame(picture: Picture) -> NDArray[np.uint8]:
    """The picture in bytes, for :func:`~gantry_deploy.report.video.encode_mp4` and :func:`encode_png`."""
    return np.round(255.0 * np.clip(picture, 0.0, 1.0)).astype(np.uint8)


def encode_png(frame: NDArray[np.uint8], level: int = 6) -> bytes:
    """A picture, uint8 (height, width, 3), as a PNG file, compressed from 1 (fast) to 9 (small)."""
    height, width = frame.shape[:2]
    rows = np.concatenate((np.zeros((height, 1), np.uint8), frame.reshape(height, 3 * width)), axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes(), level)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
