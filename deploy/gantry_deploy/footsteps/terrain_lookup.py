"""The ground under the feet of a gait, from the map window, once for training and robot (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.policy_contract import GaitSpec, MapWindow
from gantry_deploy.footsteps import gait as gait_clock
from gantry_mapping.elevation.ops import gather, namespace

Array = Any

SOLID_SHARE = 0.2
"""So much of a place between four cells is to be of solid ones for their height alone to count."""


def heights_at(window: MapWindow, elevation: Array, x_m: Array, y_m: Array) -> Array:
    """Elevation between cell centres, bilinear; the outermost cells go on beyond the window.

    Args:
        window: Which cells they are.
        elevation: Shape (N, rows, cols), m.
        x_m: Shape (N, k), forward in the base's yaw frame.
        y_m: Shape (N, k), to the left.

    Returns:
        Shape (N, k), m.
    """
    shares, heights = _corners(window, elevation, x_m, y_m)
    return namespace(elevation).sum(shares * heights, axis=0)


def solid_heights_at(window: MapWindow, elevation: Array, x_m: Array, y_m: Array, lowest_m: Array) -> Array:
    """The same of the cells above ``lowest_m`` (N, 1) alone, wherever more than :data:`SOLID_SHARE` of a place is
    theirs: a bar's edge is as high as the bar, not halfway down into the void beside it."""
    xp = namespace(elevation)
    shares, heights = _corners(window, elevation, x_m, y_m)
    solid = xp.where(heights > lowest_m, shares, xp.zeros_like(shares))
    share = xp.sum(solid, axis=0)
    counts = xp.where(share > SOLID_SHARE, solid, shares)
    return xp.sum(counts * heights, axis=0) / xp.sum(counts, axis=0)


def cells_of(window: MapWindow, like: Array) -> Array:
    """A map (cells, rows, cols) for each cell, of ones there and zeros elsewhere."""
    xp, cells = namespace(like), window.rows * window.cols
    return xp.reshape(xp.eye(cells, dtype=like.dtype, device=device(like)), (cells, window.rows, window.cols))


def shares_at(window: MapWindow, maps: Array, places: list[tuple[float, float]]) -> Array:
    """Weight of each cell at places that stay, (cells, k), so that their heights are one product of matrices.

    Args:
        window: Which cells they are.
        maps: Of :func:`cells_of`, or their means.
        places: x and y in the base's yaw frame, m.
    """
    xp, none = namespace(maps), namespace(maps).zeros_like(maps[:, 0, :1])
    x, y = (xp.asarray([axis], dtype=maps.dtype, device=device(maps)) for axis in zip(*places, strict=True))
    return heights_at(window, maps, none + x, none + y)


def carried_shares(window: MapWindow, elevation: Array, places: Array, lowest_m: Array, highest_m: Array) -> Array:
    """Share of the four cells around places that carries, (N, k), 0 to 1.

    Args:
        window: Which cells they are.
        elevation: Shape (N, rows, cols), m.
        places: Shape (N, k, 2), m in the base's yaw frame.
        lowest_m: Shape (N, 1); cells carry above this...
        highest_m: Shape (N, 1); ...and below this.
    """
    xp = namespace(elevation)
    carries = (elevation > lowest_m[..., None]) & (elevation < highest_m[..., None])
    return heights_at(window, xp.astype(carries, elevation.dtype), places[..., 0], places[..., 1])


def neighbourhood(cells: Array, axis: int) -> Array:
    """Means, of the shape of ``cells`` and in any unit, of each cell and its two neighbours along an axis; the
    outermost cells go on beyond the border.
    """
    xp, count = namespace(cells), cells.shape[axis]
    index = xp.arange(count, dtype=xp.int64, device=device(cells))
    before, after = limited(index - 1, 0, count - 1), limited(index + 1, 0, count - 1)
    return (cells + xp.take(cells, before, axis=axis) + xp.take(cells, after, axis=axis)) / 3.0


def interpolated(fields: Array, row: Array, col: Array) -> Array:
    """Values between cell centres, bilinear; the outermost cells go on beyond the border.

    Args:
        fields: Shape (N, rows, cols), in any unit.
        row: Shape (N, k), place in cells, 0 at the centre of the first row.
        col: Shape (N, k), the same along the columns.

    Returns:
        Shape (N, k), in the unit of ``fields``.
    """
    shares, values = _around(fields, row, col)
    return namespace(fields).sum(shares * values, axis=0)


