"""The map around each robot: world-aligned cells with a mean and a variance, for many environments at once.

The world has one lattice: cell (I, J) covers [I, I + 1) x [J, J + 1) times the resolution. A map is a window of S x S
cells of it. Cell (I, J) is always stored at (I mod S, J mod S), so that following the robot moves no memory; only the
stripes that enter are overwritten. Nothing loops over environments.

A measured local grid is written by asking, for each cell of the map near it, which local cell lies there: every cell is
written once, without holes when the grid is turned, and the result does not depend on any order. Where the map is
coarser than the local grid, the surest of the local cells inside a map cell is taken.
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation import ops
from gantry_mapping.elevation.fusion import fusion_variances, lowered, make_fusion, steepest_slope
from gantry_mapping.elevation.grid import GridSpec

Array = Any

MIN_VARIANCE_M2 = 1e-6
"""No measurement is taken for surer than a millimetre."""


class ElevationMap:
    """Maps of ``num_envs`` environments.

    A map starts unseeded: all of it reads as flat ground under the robot, with the prior's variance. The first fused
    frame seeds it at the pose of that frame, since the pose at a reset may be that of the previous episode.

    Args:
        cfg: Sizes, prior, fusion.
        num_envs: How many maps, N.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, cfg: MappingCfg, num_envs: int, like: Array) -> None:
        xp = ops.namespace(like)
        where = device(like)
        self.cfg = cfg
        self.num_envs = num_envs
        self.cells = cfg.map_cells
        """S, cells along one edge."""
        self.fusion = make_fusion(cfg)
        self._xp, self._like = xp, like
        area = num_envs * self.cells * self.cells
        self._mean = xp.zeros((area,), dtype=like.dtype, device=where)
        self._variance = xp.full((area,), cfg.prior_variance_m2, dtype=like.dtype, device=where)
        self._measured = xp.zeros((area,), dtype=xp.bool, device=where)
        # Stored variances lack the growth since the map was seeded, which is one number per map.
        self._growth = xp.zeros((num_envs,), dtype=like.dtype, device=where)
        self._growth_per_s = cfg.drift_variance_m2_per_s + self.fusion.process_variance_m2_per_s
        self._low = xp.zeros((num_envs, 2), dtype=xp.int64, device=where)
        self._seeded = xp.zeros((num_envs,), dtype=xp.bool, device=where)
        self._frames = xp.zeros((num_envs,), dtype=xp.int64, device=where)
        self._streams = xp.arange(num_envs, dtype=xp.int64, device=where)
        self._cell_steps = xp.arange(self.cells, dtype=xp.int64, device=where)

    @property
    def seeded(self) -> Array:
        """Shape (N,), bool: which maps have had a frame since their reset."""
        return self._seeded

    def reset(self, rows_mask: Array | None = None) -> None:
        """Forget the maps of ``rows_mask`` (N,), bool; None for all."""
        forget = self._xp.ones_like(self._seeded) if rows_mask is None else rows_mask
        self._seeded = self._seeded & ~forget

    def advance(self, dt_s: float | Array, extra_m2_per_s: float | Array = 0.0) -> None:
        """Let time pass: variances grow, as odometry drifts and for any further reason.

        Args:
            dt_s: A number, or (N,).
            extra_m2_per_s: A number, or (N,): growth beside what the configuration says.
        """
        self._growth = self._growth + (self._growth_per_s + extra_m2_per_s) * dt_s

    def fuse(
        self,
        mean: Array,
        log_variance: Array,
        valid: Array,
        grid: GridSpec,
        pos_base_in_world: Array,
        yaw_rad: Array,
        fresh: Array | None = None,
        draws: Array | None = None,
    ) -> None:
        """Fuse a local grid into each map that has a fresh one.

        Args:
            mean: Shape (N, rows, cols), heights relative to the base, m; not finite is invalid.
            log_variance: Shape (N, rows, cols), natural logarithm of m^2.
            valid: Shape (N, rows, cols), bool: which cells to fuse.
            grid: Where the cells are.
            pos_base_in_world: Shape (N, 3), m, when the frame was taken.
            yaw_rad: Shape (N,), when the frame was taken.
            fresh: Shape (N,), bool: which environments have a new frame; None for all.
            draws: Uniform draws for the fusion over the patch of cells, for tests; None for the map's own.
        """
        rows = self.rows_of(fresh)
        parts = (mean, log_variance, valid, pos_base_in_world, yaw_rad)
        mean, log_variance, valid, pos, yaw = (self.select(part, rows) for part in parts)
        self.fuse_rows(rows, mean, log_variance, valid, grid, pos, yaw, draws)

    def rows_of(self, fresh: Array | None) -> Array | None:
        """Indices of the environments of a mask (N,), int64; None if it holds all of them."""
        if fresh is None or bool(self._xp.all(fresh)):
            return None
        return self._xp.nonzero(fresh)[0]

    @staticmethod
    def select(values: Array, rows: Array | None) -> Array:
        """The rows (M,) of an array (N, ...), or all of it for None."""
        return values if rows is None else values[rows]

    def fuse_rows(
        self,
        rows: Array | None,
        mean: Array,
        log_variance: Array,
        valid: Array,
        grid: GridSpec,
        pos_base_in_world: Array,
        yaw_rad: Array,
        draws: Array | None = None,
        measured: Array | None = None,
        past: Array | None = None,
    ) -> None:
        """:meth:`fuse` with arrays of M rows, those of the environments ``rows`` (M,); None for all N.

        Cells not ``measured`` (M, rows, cols), bool, are guesses and never replace what was measured. ``past``, of that
        shape, m over the base, is what valid cells lie below, infinity where unknown. None tells nothing.
        """
        xp = self._xp
        if mean.shape[0] == 0:
            return
        self._follow(rows, pos_base_in_world, yaw_rad)
        valid = valid & xp.isfinite(mean) & xp.isfinite(log_variance)
        local_variance = xp.where(valid, xp.clip(xp.exp(log_variance), MIN_VARIANCE_M2, None), float("inf"))
        height = xp.where(valid, mean, 0.0) + pos_base_in_world[:, 2][:, None, None]
        slope = steepest_slope(mean, grid.resolution_m) if self.fusion.needs_slope else None
        patch = _Patch(self, rows, grid, pos_base_in_world, yaw_rad)
        variance, index = patch.sample(local_variance, grid)

        def local(values: Array) -> Array:
            return ops.gather(xp.reshape(values, (-1,)), index)

        if draws is None and self.fusion.needs_draw:
            streams, frames = (self.select(item, rows) for item in (self._streams, self._frames))
            draws = ops.hash_uniform(self.cfg.seed, streams, frames, patch.row, patch.col)
        prior_mean, prior_variance = patch.read()
        inside = variance < float("inf")
        here = local(height)
        if measured is not None:
            looked, known = inside & local(measured), patch.known()
            if self.fusion.measured_only:
                variance = xp.where(looked, variance, float("inf"))
            else:
                prior_variance, variance = fusion_variances(prior_variance, variance, looked, known)
            patch.note(known | looked)
        new_mean, new_variance = self.fusion(
            prior_mean, prior_variance, here, variance, draws, None if slope is None else local(slope)
        )
        if past is not None:
            bound = xp.where(inside, local(past + pos_base_in_world[:, 2][:, None, None]), float("inf"))
            new_mean, new_variance = lowered(new_mean, new_variance, here, bound, self.cfg.carving_std_m, patch.known())
            patch.note(patch.known() | xp.isfinite(bound))
        patch.write(new_mean, new_variance)
        self._store("_frames", rows, self.select(self._frames, rows) + 1)

    def query(self, grid: GridSpec, pos_base_in_world: Array, yaw_rad: Array) -> tuple[Array, Array]:
        """Look at the maps from poses, at the nearest cell: a map is never interpolated across what was not seen.

        Args:
            grid: Where to look, in ``base_yaw``.
            pos_base_in_world: Shape (N, 3), m.
            yaw_rad: Shape (N,).

        Returns:
            Elevation in the world (N, rows, cols), m, and variance, m^2. Outside the map, and all over one that is not
            seeded, the elevation is that of flat ground under the standing robot and the variance the prior's.
        """
        xp, cells = self._xp, self.cells
        scale = 1.0 / self.cfg.map_resolution_m
        cos, sin = xp.cos(yaw_rad)[:, None], xp.sin(yaw_rad)[:, None]
        x, y = grid.row_centers(self._like)[None, :] * scale, grid.col_centers(self._like)[None, :] * scale
        # In cells from the map's lowest one; the large numbers cancel before the small ones are added.
        start = pos_base_in_world[:, :2] * scale - xp.astype(self._low, self._like.dtype)
        u = (cos * x + start[:, 0:1])[:, :, None] - (sin * y)[:, None, :]
        v = (sin * x + start[:, 1:2])[:, :, None] + (cos * y)[:, None, :]
        inside = (u >= 0) & (u < cells) & (v >= 0) & (v < cells) & self._seeded[:, None, None]
        row = xp.astype(xp.where(inside, u, 0.0), xp.int64) + (self._low[:, 0] % cells)[:, None, None]
        col = xp.astype(xp.where(inside, v, 0.0), xp.int64) + (self._low[:, 1] % cells)[:, None, None]
        row, col = xp.where(row >= cells, row - cells, row), xp.where(col >= cells, col - cells, col)
        index = (row + (self._streams * cells)[:, None, None]) * cells + col
        variance = ops.gather(self._variance, index) + self._growth[:, None, None]
        variance = xp.where(inside, variance, self.cfg.prior_variance_m2)
        flat = (pos_base_in_world[:, 2] - self.cfg.nominal_base_height_m)[:, None, None]
        return (
            xp.where(inside, ops.gather(self._mean, index), flat),
            xp.clip(variance, None, self.cfg.prior_variance_m2),
        )

    def layers(self) -> tuple[Array, Array, Array]:
        """The maps laid out in space, for showing and publishing.

        Returns:
            Mean in the world (N, S, S), m; variance (N, S, S), m^2; and the lower corner of each map in the world
            (N, 2), m. Row i grows along the world's x, column j along its y.
        """
        xp = self._xp
        row, col = ((self._low[:, k : k + 1] + self._cell_steps) % self.cells for k in (0, 1))
        index = ((row + (self._streams * self.cells)[:, None]) * self.cells)[:, :, None] + col[:, None, :]
        variance = ops.gather(self._variance, index) + self._growth[:, None, None]
        variance = xp.where(self._seeded[:, None, None], variance, self.cfg.prior_variance_m2)
        corner = xp.astype(self._low, self._like.dtype) * self.cfg.map_resolution_m
        return ops.gather(self._mean, index), xp.clip(variance, None, self.cfg.prior_variance_m2), corner

    def load(self, mean: Array, variance: Array, corner_in_world_m: Array) -> None:
        """Replace all maps by ones that were laid out in space: the inverse of :meth:`layers`.

        Args:
            mean: Shape (N, S, S), in the world, m.
            variance: Shape (N, S, S), m^2.
            corner_in_world_m: Shape (N, 2), lower corners, on the lattice but for rounding.
        """
        xp, cells = self._xp, self.cells
        self._low = xp.astype(xp.round(corner_in_world_m * (1.0 / self.cfg.map_resolution_m)), xp.int64)
        row, col = ((self._cell_steps - self._low[:, k : k + 1]) % cells for k in (0, 1))
        index = ((row + (self._streams * cells)[:, None]) * cells)[:, :, None] + col[:, None, :]
        self._mean, self._variance = (
            xp.reshape(ops.gather(xp.reshape(part, (-1,)), index), (-1,)) for part in (mean, variance)
        )
        self._measured = self._variance < self.cfg.prior_variance_m2
        self._growth = xp.zeros_like(self._growth)
        self._seeded = xp.ones_like(self._seeded)

    def _store(self, name: str, rows: Array | None, values: Array) -> None:
        if rows is None:
            setattr(self, name, values)
        else:
            getattr(self, name)[rows] = values

    def _follow(self, rows: Array | None, pos_base_in_world: Array, yaw_rad: Array) -> None:
        """Seed what is new and recentre what is far off, by whole cells of the lattice: else the map would smear."""
        xp, cells = self._xp, self.cells
        low, seeded = self.select(self._low, rows), self.select(self._seeded, rows)
        scaled = pos_base_in_world[:, :2] * (1.0 / self.cfg.map_resolution_m)
        off_center = abs(scaled - xp.astype(low, scaled.dtype) - 0.5 * cells)
        moves = ~seeded | xp.any(off_center > self.cfg.recenter_fraction * cells, axis=-1)
        if not bool(xp.any(moves)):
            return
        subset = xp.nonzero(moves)[0]
        envs = subset if rows is None else rows[subset]
        old, seeded = low[subset], seeded[subset]
        new = xp.astype(xp.floor(scaled[subset]), xp.int64) - cells // 2
        # Storage row s holds world row low + (s - low) mod S; where that changes, something new comes in.
        steps = self._cell_steps[None, :]
        row_new, col_new = (
            (old[:, k : k + 1] + (steps - old[:, k : k + 1]) % cells)
            != (new[:, k : k + 1] + (steps - new[:, k : k + 1]) % cells)
            for k in (0, 1)
        )
        enters = row_new[:, :, None] | col_new[:, None, :] | ~seeded[:, None, None]
        ground = pos_base_in_world[subset, 2] - self.cfg.nominal_base_height_m
        shape = (self.num_envs, cells, cells)
        mean, variance = xp.reshape(self._mean, shape), xp.reshape(self._variance, shape)  # views
        measured = xp.reshape(self._measured, shape)
        measured[envs] = measured[envs] & ~enters
        mean[envs] = xp.where(enters, ground[:, None, None], mean[envs])
        variance[envs] = xp.where(enters, self.cfg.prior_variance_m2, variance[envs])
        self._growth[envs] = xp.where(seeded, self._growth[envs], 0.0)
        self._low[envs] = new
        self._seeded[envs] = True
        if self.cfg.spawn_floor_half_m > 0.0 and not bool(xp.all(seeded)):
            first = ~seeded
            self._stamp_floor(envs[first], pos_base_in_world[subset][first], yaw_rad[subset][first])

    def _stamp_floor(self, envs: Array, pos_base_in_world: Array, yaw_rad: Array) -> None:
        """Write flat, confident ground around robots that stand, in a square turned with them."""
        xp = self._xp
        grid = GridSpec(1, 1, 2.0 * self.cfg.spawn_floor_half_m)
        patch = _Patch(self, envs, grid, pos_base_in_world, yaw_rad)
        floor = xp.full(
            (envs.shape[0], 1, 1), self.cfg.spawn_floor_variance_m2, dtype=self._like.dtype, device=device(self._like)
        )
        variance, _ = patch.sample(floor, grid)
        mean, prior = patch.read()
        patch.write(mean, xp.minimum(variance, prior))


