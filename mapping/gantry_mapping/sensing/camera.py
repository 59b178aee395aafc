"""Depth cameras: from an image of distances to points around the robot.

The optical frame is OpenCV's and ROS's: z forward, x right, y down; pixel (0, 0) has its centre at (0, 0). Depth is
measured along the optical axis, not along the ray, as depth cameras and ``sensor_msgs/Image`` give it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import device

from gantry_hardware.files.bounds import Range, check_fields
from gantry_mapping.elevation.ops import namespace
from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.frames import base_to_base_yaw, rotation_matrix

Array = Any

_RANGES = {
    "width": Range(1, 8192),
    "height": Range(1, 8192),
    "fx": Range(0.001, 1e6),
    "fy": Range(0.001, 1e6),
    "cx": Range(-1e5, 1e5),
    "cy": Range(-1e5, 1e5),
    "pos_camera_in_base_m": Range(-100.0, 100.0),
    "quat_camera_to_base_wxyz": Range(-10.0, 10.0),
    "min_range_m": Range(0.0, 1000.0),
    "max_range_m": Range(0.001, 1000.0),
}

FORWARD_QUAT_WXYZ = (0.5, -0.5, 0.5, -0.5)
"""Optical frame of a camera that looks along the base's +x, to base."""


def pitched_down_quat_wxyz(pitch_rad: float) -> tuple[float, float, float, float]:
    """Optical frame to base, for a camera that looks along +x and ``pitch_rad`` downward."""
    cos, sin = 0.5 * math.cos(0.5 * pitch_rad), 0.5 * math.sin(0.5 * pitch_rad)
    return (cos - sin, -cos - sin, cos + sin, sin - cos)


