"""Depth in, elevation window out: the pipeline of AME-2 section V, for one robot and for all environments at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import device

from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation import ops
from gantry_mapping.elevation.elevation_map import ElevationMap
from gantry_mapping.elevation.free_space import FreeSpace, lowest_within
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.elevation.infill import infill
from gantry_mapping.elevation.rasterize import EMPTY_Z_M, rasterize
from gantry_mapping.errors import MappingError
from gantry_mapping.mapper import Mapper, PassThrough
from gantry_mapping.sensing.frames import base_to_base_yaw, yaw_of

Array = Any

WINDOW_CHANNELS = 2
"""Channels of a policy's window: height and uncertainty."""
Z_LIMIT_M = 2.0
"""Heights in a window are clipped to this, both ways."""
VARIANCE_RANGE_M2 = (0.01, 2.0)
"""Variances are clipped to this before they become the uncertainty channel."""

SURE_M2 = 0.1
"""Below this variance a depth counts that a window's cell has beside its middle."""


def window_channels(elevation: Array, variance: Array, pos_base_in_world: Array, nominal_base_height_m: float) -> Array:
    """A policy's view of a map (AME-2, student inputs).

    Args:
        elevation: Shape (N, rows, cols), in the world, m.
        variance: Shape (N, rows, cols), m^2.
        pos_base_in_world: Shape (N, 3), m.
        nominal_base_height_m: Of the standing base over flat ground.

    Returns:
        Shape (N, rows, cols, 2): height over the ground that a standing robot stands on, clipped to 2 m either way; and
        ``0.5 ln(variance) + 0.5`` with the variance clipped, that is from -1.80 (sure) to 0.85 (unknown).
    """
    xp = ops.namespace(elevation)
    height = elevation - (pos_base_in_world[:, 2] - nominal_base_height_m)[:, None, None]
    return xp.stack((xp.clip(height, -Z_LIMIT_M, Z_LIMIT_M), uncertainty_of(variance)), axis=-1)


def uncertainty_of(variance_m2: Array) -> Array:
    """Uncertainty channel, dimensionless, of variances in m² of any shape: -1.80 for the smallest that count, 0.85
    for the largest.
    """
    xp = ops.namespace(variance_m2)
    return 0.5 * xp.log(xp.clip(variance_m2, *VARIANCE_RANGE_M2)) + 0.5


