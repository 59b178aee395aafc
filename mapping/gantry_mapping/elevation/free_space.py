"""Free space from a depth image: ground that was looked past is lower than the ray.

The highest point of a cell says nothing about a gap, of which a camera sees the far wall alone, and all of that in one
row of cells. So points at several depths below the ground that the robot stands on are looked for in the image: where
the camera saw beyond such a point, the ground under it is deeper (space carving: Kutulakos and Seitz, A Theory of Shape
by Space Carving, 2000). Right behind an edge that is not far: the ray over it falls slowly. So ground that was looked
past at all is taken to be as deep as any of it nearby (:func:`lowest_within`). Array API standard.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_mapping.elevation import ops
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.frames import rotation_matrix

Array = Any

DEPTHS_M = (0.08, 0.16, 0.3, 0.5)
"""Depths below the ground that a standing robot stands on at which is looked."""
BEYOND_M, BEYOND_SHARE = 0.02, 0.03
"""A pixel saw beyond a point if its depth is greater by this and this share of it: noise grows with distance."""


class FreeSpace:
    """Tells of each cell of a local grid how low it was looked past.

    Args:
        camera: Whose images.
        grid: The cells, in ``base_yaw``.
        nominal_base_height_m: Of the standing base over its ground.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, camera: DepthCamera, grid: GridSpec, nominal_base_height_m: float, like: Array) -> None:
        xp, where = ops.namespace(like), device(like)
        self._camera, self._shape = camera, grid.shape
        self._heights = [-nominal_base_height_m - depth for depth in DEPTHS_M]
        centers = xp.reshape(grid.cell_centers(like), (-1, 2))
        points = [
            xp.concat((centers, xp.full((grid.size, 1), height, dtype=like.dtype, device=where)), axis=1)
            for height in self._heights
        ]
        self._points = xp.concat(points, axis=0)  # (depths * cells, 3)
        quat = xp.asarray([camera.quat_camera_to_base_wxyz], dtype=like.dtype, device=where)
        self._to_base = rotation_matrix(quat)[0]
        offset = xp.asarray(camera.pos_camera_in_base_m, dtype=like.dtype, device=where)
        self._offset = offset @ self._to_base

    def __call__(self, depth_m: Array, rotation: Array) -> Array:
        """Heights (N, rows, cols) over the base, m, that ground is lower than; infinity where unknown.

        Args:
            depth_m: (N, height, width) along the optical axis, m; what is no measurement is zero, NaN or Inf.
            rotation: (N, 3, 3), base to ``base_yaw``.
        """
        xp, camera, count = ops.namespace(depth_m), self._camera, depth_m.shape[0]
        # Rows of the points' coordinates, (N, 3, P), in the optical frame.
        turn = xp.matmul(rotation, self._to_base)
        seen = xp.matmul(xp.permute_dims(turn, (0, 2, 1)), xp.permute_dims(self._points, (1, 0)))
        right, down, ahead = (seen[:, i] - self._offset[i] for i in range(3))
        pixel, inside = self._pixel(right, down, ahead)
        start = xp.arange(count, dtype=xp.int64, device=device(depth_m))[:, None] * (camera.width * camera.height)
        valid = camera.valid_depth(depth_m)
        depth = ops.gather(xp.reshape(_confirmed(xp.where(valid, depth_m, 0.0)), (-1,)), pixel + start)
        past = inside & (depth > BEYOND_M + (1.0 + BEYOND_SHARE) * ahead)
        past = xp.reshape(past, (count, len(self._heights), *self._shape))
        lowest = xp.full_like(depth_m[:, :1, :1], float("inf"))
        for i, height in enumerate(self._heights):
            lowest = xp.where(past[:, i], height, lowest)
        return lowest

    def image(self, points_in_base: Array, valid: Array) -> Array:
        """The depth image (N, height, width), m, of points (N, P, 3) that this camera sees; of several in a pixel the
        farthest, zero for none. ``valid`` (N, P), bool, says which points there are."""
        xp, camera = ops.namespace(points_in_base), self._camera
        count, size = points_in_base.shape[0], camera.width * camera.height
        points = xp.where(valid[..., None], points_in_base, 0.0) @ self._to_base - self._offset
        pixel, inside = self._pixel(points[..., 0], points[..., 1], points[..., 2])
        start = xp.arange(count, dtype=xp.int64, device=device(points))[:, None] * size
        depth = xp.where(inside & valid, points[..., 2], 0.0)
        empty = xp.zeros((count * size,), dtype=points.dtype, device=device(points))
        filled = ops.scatter_max(empty, xp.reshape(pixel + start, (-1,)), xp.reshape(depth, (-1,)))
        return xp.reshape(filled, (count, camera.height, camera.width))

    def _pixel(self, right: Array, down: Array, ahead: Array) -> tuple[Array, Array]:
        """Flat indices of the pixels that show points of the optical frame, 0 for none, and which have one."""
        xp, camera = ops.namespace(ahead), self._camera
        far = xp.where(ahead > camera.min_range_m, ahead, 1.0)
        u, v = camera.cx + camera.fx * right / far + 0.5, camera.cy + camera.fy * down / far + 0.5
        inside = (ahead > camera.min_range_m) & (u >= 0.0) & (v >= 0.0) & (u < camera.width) & (v < camera.height)
        row, column = (xp.astype(xp.where(inside, value, 0.0), xp.int64) for value in (v, u))
        return row * camera.width + column, inside


def lowest_within(past: Array, reach: int) -> Array:
    """Of cells (N, rows, cols) that were looked past the lowest such height, m, within ``reach`` cells along both axes;
    infinity for all others."""
    xp, low = ops.namespace(past), past
    for axis in (1, 2):
        count, done = past.shape[axis], 0
        index = xp.arange(count, dtype=xp.int64, device=device(past))
        while done < reach:
            step = min(2 * done + 1, reach - done)
            before = xp.take(low, xp.clip(index - step, 0, count - 1), axis=axis)
            after = xp.take(low, xp.clip(index + step, 0, count - 1), axis=axis)
            low, done = xp.minimum(low, xp.minimum(before, after)), done + step
    return xp.where(xp.isfinite(past), low, past)


def _confirmed(depth_m: Array) -> Array:
    """Depths (N, height, width), m, no greater than the greatest beside them: a single far pixel is an artefact."""
    xp = ops.namespace(depth_m)
    row, column = xp.zeros_like(depth_m[:, :1]), xp.zeros_like(depth_m[:, :, :1])
    beside = xp.maximum(
        xp.maximum(xp.concat((depth_m[:, 1:], row), axis=1), xp.concat((row, depth_m[:, :-1]), axis=1)),
        xp.maximum(xp.concat((depth_m[:, :, 1:], column), axis=2), xp.concat((column, depth_m[:, :, :-1]), axis=2)),
    )
    return xp.minimum(depth_m, beside)
