"""A mapping pipeline on a robot, fed by what arrives, in whatever order, with gaps: it never fails, it counts."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gantry_mapping.camera import DepthCamera
from gantry_mapping.config import MappingCfg
from gantry_mapping.errors import MappingError
from gantry_mapping.frames import rotation_matrix
from gantry_mapping.mapper import Mapper
from gantry_mapping.pipeline import MappingPipeline
from gantry_mapping.poses import Pose, PoseBuffer
from gantry_mapping.snapshot import MapSnapshot, snapshot_of

FloatArray = NDArray[np.floating]

COMFORTABLE_PIXELS = 8000
"""Images with more pixels than this are strided: several per cell of a local grid suffice."""
CLOCK_JUMP_S = 1.0
"""Poses that go back in time by more than this are those of a robot, or a clock, that has started over."""

POSE_JUMP_M = 1.0
"""A robot that is further from its last pose than this was put somewhere else, or its odometry has started over."""


class Outcome(enum.StrEnum):
    """What became of a frame."""

    FUSED = "fused"
    EMPTY = "no measurement in it"
    NO_POSE = "no pose of its time"
    NO_CAMERA = "camera unknown"
    WRONG_SIZE = "another size than the camera's"
    OLD = "not newer than the one before"


class LiveMapping:
    """One robot's pipeline. A frame waits until a pose as new as itself has come, or a newer frame takes its place.

    Args:
        cfg: Setup; its cameras are where the frames come from.
        mapper: Completes local grids; None for none.
    """

    def __init__(self, cfg: MappingCfg, mapper: Mapper | None = None) -> None:
        self.cfg = cfg
        self.counts = dict.fromkeys(Outcome, 0)
        """Frames by what became of them."""
        self.newest_frame_s = -math.inf
        """Stamp of the newest frame that was fused."""
        self.last_outcome: Outcome | None = None
        """Of the newest frame."""
        self._mapper = mapper
        self._strides = [stride_for(camera) for camera in cfg.cameras]
        self.pipeline = self._build(cfg)
        """The pipeline itself, for looking at the map."""
        self._poses = PoseBuffer()
        self._waiting: dict[int, tuple[float, Callable[[Pose], None]]] = {}
        self._last_s = [-math.inf] * max(1, len(cfg.cameras))
        self._time_s = -math.inf

    @property
    def newest_pose(self) -> Pose | None:
        """Position (3,) and orientation (4,) of the robot, the newest known."""
        return self._poses.newest

    def reset(self) -> None:
        """Forget map, poses and waiting frames; counts and cameras stay."""
        self.pipeline.reset()
        self._poses.clear()
        self._waiting.clear()
        self._last_s = [-math.inf] * len(self._last_s)
        self.newest_frame_s = self._time_s = -math.inf

    def set_intrinsics(self, camera: int, width: int, height: int, fx: float, fy: float, cx: float, cy: float) -> bool:
        """What a camera says of itself wins over what the configuration says.

        Args:
            camera: Index in ``cfg.cameras``, whose mounting and range stay.
            width: Pixels per row.
            height: Rows.
            fx: Focal length, pixels.
            fy: Focal length, pixels.
            cx: Principal point, pixels.
            cy: Principal point, pixels.

        Returns:
            Whether that was news.

        Raises:
            MappingError: If the numbers are no camera's, as those of an uncalibrated one.
        """
        known = self.cfg.cameras[camera]
        found = replace(known, width=width, height=height, fx=fx, fy=fy, cx=cx, cy=cy)
        if found == known:
            return False
        cameras = tuple(found if i == camera else item for i, item in enumerate(self.cfg.cameras))
        self.cfg = replace(self.cfg, cameras=cameras)
        self._strides[camera] = stride_for(found)
        before, self.pipeline = self.pipeline, self._build(self.cfg)
        self.pipeline.map = before.map
        return True

    def add_pose(self, stamp_s: float, pos_base_in_world_m: FloatArray, quat_base_to_world_wxyz: FloatArray) -> None:
        """Take a pose of the base (3,), (4,), and whatever waited for it."""
        if stamp_s < self._poses.newest_s - CLOCK_JUMP_S or self._is_elsewhere(pos_base_in_world_m):
            self.reset()
        if self._poses.add(stamp_s, pos_base_in_world_m, quat_base_to_world_wxyz):
            self.pass_time(stamp_s)
            self._work()

    def pass_time(self, now_s: float) -> None:
        """Let time pass up to ``now_s``, on the clock of the stamps: uncertainty grows."""
        if not math.isinf(self._time_s) and now_s > self._time_s:
            self.pipeline.advance(now_s - self._time_s)
        self._time_s = max(now_s, self._time_s)

    def add_depth(self, stamp_s: float, depth_m: FloatArray, camera: int = 0) -> None:
        """Take a depth image (height, width), m; zero, NaN and Inf mean no measurement."""
        if not 0 <= camera < len(self.cfg.cameras):
            self._note(Outcome.NO_CAMERA)
            return
        known = self.cfg.cameras[camera]
        if depth_m.shape != (known.height, known.width):
            self._note(Outcome.WRONG_SIZE)
            return
        stride = self._strides[camera]
        image = np.asarray(depth_m[::stride, ::stride], dtype=np.float64)
        self._wait(camera, stamp_s, lambda pose: self._fuse_depth(camera, image, pose))

    def add_points(self, stamp_s: float, points_m: FloatArray, camera: int = 0, *, in_base: bool = False) -> None:
        """Take a point cloud (P, 3), m, in the optical frame of a camera, or in the base frame."""
        if not 0 <= camera < len(self.cfg.cameras):
            self._note(Outcome.NO_CAMERA)
            return
        stride = max(1, len(points_m) // COMFORTABLE_PIXELS)
        points = np.asarray(points_m[::stride], dtype=np.float64)
        if not in_base:
            points = _into_base(points, self.cfg.cameras[camera])
        whose = None if in_base else camera

        def fuse(pose: Pose) -> None:
            self.pipeline.update_points(points[None], pose[0][None], pose[1][None], camera=whose)

        self._wait(camera, stamp_s, fuse)

    def snapshot(self, extent_m: float) -> MapSnapshot | None:
        """The map around the robot, ``extent_m`` along an edge; None before the first frame."""
        pose = self._poses.newest
        return None if pose is None else snapshot_of(self.pipeline.map, pose[0], extent_m, self.newest_frame_s)

    def _is_elsewhere(self, pos_base_in_world_m: FloatArray) -> bool:
        before = self._poses.newest
        return before is not None and float(np.linalg.norm(pos_base_in_world_m - before[0])) > POSE_JUMP_M

    def _build(self, cfg: MappingCfg) -> MappingPipeline:
        cameras = tuple(camera.strided(stride) for camera, stride in zip(cfg.cameras, self._strides, strict=True))
        return MappingPipeline(replace(cfg, cameras=cameras), self._mapper, np.zeros((1, 1)))

    def _wait(self, camera: int, stamp_s: float, fuse: Callable[[Pose], None]) -> None:
        if not stamp_s > self._last_s[camera]:
            self._note(Outcome.OLD)
            return
        self._last_s[camera] = stamp_s
        if camera in self._waiting:
            self._note(Outcome.NO_POSE)
        self._waiting[camera] = (stamp_s, fuse)
        self._work()

    def _work(self) -> None:
        for camera, (stamp_s, fuse) in sorted(self._waiting.items()):
            if stamp_s > self._poses.newest_s:
                continue
            del self._waiting[camera]
            pose = self._poses.at(stamp_s)
            if pose is None:
                self._note(Outcome.NO_POSE)
                continue
            self.pipeline.advance(1e-9)  # A frame that holds a measurement sets the time since the last one to zero.
            fuse(pose)
            if float(self.pipeline.since_frame_s[0]) > 0.0:
                self._note(Outcome.EMPTY)
                continue
            self.newest_frame_s = max(stamp_s, self.newest_frame_s)
            self._note(Outcome.FUSED)

    def _fuse_depth(self, camera: int, image: FloatArray, pose: Pose) -> None:
        # Cameras are triggered one by one; to the pipeline the others then see nothing.
        images = [
            image[None] if i == camera else np.zeros((1, item.height, item.width))
            for i, item in enumerate(self.pipeline.cfg.cameras)
        ]
        self.pipeline.update(images, pose[0][None], pose[1][None])

    def _note(self, outcome: Outcome) -> None:
        self.counts[outcome] += 1
        self.last_outcome = outcome


def stride_for(camera: DepthCamera) -> int:
    """Every how many-th pixel, each way, is enough."""
    return max(1, round(math.sqrt(camera.width * camera.height / COMFORTABLE_PIXELS)))


def _into_base(points_in_camera: FloatArray, camera: DepthCamera) -> FloatArray:
    """Points (P, 3) in the base frame; those out of range, along the optical axis, become NaN."""
    valid = camera.valid_depth(points_in_camera[:, 2])
    rotation = rotation_matrix(np.array([camera.quat_camera_to_base_wxyz]))[0]
    points = np.where(valid[:, None], points_in_camera, 0.0) @ rotation.T + np.array(camera.pos_camera_in_base_m)
    return np.where(valid[:, None], points, np.nan)


def intrinsics_of(matrix: FloatArray) -> tuple[float, float, float, float]:
    """fx, fy, cx, cy of a camera matrix (9,) or (3, 3), row by row.

    Raises:
        MappingError: If it is no pinhole camera's: not calibrated, or skewed.
    """
    k = np.asarray(matrix, dtype=np.float64).reshape(3, 3)
    if not (np.isfinite(k).all() and k[0, 0] > 0.0 and k[1, 1] > 0.0):
        raise MappingError(f"The camera matrix has focal lengths {k[0, 0]:g} and {k[1, 1]:g}: it is not calibrated.")
    return float(k[0, 0]), float(k[1, 1]), float(k[0, 2]), float(k[1, 2])
