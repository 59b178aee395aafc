"""The depth camera of the simulated robot: rays through MuJoCo's own geometry, one per pixel.

Depth is along the optical axis, as depth cameras and ``sensor_msgs/Image`` give it. The camera sees the ground and
virtual floors, not the robot that carries it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.perception.maps import DepthFrame
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.plugins import entry_points
from gantry_mapping.sensing.camera import REALSENSE_LIKE, DepthCamera
from gantry_mapping.sensing.frames import rotation_matrix

FloatArray = NDArray[np.float64]

SEEN_GROUPS = (0, 4)
"""Geom groups that are seen: ``gantry_sim.terrains.tile.MAP_GROUPS``, whose package takes seconds to import."""
CAMERA_GROUP = "gantry.head_cameras"
"""Entry-point group of other packages: robot name -> :class:`gantry_mapping.sensing.camera.DepthCamera`."""
HEAD_CAMERAS: dict[str, DepthCamera] = {
    "go2": REALSENSE_LIKE,
    # As large as a Go2 and of the same make.
    "go1": REALSENSE_LIKE,
    # The D435 of Unitree's description, seen from the pelvis with the waist straight.
    "g1": DepthCamera.from_fov(
        48, 27, math.radians(80.0), pos_camera_in_base_m=(0.06, 0.018, 0.47), pitch_down_rad=0.83
    ),
}
"""Pose of a robot's depth camera."""
NO_RETURN_M = 0.0
"""Value of a pixel that measured nothing, as in ``sensor_msgs/Image`` of 16 bits."""


def head_camera(robot: str) -> DepthCamera:
    """A robot's depth camera: one of :data:`HEAD_CAMERAS`, or of another package's entry point.

    Raises:
        UnknownNameError: If it has none.
        GantryError: If the entry point holds something else.
    """
    if robot in HEAD_CAMERAS:
        return HEAD_CAMERAS[robot]
    entries = {entry.name: entry for entry in entry_points(group=CAMERA_GROUP)}
    if robot not in entries:
        raise UnknownNameError("robot with a depth camera", robot, [*HEAD_CAMERAS, *entries])
    camera = entries[robot].load()
    if not isinstance(camera, DepthCamera):
        raise GantryError(f"Entry point '{entries[robot].value}' is a {type(camera).__name__}, expected a DepthCamera.")
    return camera


@dataclass(frozen=True)
class DepthNoise:
    """Noise of a stereo camera; all zero for none."""

    std_per_m: float = 0.0
    """Standard deviation over the squared depth, 1/m."""
    missing_share: float = 0.0
    """Share of the pixels that measure nothing."""

    @classmethod
    def usual(cls, scale: float = 1.0) -> DepthNoise:
        """Half a centimetre at a metre, two at two, and 2 % missing; times ``scale``."""
        return cls(0.005 * scale, min(1.0, 0.02 * scale))

    def apply(self, depth_m: FloatArray, rng: np.random.Generator) -> FloatArray:
        """A noisy copy of depths of any shape."""
        if not (self.std_per_m or self.missing_share):
            return depth_m
        noisy = depth_m + self.std_per_m * depth_m**2 * rng.standard_normal(depth_m.shape)
        missing = (depth_m == NO_RETURN_M) | (rng.random(depth_m.shape) < self.missing_share)
        return np.where(missing, NO_RETURN_M, noisy)


