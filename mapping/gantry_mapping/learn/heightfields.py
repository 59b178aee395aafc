"""Ground to learn mapping on: random rasters of several families, and rasters of locomotion terrains from a file.

A raster is a float32 array (H, W) of heights in m; row i grows along +x, column j along +y. Families follow the paper
(section V): stacked boxes, random height fields, floating boxes; steps and stones stand in for locomotion terrains
where no file of them is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.npz import ZIP_ERRORS, read_npz
from gantry_hardware.files.whole_files import whole_file
from gantry_mapping.learn.rays import RasterError

Heights = NDArray[np.float32]
"""(H, W), m."""
RESOLUTION_KEY = "resolution_m"
"""Entry of a file of rasters that holds the edge of a cell; every other entry is a raster."""


@dataclass(frozen=True)
class Patch:
    """A piece of ground, and what floats above it."""

    ground_m: Heights
    """(H, W) what carries a robot."""
    underside_m: Heights
    """(H, W) undersides of floating things, NaN where there are none."""
    roof_m: Heights
    """(H, W) their tops, NaN where there are none."""

    @property
    def surface_m(self) -> Heights:
        """(H, W) what one sees from above: the label, since a map is to show what is no way through."""
        return np.fmax(self.ground_m, self.roof_m)


Generator = Callable[[np.random.Generator, int, float], Patch]
"""(random generator, cells along an edge, edge of a cell in m) -> patch."""


def _solid(ground: NDArray[np.floating]) -> Patch:
    ground = np.ascontiguousarray(ground, dtype=np.float32)
    none = np.full_like(ground, np.nan)
    return Patch(ground, none, none)


def _rectangle(
    rng: np.random.Generator, size: int, resolution_m: float, edge_m: tuple[float, float]
) -> NDArray[np.bool_]:
    """(size, size) cells of a turned rectangle somewhere."""
    half = rng.uniform(*edge_m, size=2) / (2 * resolution_m)
    middle = rng.uniform(0, size, size=2)
    turn = rng.choice((0.0, rng.uniform(0, np.pi)))
    x = np.arange(size, dtype=np.float32)[:, None] - middle[0]
    y = np.arange(size, dtype=np.float32)[None, :] - middle[1]
    cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    return (np.abs(cos * x + sin * y) <= half[0]) & (np.abs(cos * y - sin * x) <= half[1])


def stacked_boxes(rng: np.random.Generator, size: int, resolution_m: float) -> Patch:
    """Boxes of 0.2 to 1.5 m on one another; each raises what is below it by at most 0.4 m, and some are holes."""
    ground = np.zeros((size, size), np.float32)
    for _ in range(int(rng.integers(6, 30))):
        area = _rectangle(rng, size, resolution_m, (0.2, 1.5))
        if area.any():
            level = np.max(ground[area]) if rng.random() < 0.5 else np.median(ground[area])
            step = rng.uniform(0.03, 0.4) * rng.choice((1.0, 1.0, -1.0))
            ground[area] = np.clip(level + step, -1.2, 1.2)
    return _solid(ground)


def random_field(rng: np.random.Generator, size: int, resolution_m: float) -> Patch:
    """Hills of several lengths, rough at the end, on a slope."""
    ground = np.zeros((size, size))
    for length_m in (2.0, 0.8, 0.3):
        count = max(int(size * resolution_m / length_m), 1) + 3
        amplitude = rng.uniform(0.0, 0.12) * length_m**0.5
        ground += amplitude * _smooth(rng.standard_normal((count, count)), size, rng.uniform(0, 1, 2))
    slope = rng.uniform(-0.35, 0.35, size=2) * rng.integers(0, 2)
    ramp = (np.arange(size) - size / 2) * resolution_m
    ground += slope[0] * ramp[:, None] + slope[1] * ramp[None, :]
    ground += rng.uniform(0.0, 0.03) * rng.standard_normal((size, size))
    return _solid(ground)


def _smooth(knots: NDArray[np.floating], size: int, shift: NDArray[np.floating]) -> NDArray[np.floating]:
    """(size, size) bilinear interpolation of a coarse square of knots."""
    at = np.linspace(0.0, len(knots) - 2.001, size)
    for axis in (0, 1):
        place = np.minimum(at + shift[axis], len(knots) - 1.001)
        low = place.astype(int)
        share = place - low
        shape = (-1, 1) if axis == 0 else (1, -1)
        share = share.reshape(shape)
        knots = np.take(knots, low, axis) * (1 - share) + np.take(knots, low + 1, axis) * share
    return knots


def steps(rng: np.random.Generator, size: int, resolution_m: float) -> Patch:
    """Stairs, a single edge or a trench along one direction, with walls on some."""
    turn = rng.choice((0.0, np.pi / 2, rng.uniform(0, np.pi)))
    x = (np.arange(size)[:, None] - rng.uniform(0.2, 0.8) * size) * resolution_m
    y = (np.arange(size)[None, :] - rng.uniform(0.2, 0.8) * size) * resolution_m
    along, across = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
    kind = rng.integers(3)
    if kind == 0:
        tread, rise = rng.uniform(0.22, 0.4), rng.uniform(0.04, 0.25) * rng.choice((-1, 1))
        ground = rise * np.clip(np.floor(along / tread), -10, rng.integers(2, 12))
    elif kind == 1:
        ground = rng.uniform(0.08, 0.7) * (along > 0)
    else:
        ground = -rng.uniform(0.2, 1.2) * ((along > 0) & (along < rng.uniform(0.08, 1.0)))
    if rng.random() < 0.3:
        side = rng.uniform(0.4, 1.0)
        ground = np.where(np.abs(across) > side, ground + rng.uniform(0.3, 1.5), ground)
    return _solid(ground)


def stones(rng: np.random.Generator, size: int, resolution_m: float) -> Patch:
    """Stones or beams over a pit, each a little higher or lower than the next, with a ledge to start from."""
    pitch = rng.uniform(0.25, 0.7)
    gap = rng.uniform(0.06, 0.45 * pitch)
    depth = rng.uniform(0.3, 1.5)
    x = (np.arange(size) + rng.uniform(0, size)) * resolution_m / pitch
    y = (np.arange(size) + rng.uniform(0, size)) * resolution_m / pitch
    row, column = x.astype(int), y.astype(int)
    count = (row.max() + 2, column.max() + 2)
    shift = rng.uniform(-0.5, 0.5, (*count, 2)) * (gap / pitch) * 0.8
    tops = rng.uniform(-1, 1, count) * rng.uniform(0.0, 0.1)
    tops[rng.random(count) < 0.05] = -depth
    u = (x - row)[:, None] - 0.5 - shift[row][:, column][..., 0]
    v = (y - column)[None, :] - 0.5 - shift[row][:, column][..., 1]
    half = 0.5 - 0.5 * gap / pitch
    on = np.abs(u) <= half
    if rng.random() < 0.7:
        on = on & (np.abs(v) <= half)
    ground = np.where(on, tops[row][:, column], -depth)
    ledge = int(rng.uniform(0.3, 0.5) * size)
    ground[:ledge] = 0.0
    return _solid(np.rot90(ground, int(rng.integers(4))))


def floating_boxes(rng: np.random.Generator, size: int, resolution_m: float) -> Patch:
    """Other ground with boxes hanging over it, 0.15 to 0.9 m above; nothing that a robot could stand on."""
    base = (stacked_boxes, random_field, steps)[int(rng.integers(3))](rng, size, resolution_m)
    underside, roof = np.full_like(base.ground_m, np.nan), np.full_like(base.ground_m, np.nan)
    for _ in range(int(rng.integers(2, 8))):
        area = _rectangle(rng, size, resolution_m, (0.15, 1.2))
        if area.any():
            bottom = np.max(base.ground_m[area]) + rng.uniform(0.15, 0.9)
            underside[area], roof[area] = bottom, bottom + rng.uniform(0.03, 0.4)
    return Patch(base.ground_m, underside, roof)


FAMILIES: dict[str, Generator] = {
    "stacked_boxes": stacked_boxes,
    "random_field": random_field,
    "steps": steps,
    "stones": stones,
    "floating_boxes": floating_boxes,
}
"""Every family of random ground by its name."""


def make_patch(family: str, rng: np.random.Generator, size: int, resolution_m: float) -> Patch:
    """A random patch.

    Args:
        family: One of :data:`FAMILIES`.
        rng: Everything random comes from here.
        size: Cells along an edge.
        resolution_m: Edge of a cell.

    Raises:
        UnknownNameError: If there is no such family.
    """
    if family not in FAMILIES:
        raise UnknownNameError("family of ground", family, FAMILIES)
    return FAMILIES[family](rng, size, resolution_m)


def cut_patch(rasters: Sequence[Heights], rng: np.random.Generator, size: int) -> Patch:
    """A square from a random place of a random raster, turned by a multiple of 90 degrees and mirrored or not.

    Raises:
        RasterError: If a raster is smaller than the patch.
    """
    raster = rasters[int(rng.integers(len(rasters)))]
    if min(raster.shape) < size:
        raise RasterError(f"A raster has {raster.shape[0]} x {raster.shape[1]} cells, expected at least {size} each.")
    row, column = (int(rng.integers(extent - size + 1)) for extent in raster.shape)
    piece = np.rot90(raster[row : row + size, column : column + size], int(rng.integers(4)))
    return _solid(piece[::-1] if rng.random() < 0.5 else piece)


_MAX_RASTER_BYTES = 2**32
"""Largest size of all rasters of a file."""


def save_rasters(path: str | Path, rasters: Mapping[str, Heights], resolution_m: float) -> None:
    """Write rasters for :func:`load_rasters`; heights are kept to 1 mm at best (float16 would not keep that)."""
    arrays = {name: np.asarray(raster, dtype=np.float32) for name, raster in rasters.items()}
    with whole_file(path) as file:
        np.savez_compressed(file, **arrays, **{RESOLUTION_KEY: np.float64(resolution_m)})  # type: ignore[arg-type]


def load_rasters(path: str | Path) -> tuple[dict[str, Heights], float]:
    """Rasters by name, and the edge of their cells in m.

    Raises:
        RasterError: If the file is missing, damaged, or holds something else.
    """
    try:
        arrays = read_npz(Path(path).read_bytes(), _MAX_RASTER_BYTES)
    except ZIP_ERRORS as error:
        raise RasterError(f"Cannot read rasters from '{path}': {error}") from error
    if RESOLUTION_KEY not in arrays:
        raise RasterError(
            f"'{path}' has no entry '{RESOLUTION_KEY}'; it holds {', '.join(sorted(arrays)) or 'nothing'}."
        )
    resolution_m = float(arrays.pop(RESOLUTION_KEY))
    for name, raster in arrays.items():
        if raster.ndim != 2 or not np.issubdtype(raster.dtype, np.floating):
            raise RasterError(f"Raster '{name}' of '{path}' is {raster.dtype} {raster.shape}, expected floats (H, W).")
    return {name: raster.astype(np.float32) for name, raster in arrays.items()}, resolution_m