def _corners(window: MapWindow, elevation: Array, x_m: Array, y_m: Array) -> tuple[Array, Array]:
    row = (x_m - window.center_x_m) / window.resolution_m + 0.5 * (window.rows - 1)
    col = (y_m - window.center_y_m) / window.resolution_m + 0.5 * (window.cols - 1)
    return _around(elevation, row, col)


def _around(fields: Array, row: Array, col: Array) -> tuple[Array, Array]:
    """Of the four cells around each place their shares, which add up to 1, and values, (4, N, k) each."""
    xp = namespace(fields)
    rows, cols = fields.shape[-2:]
    i, u = _cell(row, rows)
    j, v = _cell(col, cols)
    corner = i * cols + j
    if row.shape[0] > 1:
        corner = corner + xp.arange(row.shape[0], dtype=xp.int64, device=device(fields))[:, None] * (rows * cols)
    both, corners = u * v, (corner, corner + 1, corner + cols, corner + (cols + 1))
    shares = xp.stack((1.0 - u - v + both, v - both, u - both, both), axis=0)
    return shares, gather(xp.reshape(fields, (-1,)), xp.stack(corners, axis=0))


def _cell(place: Array, count: int) -> tuple[Array, Array]:
    """The cell below a place in cells, and how far it is towards the next one, in [0, 1]."""
    xp = namespace(place)
    place = limited(place, 0.0, float(count - 1))
    cell = limited(xp.astype(place, xp.int64), 0, count - 2)  # no number at all is a cell as well
    return cell, place - xp.astype(cell, place.dtype)


def foot_lift(
    gait: GaitSpec,
    window: MapWindow,
    phase: Array,
    drive: Array,
    foot_x_m: Array,
    foot_y_m: Array,
    elevation_map: Array,
    tilt: Array,
    ang_vel_base_in_base_rad_s: Array,
) -> Array:
    """Height by which each foot is to be raised to follow the ground: see ``GroundSpec``.

    Args:
        gait: The clock, with ``ground``.
        window: The map's cells.
        phase: Shape (N, feet).
        drive: Shape (N, 3), the velocity that the gait is to walk at, m/s and rad/s; zero while it rests.
        foot_x_m: Shape (feet,), ``gait.foot_x_m`` as an array.
        foot_y_m: Shape (feet,), ``gait.foot_y_m`` as an array.
        elevation_map: Shape (N, rows, cols, channels), elevation first, m.
        tilt: Shape (N, 2), :func:`gantry_deploy.footsteps.gait.tilt`.
        ang_vel_base_in_base_rad_s: Shape (N, 3).

    Returns:
        Shape (N, feet), m, positive up.
    """
    ground = gait.ground
    assert ground is not None
    xp = namespace(phase)
    elevation = elevation_map[..., 0]
    ahead, aside = gait_clock.foot_displacement(gait, phase, drive, foot_x_m, foot_y_m)
    x, y = foot_x_m[None, :] + ahead, foot_y_m[None, :] + aside
    touch = xp.zeros_like(phase)  # the clock's phase at touch-down
    land_ahead, land_aside = gait_clock.foot_displacement(gait, touch, drive, foot_x_m, foot_y_m)
    # The body goes on until the foot lands.
    left_s = (1.0 - limited(phase, gait.duty, 1.0)) / gait.frequency_hz
    land_x = foot_x_m[None, :] + land_ahead + left_s * (drive[:, 0:1] - drive[:, 2:3] * foot_y_m[None, :])
    land_y = foot_y_m[None, :] + land_aside + left_s * (drive[:, 1:2] + drive[:, 2:3] * foot_x_m[None, :])
    here = heights_at(window, elevation, x, y)
    lowest = xp.max(here, axis=1, keepdims=True) - ground.deep_m
    here = xp.maximum(here, lowest)
    mean = xp.mean(here, axis=1, keepdims=True)
    land = xp.maximum(heights_at(window, elevation, land_x, land_y), lowest)
    middle = heights_at(window, elevation, 0.5 * (x + land_x), 0.5 * (y + land_y))
    clears = xp.maximum(xp.maximum(here, middle), land)
    swings = (phase >= gait.duty) & xp.any(drive != 0.0, axis=1, keepdims=True)
    rise = limited(xp.where(swings, clears, here) - mean, -ground.drop_m, ground.rise_m)
    leans = ground.level_tilt * tilt + ground.level_rate_s * ang_vel_base_in_base_rad_s[:, :2]
    push = leans[:, 1:2] * foot_x_m[None, :] - leans[:, 0:1] * foot_y_m[None, :]
    return rise - xp.where(swings, xp.zeros_like(push), limited(push, -ground.level_m, ground.level_m))