class DepthRays:
    """Renders depth images of one camera.

    Args:
        model: The compiled scene.
        camera: The camera.
    """

    def __init__(self, model: mujoco.MjModel, camera: DepthCamera) -> None:
        self.camera = camera
        self._model = model
        rays, _ = camera.rays_in_base(np.zeros(1))
        self._norm = np.linalg.norm(rays, axis=1)
        self._directions = rays / self._norm[:, None]
        self._pos_in_base = np.array(camera.pos_camera_in_base_m)
        self._groups = np.zeros(mujoco.mjNGROUP, np.uint8)
        self._groups[list(SEEN_GROUPS)] = 1
        self._geoms = np.empty(len(rays), np.int32)
        self._distance = np.empty(len(rays))

    def render(
        self, data: mujoco.MjData, pos_base_in_world: FloatArray, quat_base_to_world_wxyz: FloatArray
    ) -> FloatArray:
        """Depth (height, width), m, along the optical axis, from a base pose (3,), (4,) in the world frame; 0 where
        nothing is within range.

        Args:
            data: With the places of the ground's geoms, which do not move.
            pos_base_in_world: Shape (3,), m.
            quat_base_to_world_wxyz: Unit quaternion.
        """
        rotation = rotation_matrix(quat_base_to_world_wxyz[None])[0]
        origin = pos_base_in_world + rotation @ self._pos_in_base
        directions = np.ascontiguousarray(self._directions @ rotation.T)
        mujoco.mj_multiRay(
            self._model,
            data,
            origin,
            directions.ravel(),
            self._groups,
            True,
            -1,
            self._geoms,
            self._distance,
            None,
            len(directions),
            self.camera.max_range_m * float(self._norm.max()),
        )
        depth = self._distance / self._norm
        seen = (self._geoms >= 0) & (depth >= self.camera.min_range_m) & (depth <= self.camera.max_range_m)
        return np.where(seen, depth, NO_RETURN_M).reshape(self.camera.height, self.camera.width)


class DepthSensor:
    """Takes pictures at a rate, and hands them out when they would have come over the cable.

    Args:
        model: The compiled scene.
        camera: The camera.
        rate_hz: Pictures per second.
        delay_s: Between a picture and its arrival.
        noise: What the camera adds.

    Raises:
        GantryError: If a number makes no sense.
    """

    def __init__(
        self, model: mujoco.MjModel, camera: DepthCamera, rate_hz: float, delay_s: float, noise: DepthNoise
    ) -> None:
        if not (rate_hz > 0.0 and delay_s >= 0.0):
            raise GantryError(
                f"A depth camera of {rate_hz} Hz with a delay of {delay_s} s was asked for, expected a rate > 0 and a "
                "delay >= 0."
            )
        self._rays = DepthRays(model, camera)
        self._period_s, self._delay_s, self._noise = 1.0 / rate_hz, delay_s, noise
        self._due_s = -np.inf
        self._coming: deque[DepthFrame] = deque()

    @property
    def camera(self) -> DepthCamera:
        """The camera."""
        return self._rays.camera

    def restart(self) -> None:
        """Forget pictures that are on their way; the next one is due at once."""
        self._due_s = -np.inf
        self._coming.clear()

    def is_due(self, now_s: float) -> bool:
        """Whether a picture should be taken; half a microsecond is rounding."""
        return now_s >= self._due_s - 5e-7

    def take(
        self,
        data: mujoco.MjData,
        now_s: float,
        pos_base_in_world: FloatArray,
        quat_base_to_world_wxyz: FloatArray,
        rng: np.random.Generator,
    ) -> None:
        """Take a picture from a pose of the base in the world frame, (3,) [m] and unit quaternion (4,)."""
        depth = self._noise.apply(self._rays.render(data, pos_base_in_world, quat_base_to_world_wxyz), rng)
        self._coming.append(DepthFrame(now_s, depth, pos_base_in_world.copy(), quat_base_to_world_wxyz.copy()))
        # On a grid of whole periods, so that a loop's own period does not add up.
        missed = 0.0 if np.isinf(self._due_s) else np.floor((now_s - self._due_s) / self._period_s + 1e-6)
        self._due_s = (now_s if np.isinf(self._due_s) else self._due_s) + (missed + 1.0) * self._period_s

    def arrived(self, now_s: float) -> list[DepthFrame]:
        """The pictures that have arrived by now, oldest first."""
        frames = []
        while self._coming and self._coming[0].stamp_s + self._delay_s <= now_s + 5e-7:
            frames.append(self._coming.popleft())
        return frames