class MappingPipeline:
    """Everything between depth images and a policy's window.

    Call :meth:`update` when frames arrive, with the pose at which they were taken; :meth:`advance` as time passes; and
    :meth:`window` whenever the policy looks.

    Args:
        cfg: Setup.
        mapper: Completes local grids; None maps without a network.
        like: Any floating array of the namespace, dtype and device to work on.
        num_envs: How many robots, N.

    Raises:
        MappingError: If the mapper was made for another local grid.
    """

    def __init__(self, cfg: MappingCfg, mapper: Mapper | None, like: Array, num_envs: int = 1) -> None:
        info = getattr(mapper, "info", None)
        if info is not None and info.local_grid != cfg.local_grid:
            raise MappingError(f"The mapper sees {info.local_grid}, the configuration's is {cfg.local_grid}.")
        self.cfg = cfg
        self.mapper: Mapper = make_pass_through(cfg) if mapper is None else mapper
        self.map = ElevationMap(cfg, num_envs, like)
        """The maps."""
        self._xp = ops.namespace(like)
        self._like = like
        self._since_frame_s = self._xp.zeros((num_envs,), dtype=like.dtype, device=device(like))
        self._free_space = [
            FreeSpace(camera, cfg.local_grid, cfg.nominal_base_height_m, like) for camera in cfg.cameras
        ]
        self._rays = [camera.rays_in_base(like) for camera in cfg.cameras]

    @property
    def since_frame_s(self) -> Array:
        """Shape (N,), time since the last frame that held a measurement, or since the start."""
        return self._since_frame_s

    def reset(self, rows_mask: Array | None = None) -> None:
        """Forget the maps of ``rows_mask`` (N,), bool; None for all. The next frame starts them anew."""
        self.map.reset(rows_mask)
        self._since_frame_s = 0.0 * self._since_frame_s if rows_mask is None else self._since_frame_s * ~rows_mask

    def advance(self, dt_s: float | Array) -> None:
        """Let time pass (a number or (N,)): uncertainty grows, faster where the sensor is stale."""
        self._since_frame_s = self._since_frame_s + dt_s
        stale = self._xp.astype(self._since_frame_s > self.cfg.stale_after_s, self._like.dtype)
        self.map.advance(dt_s, stale * self.cfg.stale_variance_m2_per_s)

    def update(
        self,
        depth_m: Array | Sequence[Array],
        pos_base_in_world: Array,
        quat_base_to_world_wxyz: Array,
        fresh: Array | None = None,
    ) -> None:
        """Take in depth images.

        Args:
            depth_m: Shape (N, height, width), or one such array per camera, along the optical axis, m; what is no
                measurement is zero, NaN or Inf.
            pos_base_in_world: Shape (N, 3), m, when the images were taken, in the world frame.
            quat_base_to_world_wxyz: Shape (N, 4), when the images were taken.
            fresh: Shape (N,), bool: which environments have new images; None for all.

        Raises:
            MappingError: If there are more or fewer images than cameras, or of another size.
        """
        images = list(depth_m) if isinstance(depth_m, (list, tuple)) else [depth_m]
        rows, pos, quat = self._fresh_rows(pos_base_in_world, quat_base_to_world_wxyz, fresh)
        images = images if rows is None else [image[rows] for image in images]
        points, valid = self._points(images, quat)
        past = self._past(images, quat) if self.cfg.carve_free_space else None
        self._fuse(rows, points, valid, pos, yaw_of(quat), past)

    def update_points(
        self,
        points_in_base: Array,
        pos_base_in_world: Array,
        quat_base_to_world_wxyz: Array,
        fresh: Array | None = None,
        camera: int | None = None,
    ) -> None:
        """:meth:`update` for point clouds (N, P, 3) in the base frame, m; NaN and Inf mean no measurement. Ground is
        looked past only from a ``camera`` of the setup; None for points of anything else."""
        xp = self._xp
        rows, pos, quat = self._fresh_rows(pos_base_in_world, quat_base_to_world_wxyz, fresh)
        points = points_in_base if rows is None else points_in_base[rows]
        valid = xp.all(xp.isfinite(points), axis=-1)
        points = xp.where(valid[:, :, None], points, 0.0)
        rotation = base_to_base_yaw(quat)
        turned = xp.matmul(rotation, xp.permute_dims(points, (0, 2, 1)))
        past = None
        if camera is not None and self.cfg.carve_free_space:
            sight = self._free_space[camera]
            past = sight(sight.image(points, valid), rotation)
        self._fuse(rows, xp.permute_dims(turned, (0, 2, 1)), valid, pos, yaw_of(quat), past)

    def local_heights(self, depth_m: Array | Sequence[Array], quat_base_to_world_wxyz: Array) -> tuple[Array, Array]:
        """The mapper's input: heights (M, rows, cols) relative to the base, m, in the ``base_yaw`` frame, and a
        mask of the cells that hold a point.
        """
        images = list(depth_m) if isinstance(depth_m, (list, tuple)) else [depth_m]
        return self._rasterize(*self._points(images, quat_base_to_world_wxyz))

    def window(self, grid: GridSpec, pos_base_in_world: Array, quat_base_to_world_wxyz: Array) -> Array:
        """A policy's view from poses (N, 3), (N, 4): see :func:`window_channels`, shape (N, rows, cols, 2)."""
        elevation, variance = self._cells(grid, pos_base_in_world, yaw_of(quat_base_to_world_wxyz))
        if self.cfg.infill:
            elevation = infill(elevation, variance)
        return window_channels(elevation, variance, pos_base_in_world, self.cfg.nominal_base_height_m)

    def _cells(self, grid: GridSpec, pos: Array, yaw: Array) -> tuple[Array, Array]:
        """Elevation and variance (N, rows, cols) in the middle of a window's cells, or of a void beside it."""
        xp, cfg, k = self._xp, self.cfg, self.cfg.window_points
        rows, cols = grid.shape
        fine = GridSpec(k * rows, k * cols, grid.resolution_m / k, grid.center_x_m, grid.center_y_m)
        elevation, variance = (
            xp.reshape(part, (part.shape[0], rows, k, cols, k)) for part in self.map.query(fine, pos, yaw)
        )
        middle, sure = elevation[:, :, k // 2, :, k // 2], variance[:, :, k // 2, :, k // 2]
        # What is merely guessed takes nothing away, and neither does the floor before a wall.
        floor = (pos[:, 2] - cfg.nominal_base_height_m - cfg.window_drop_m)[:, None, None]
        known = xp.where(variance < SURE_M2, elevation, float("inf"))
        lowest = xp.min(xp.min(known, axis=4), axis=2)
        void = (lowest < floor) & (middle - lowest > cfg.window_drop_m)
        there = xp.where(known == lowest[:, :, None, :, None], variance, float("inf"))
        there = xp.min(xp.min(there, axis=4), axis=2)
        return xp.where(void, lowest, middle), xp.where(void, xp.maximum(sure, there), sure)

    def _fresh_rows(self, pos: Array, quat: Array, fresh: Array | None) -> tuple[Array | None, Array, Array]:
        """The environments to work on, and their poses; one without a finite pose has nowhere to put its frame."""
        xp = self._xp
        posed = xp.isfinite(xp.sum(pos, axis=-1) + xp.sum(quat, axis=-1))
        rows = self.map.rows_of(posed if fresh is None else posed & fresh)
        return rows, self.map.select(pos, rows), self.map.select(quat, rows)

    def _points(self, images: list[Array], quat: Array) -> tuple[Array, Array]:
        if len(images) != len(self.cfg.cameras):
            raise MappingError(f"Got {len(images)} depth images, expected {len(self.cfg.cameras)}, one per camera.")
        rotation = base_to_base_yaw(quat)
        pairs = [
            camera.project(image, *rays, rotation)
            for camera, image, rays in zip(self.cfg.cameras, images, self._rays, strict=True)
        ]
        if len(pairs) == 1:
            return pairs[0]
        points, valid = zip(*pairs, strict=True)
        return self._xp.concat(points, axis=1), self._xp.concat(valid, axis=1)

    def _past(self, images: list[Array], quat: Array) -> Array:
        """Upper bound of the ground by any of the images (M, height, width): (M, rows, cols)."""
        rotation = base_to_base_yaw(quat)
        first, *others = (sight(image, rotation) for sight, image in zip(self._free_space, images, strict=True))
        for other in others:
            first = self._xp.minimum(first, other)
        return first

    def _rasterize(self, points: Array, valid: Array) -> tuple[Array, Array]:
        cfg = self.cfg
        return rasterize(points, valid, cfg.local_grid, lowest_m=cfg.lowest_m, highest_m=cfg.highest_m)

    def _fuse(
        self, rows: Array | None, points: Array, valid: Array, pos: Array, yaw: Array, past: Array | None = None
    ) -> None:
        if points.shape[0] == 0:
            return
        xp, cfg, shape = self._xp, self.cfg, (points.shape[0], *self.cfg.local_grid.shape)
        heights, covered = self._rasterize(points, valid)
        mean, log_variance = self.mapper(xp.astype(heights, xp.float32)[:, None])
        mean, log_variance = (
            xp.astype(xp.reshape(ops.detached(part), shape), self._like.dtype) for part in (mean, log_variance)
        )
        # What the mapper leaves near the empty height is a void, not ground two metres down; a deep point is a point.
        deep = EMPTY_Z_M + cfg.void_margin_m
        use = (mean > deep) | (covered & (heights <= deep))
        if self.map.fusion.measured_only:
            use = use & covered
        known = covered
        if past is not None:
            past = xp.astype(past, self._like.dtype)
            low = lowest_within(past, round(cfg.carving_reach_m / cfg.local_grid.resolution_m))
            # The highest point counts, beside an edge too.
            low, past = (xp.where(covered, float("inf"), part) for part in (low, past))
            passed = xp.isfinite(past)
            mean = xp.where(passed & (mean <= deep), low, xp.minimum(mean, low))
            use, known = use | passed, covered | passed
        # An image without a measurement (a covered lens, darkness) says nothing, whatever a network makes of it.
        sees = xp.sum(xp.astype(known, xp.int32), axis=(1, 2)) >= cfg.min_covered_cells
        use = use & sees[:, None, None]
        since = self.map.select(self._since_frame_s, rows)
        self._since_frame_s[slice(None) if rows is None else rows] = xp.where(sees, 0.0, since)
        self.map.fuse_rows(rows, mean, log_variance, use, cfg.local_grid, pos, yaw, None, covered, past)


def make_pass_through(cfg: MappingCfg) -> PassThrough:
    """Mapping without a network, with range measured from the first camera."""
    origin = cfg.cameras[0].pos_camera_in_base_m if cfg.cameras else (0.0, 0.0, 0.0)
    return PassThrough(cfg.sensor, cfg.local_grid, origin)