class _Patch:
    """The square of map cells around a local grid, for M environments: K x K cells, no two of them stored together."""

    def __init__(
        self, owner: ElevationMap, rows: Array | None, grid: GridSpec, pos_base_in_world: Array, yaw_rad: Array
    ) -> None:
        xp = owner._xp
        self._xp, self._owner = xp, owner
        resolution = owner.cfg.map_resolution_m
        self._cos, self._sin = xp.cos(yaw_rad)[:, None], xp.sin(yaw_rad)[:, None]
        radius = 0.5 * math.hypot(*grid.shape) * grid.resolution_m
        count = min(math.ceil(2.0 * radius / resolution) + 1, owner.cells)
        low = owner.select(owner._low, rows)
        center_x = self._cos * grid.center_x_m - self._sin * grid.center_y_m
        center_y = self._sin * grid.center_x_m + self._cos * grid.center_y_m
        pos = pos_base_in_world[:, :2]
        corner = pos + xp.concat((center_x, center_y), axis=-1) - radius
        start = xp.astype(xp.floor(corner * (1.0 / resolution)), xp.int64)
        if count == owner.cells:
            start = low
        steps = owner._cell_steps[None, :count]
        self.row, self.col = start[:, 0:1] + steps, start[:, 1:2] + steps
        """Each (M, K): the lattice's rows and columns."""
        centers = xp.astype(steps, pos.dtype) + 0.5
        offset = xp.astype(start, pos.dtype) * resolution - pos
        self._x, self._y = centers * resolution + offset[:, 0:1], centers * resolution + offset[:, 1:2]
        end = low + owner.cells
        self._row_inside = (self.row >= low[:, 0:1]) & (self.row < end[:, 0:1])
        self._col_inside = (self.col >= low[:, 1:2]) & (self.col < end[:, 1:2])
        self._growth = owner.select(owner._growth, rows)[:, None, None]
        env = owner.select(owner._streams, rows)[:, None]
        stored_row = (self.row % owner.cells + env * owner.cells) * owner.cells
        self._index = stored_row[:, :, None] + (self.col % owner.cells)[:, None, :]

    def sample(self, variance: Array, grid: GridSpec) -> tuple[Array, Array]:
        """The surest local cell in each cell of the patch.

        Args:
            variance: Shape (M, rows, cols) of the local grid, infinite where invalid.
            grid: The local grid.

        Returns:
            Its variance (M, K, K), infinite where there is none, and its flat index in ``variance``.
        """
        xp, resolution = self._xp, self._owner.cfg.map_resolution_m
        flat = xp.reshape(variance, (-1,))
        base = self._owner._streams[: variance.shape[0]] * grid.size
        count = max(1, round(resolution / grid.resolution_m))
        shifts = [((k + 0.5) / count - 0.5) * resolution for k in range(count)]
        best, best_index = None, None
        for shift_x in shifts:
            for shift_y in shifts:
                index, inside = self._local_index(grid, shift_x, shift_y)
                index = index + base[:, None, None]
                value = xp.where(inside, ops.gather(flat, index), float("inf"))
                if best is None:
                    best, best_index = value, index
                else:
                    best_index = xp.where(value < best, index, best_index)
                    best = xp.minimum(value, best)
        return best, best_index

    def _local_index(self, grid: GridSpec, shift_x: float, shift_y: float) -> tuple[Array, Array]:
        """Flat local index under each cell's centre, shifted in the world, and whether it is in both grids."""
        xp, scale = self._xp, 1.0 / grid.resolution_m
        x, y = (self._x + shift_x) * scale, (self._y + shift_y) * scale
        u = (self._cos * x - grid.corner_x_m * scale)[:, :, None] + (self._sin * y)[:, None, :]
        v = (self._cos * y - grid.corner_y_m * scale)[:, None, :] - (self._sin * x)[:, :, None]
        inside = (u >= 0) & (u < grid.rows) & (v >= 0) & (v < grid.cols)
        inside = inside & (self._row_inside[:, :, None] & self._col_inside[:, None, :])
        index = xp.where(inside, xp.floor(u) * grid.cols + xp.floor(v), 0.0)
        return xp.astype(index, xp.int64), inside

    def read(self) -> tuple[Array, Array]:
        """Mean and variance of the patch's cells (M, K, K)."""
        owner = self._owner
        variance = ops.gather(owner._variance, self._index) + self._growth
        return ops.gather(owner._mean, self._index), self._xp.clip(variance, None, owner.cfg.prior_variance_m2)

    def known(self) -> Array:
        """Mask (M, K, K) of the cells that were measured or looked past since they came in."""
        return ops.gather(self._owner._measured, self._index)

    def note(self, measured: Array) -> None:
        """Set that."""
        self._owner._measured[self._index] = measured

    def write(self, mean: Array, variance: Array) -> None:
        """Replace mean and variance of the patch's cells; each is stored in its own place."""
        self._owner._mean[self._index] = mean
        self._owner._variance[self._index] = variance - self._growth