@dataclass(frozen=True)
class DepthCamera:
    """A pinhole depth camera, rigidly on the base."""

    width: int
    """Pixels per row."""
    height: int
    """Rows of pixels."""
    fx: float
    """Focal length along the image's x, pixels."""
    fy: float
    """Focal length along the image's y, pixels."""
    cx: float
    """Principal point along the image's x, pixels; the first pixel's centre is 0."""
    cy: float
    """Principal point along the image's y, pixels; the first pixel's centre is 0."""
    pos_camera_in_base_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Position of the optical centre in the base frame [m]."""
    quat_camera_to_base_wxyz: tuple[float, float, float, float] = FORWARD_QUAT_WXYZ
    """Orientation of the optical frame."""
    min_range_m: float = 0.15
    """Nearer depths are invalid."""
    max_range_m: float = 4.0
    """Farther depths are invalid."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, "A depth camera's ", MappingError)
        if not 0.0 <= self.min_range_m < self.max_range_m:
            raise MappingError(
                f"A depth camera sees from {self.min_range_m} m to {self.max_range_m} m, expected 0 <= near < far."
            )
        norm = math.sqrt(sum(part * part for part in self.quat_camera_to_base_wxyz))
        if abs(norm - 1.0) > 1e-3:
            raise MappingError(f"quat_camera_to_base_wxyz has length {norm:.4g}, expected 1.")

    @classmethod
    def from_fov(
        cls,
        width: int,
        height: int,
        hfov_rad: float,
        *,
        pos_camera_in_base_m: tuple[float, float, float] = (0.0, 0.0, 0.0),
        pitch_down_rad: float = 0.0,
        min_range_m: float = 0.15,
        max_range_m: float = 4.0,
    ) -> DepthCamera:
        """A camera with square pixels whose outermost pixel edges span ``hfov_rad``, looking forward and down."""
        focal = 0.5 * width / math.tan(0.5 * hfov_rad)
        quat = pitched_down_quat_wxyz(pitch_down_rad)
        center = (0.5 * (width - 1), 0.5 * (height - 1))
        return cls(width, height, focal, focal, *center, pos_camera_in_base_m, quat, min_range_m, max_range_m)

    def strided(self, stride: int) -> DepthCamera:
        """The camera of ``image[::stride, ::stride]``, for a sensor with more pixels than a map has cells.

        Raises:
            MappingError: If the stride is below 1.
        """
        if stride < 1:
            raise MappingError(f"The stride is {stride}, expected at least 1.")
        return replace(
            self,
            width=-(-self.width // stride),
            height=-(-self.height // stride),
            fx=self.fx / stride,
            fy=self.fy / stride,
            cx=self.cx / stride,
            cy=self.cy / stride,
        )

    def rays_in_camera(self, like: Array) -> Array:
        """Shape (height * width, 3): per pixel, row by row, the point at depth 1 in the optical frame."""
        xp = namespace(like)
        v, u = np.divmod(np.arange(self.width * self.height), self.width)
        rays = np.stack(((u - self.cx) / self.fx, (v - self.cy) / self.fy, np.ones(len(u))), axis=-1)
        return xp.asarray(rays.tolist(), dtype=like.dtype, device=device(like))

    def rays_in_base(self, like: Array) -> tuple[Array, Array]:
        """The pixels' rays in the base frame: a point at depth d is ``origin + d * ray``.

        Returns:
            Rays (height * width, 3), not of unit length, and their origin (3,), m.
        """
        xp = namespace(like)
        quat = xp.asarray([self.quat_camera_to_base_wxyz], dtype=like.dtype, device=device(like))
        origin = xp.asarray(self.pos_camera_in_base_m, dtype=like.dtype, device=device(like))
        return xp.matmul(self.rays_in_camera(like), rotation_matrix(quat)[0].T), origin

    def valid_depth(self, depth_m: Array) -> Array:
        """Whether depths are measurements, bool, any shape: zero, NaN, Inf and out of range are not."""
        return (depth_m >= max(self.min_range_m, 1e-6)) & (depth_m <= self.max_range_m)  # NaN compares false

    def points_in_base_yaw(self, depth_m: Array, quat_base_to_world_wxyz: Array) -> tuple[Array, Array]:
        """Turn depth images into points in the ``base_yaw`` frame.

        Args:
            depth_m: Shape (N, height, width), along the optical axis; zero, NaN and Inf mean no measurement.
            quat_base_to_world_wxyz: Shape (N, 4), when the image was taken.

        Returns:
            Points (N, height * width, 3) in ``base_yaw``, m, at the camera where invalid; and validity (N, height *
            width), bool.

        Raises:
            MappingError: If the images have another size than this camera's.
        """
        rays, origin = self.rays_in_base(quat_base_to_world_wxyz)
        return self.project(depth_m, rays, origin, base_to_base_yaw(quat_base_to_world_wxyz))

    def project(self, depth_m: Array, rays: Array, origin: Array, rotation: Array) -> tuple[Array, Array]:
        """:meth:`points_in_base_yaw` with what does not change from frame to frame handed in.

        Args:
            depth_m: Shape (N, height, width).
            rays: From :meth:`rays_in_base`.
            origin: From :meth:`rays_in_base`.
            rotation: Shape (N, 3, 3), base to ``base_yaw``.
        """
        if depth_m.ndim != 3 or tuple(depth_m.shape[1:]) != (self.height, self.width):
            raise MappingError(
                f"A depth image has shape {tuple(depth_m.shape)}, expected (N, {self.height}, {self.width})."
            )
        xp = namespace(depth_m)
        flat = xp.reshape(depth_m, (depth_m.shape[0], self.height * self.width))
        valid = self.valid_depth(flat)
        depth = xp.where(valid, flat, 0.0)
        # One product for all environments, coordinate by coordinate in memory; the result is a view of it.
        count = flat.shape[0]
        turned = xp.matmul(xp.reshape(rotation, (3 * count, 3)), xp.permute_dims(rays, (1, 0)))
        points = xp.reshape(turned, (count, 3, self.width * self.height)) * depth[:, None, :]
        points = points + xp.matmul(rotation, origin[:, None])
        return xp.permute_dims(points, (0, 2, 1)), valid


_GO2_HEAD = (0.32, 0.0, 0.06)
_GO2_PITCH_RAD = math.radians(30.0)

REALSENSE_LIKE = DepthCamera.from_fov(
    48, 27, math.radians(80.0), pos_camera_in_base_m=_GO2_HEAD, pitch_down_rad=_GO2_PITCH_RAD
)
"""A RealSense reduced to 48 x 27 pixels of 80 degrees, on the front of the Go2's head, 30 degrees down. On flat ground
it sees from 0.25 m ahead of itself to its far limit."""
REALSENSE_FULL = DepthCamera.from_fov(
    848, 480, math.radians(80.0), pos_camera_in_base_m=_GO2_HEAD, pitch_down_rad=_GO2_PITCH_RAD
)
"""The same camera at the sensor's own resolution."""
