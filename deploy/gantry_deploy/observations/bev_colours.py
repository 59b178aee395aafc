"""A bird's-eye-view raster in colours, for eyes and for models that look at pictures (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.errors import ContractError
from gantry_deploy.observations.bev import BevLayout
from gantry_mapping.elevation.ops import namespace

Array = Any

GROUND = (110, 150, 90)
"""Beside the road."""
EGO = (0, 230, 118)
"""The car itself."""
EGO_HIT = (255, 20, 60)
"""The car where another road user's box, or the line ahead of it, lies on it."""
COLOURS: dict[str, tuple[int, int, int]] = {
    "road": (70, 72, 78),
    "route": (104, 118, 158),
    "markings": (235, 235, 235),
    "static": (240, 140, 20),
    "vehicles": (40, 110, 255),
    "pedestrians": (255, 225, 0),
}
"""Of each channel, painted over each other in this order; a broken marking is half as bright over the road. The speed
limit is not painted."""
STOP_COLOURS = ((80, (0, 190, 60)), (170, (255, 200, 0)), (255, (230, 0, 0)))
"""Colours of a stop line by its code."""
USUAL_CAR_M = (1.4, 4.5, 1.8)
"""Usual car: distance of the box's middle ahead of ``base_link``, its length and width."""


def bev_picture(
    raster: Array, layout: BevLayout | None = None, car_m: tuple[float, float, float] = USUAL_CAR_M
) -> Array:
    """Paint rasters: road grey, ground green, others blue, pedestrians yellow, things orange, the car bright green.

    Args:
        raster: uint8, shape (B, channels, H, W), of :func:`gantry_deploy.observations.bev.bev_raster`.
        layout: Of the raster; the usual channels, a metre per pixel, and a quarter of the raster behind if not given.
        car_m: Of the car's own box: how far ahead of ``base_link`` its middle is, length and width.

    Returns:
        uint8, shape (B, 3, H, W), red, green and blue.

    Raises:
        ContractError: If the raster has another shape than the layout says.
    """
    xp = namespace(raster)
    pixels = raster.shape[-1]
    layout = BevLayout(pixels, behind_m=0.25 * pixels) if layout is None else layout
    if tuple(raster.shape[1:]) != layout.shape:
        raise ContractError(f"The raster has shape {tuple(raster.shape[1:])}, its layout says {layout.shape}.")
    rows = {name: raster[:, i] for i, name in enumerate(layout.channels)}
    where = device(raster)

    def colour(value: tuple[int, int, int]) -> Array:
        return xp.reshape(xp.asarray(value, dtype=xp.uint8, device=where), (1, 3, 1, 1))

    zeros = xp.zeros((raster.shape[0], 3, pixels, pixels), dtype=xp.uint8, device=where)
    picture = zeros + colour(GROUND)
    for name, value in COLOURS.items():
        if name not in rows:
            continue
        seen = rows[name][:, None]
        if name == "markings":
            dim = tuple((a + b) // 2 for a, b in zip(value, COLOURS["road"], strict=True))
            picture = xp.where((seen > 0) & (seen < 255), colour(dim), picture)  # type: ignore[arg-type]
            seen = xp.where(seen == 255, seen, xp.zeros_like(seen))
        picture = xp.where(seen > 0, colour(value), picture)
        if name == "static" and "stop_line" in rows:
            for code, shade in STOP_COLOURS:
                picture = xp.where(rows["stop_line"][:, None] == code, colour(shade), picture)
    hit = xp.zeros((raster.shape[0], pixels, pixels), dtype=xp.bool, device=where)
    for name in ("vehicles", "pedestrians", "static"):
        hit = hit | (rows[name] > 0) if name in rows else hit
    own = _own_box(xp, layout, car_m, where)
    picture = xp.where(own, colour(EGO), picture)
    return xp.where(own & hit[:, None], colour(EGO_HIT), picture)


def _own_box(xp: Any, layout: BevLayout, car_m: tuple[float, float, float], where: Any) -> Array:
    """Pixels (H, W) of the car's own box, bool."""
    edge = layout.metres_per_pixel
    middle = (xp.arange(layout.pixels, dtype=xp.float64, device=where) + 0.5) * edge
    ahead, left = layout.ahead_m - middle, 0.5 * layout.extent_m - middle
    centre, length, width = car_m
    long = xp.abs(ahead - centre) <= max(0.5 * length, 0.71 * edge)
    return long[:, None] & (xp.abs(left) <= max(0.5 * width, 0.71 * edge))[None, :]
