"""A mapping pipeline on a robot, fed by what arrives, in whatever order, with gaps: it never fails, it counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.compat import StrEnum
from gantry_hardware.stamps import MAX_AHEAD_S, StampGate, StampVerdict
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.snapshot import MapSnapshot, snapshot_of
from gantry_mapping.errors import MapperError, MappingError, NotFiniteError
from gantry_mapping.mapper import Mapper, require_finite
from gantry_mapping.pipeline import MappingPipeline
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.frames import rotation_matrix
from gantry_mapping.sensing.poses import Pose, PoseNews, PoseTrack

FloatArray = NDArray[np.floating]

COMFORTABLE_PIXELS = 8000
"""Images with more pixels than this are strided: several per cell of a local grid suffice."""
SKEW = 1e-3
"""A camera matrix may be skewed by this share of its focal length."""
LEAST_RANGE_M = 1e-3
"""A point nearer to its sensor than this is a beam without a return, which many drivers send as zeros."""


class Outcome(StrEnum):
    """Outcome of a frame."""

    FUSED = "fused"
    EMPTY = "no measurement in it"
    NO_POSE = "no pose of its time"
    NO_CAMERA = "camera unknown"
    WRONG_SIZE = "another size than the camera's"
    OLD = "not newer than the one before"
    AHEAD = "stamped ahead of the clock"
    NOT_FINITE = "the mapper's answer is not finite"
    NO_ANSWER = "the mapper was stopped"


@dataclass(frozen=True)
class CloudFrame:
    """The frame of a cloud that is in none of the setup's cameras."""

    pos_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Its origin in the base, m."""
    quat_wxyz: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    """Its orientation, to the base."""
    in_world: bool = False
    """Whether it is the poses' world, and the rest does not count."""


class LiveMapping:
    """One robot's pipeline. A frame waits until a pose as new as itself has come, or a newer frame takes its place.

    Stamps are believed within a bound: what lies further ahead of the clock is refused and counted and changes nothing.
    The clock is ``now_s``, where it is handed in beside a stamp, or else that of the poses. A camera whose stamps jump
    back has started over and is followed at once; for poses see :class:`gantry_mapping.sensing.poses.PoseTrack`.

    Args:
        cfg: Setup; its cameras are where the frames come from.
        mapper: Completes local grids; None for none.
        max_ahead_s: How far a stamp may lie ahead of the clock, s.
    """

    def __init__(self, cfg: MappingCfg, mapper: Mapper | None = None, max_ahead_s: float = MAX_AHEAD_S) -> None:
        self.cfg = cfg
        self.counts = dict.fromkeys(Outcome, 0)
        """Frames by what became of them."""
        self.newest_frame_s = -math.inf
        """Stamp of the newest frame that was fused."""
        self.last_outcome: Outcome | None = None
        """Of the newest frame."""
        self.last_text = ""
        """What was wrong with the newest frame that was not fused, with the numbers."""
        self._mapper = mapper
        self._strides = [stride_for(camera) for camera in cfg.cameras]
        self.pipeline = self._build(cfg)
        """The pipeline itself, for looking at the map."""
        self.track = PoseTrack(max_ahead_s, farthest_m=cfg.map_size_m)
        """The poses, and what became of them."""
        self._waiting: dict[int, tuple[float, Callable[[Pose], None]]] = {}
        self._gates = [StampGate(max_ahead_s) for _ in range(max(1, len(cfg.cameras)))]
        self._time_s = -math.inf

    @property
    def newest_pose(self) -> Pose | None:
        """Position (3,) and orientation (4,) of the robot, the newest known."""
        return self.track.poses.newest

    def reset(self) -> None:
        """Forget map, poses and waiting frames; counts and cameras stay."""
        self._forget_map()
        self.track.clear()
        self._waiting.clear()
        for gate in self._gates:
            gate.forget()

    def set_intrinsics(self, camera: int, width: int, height: int, fx: float, fy: float, cx: float, cy: float) -> bool:
        """Take the intrinsics that a camera reports; they win over those of the configuration.

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

    def add_pose(
        self,
        stamp_s: float,
        pos_base_in_world_m: FloatArray,
        quat_base_to_world_wxyz: FloatArray,
        now_s: float | None = None,
    ) -> PoseNews:
        """Take a pose of the base in the world frame of the odometry, and the frames that waited for it.

        Args:
            stamp_s: When the base was there.
            pos_base_in_world_m: Shape (3,), origin of the base frame.
            quat_base_to_world_wxyz: Shape (4,), of any length, from the base to the world frame.
            now_s: The clock of the stamps; None where only the poses tell it.

        Returns:
            Outcome of the pose.
        """
        news = self.track.add(stamp_s, pos_base_in_world_m, quat_base_to_world_wxyz, now_s)
        self._follow(news)
        return news

    def pass_time(self, now_s: float) -> None:
        """Let time pass up to ``now_s``, on the clock of the stamps: uncertainty grows."""
        if not math.isinf(self._time_s) and now_s > self._time_s:
            self.pipeline.advance(now_s - self._time_s)
        self._time_s = max(now_s, self._time_s)

    def add_depth(self, stamp_s: float, depth_m: FloatArray, camera: int = 0, now_s: float | None = None) -> None:
        """Take a depth image (height, width), m; zero, NaN and Inf mean no measurement. ``now_s`` as for poses."""
        if not self._knows(camera):
            return
        known = self.cfg.cameras[camera]
        if depth_m.shape != (known.height, known.width):
            sizes = f"{depth_m.shape[1]} x {depth_m.shape[0]} pixels" if depth_m.ndim == 2 else f"{depth_m.shape}"
            text = f"an image of {sizes} for a camera of {known.width} x {known.height} pixels"
            self._note(Outcome.WRONG_SIZE, text)
            return
        stride = self._strides[camera]
        image = np.asarray(depth_m[::stride, ::stride], dtype=np.float64)
        self._wait(camera, stamp_s, now_s, lambda pose: self._fuse_depth(camera, image, pose))

    def add_points(
        self,
        stamp_s: float,
        points_m: FloatArray,
        camera: int = 0,
        *,
        in_base: bool = False,
        frame: CloudFrame | None = None,
        now_s: float | None = None,
    ) -> None:
        """Take a point cloud.

        Args:
            stamp_s: When it was measured.
            points_m: Shape (P, 3), m; a point at its frame's origin, NaN and Inf mean no measurement.
            camera: Index in ``cfg.cameras``.
            in_base: Whether the points are in the base frame; else they are in the camera's optical frame.
            frame: Says in which other frame they are.
            now_s: As for poses.
        """
        if not self._knows(camera):
            return
        stride = max(1, len(points_m) // COMFORTABLE_PIXELS)
        points = np.asarray(points_m[::stride], dtype=np.float64)
        optical = frame is None and not in_base
        if optical:
            points = _into_base(points, self.cfg.cameras[camera])
        elif frame is None or not frame.in_world:
            points = _returns(points)
        if frame is not None and not frame.in_world:
            points = points @ rotation_matrix(np.array([frame.quat_wxyz]))[0].T + np.array(frame.pos_m)

        def fuse(pose: Pose) -> None:
            here = points
            if frame is not None and frame.in_world:
                here = (points - pose[0]) @ rotation_matrix(pose[1][None])[0]
            self.pipeline.update_points(here[None], pose[0][None], pose[1][None], camera=camera if optical else None)

        self._wait(camera, stamp_s, now_s, fuse)

    def snapshot(self, extent_m: float) -> MapSnapshot | None:
        """The map around the robot, ``extent_m`` along an edge; None before the first frame, and while a pose says
        that the robot has started over and the next one has not come yet."""
        pose = self.track.poses.newest
        if pose is None or self.track.held_s is not None:
            return None
        return snapshot_of(self.pipeline.map, pose[0], extent_m, self.newest_frame_s)

    def _forget_map(self) -> None:
        self.pipeline.reset()
        self.newest_frame_s = self._time_s = -math.inf

    def _follow(self, news: PoseNews) -> None:
        """Do what a pose asks for: a new map for a robot that has started over, and the frames that waited for it."""
        if news is PoseNews.STARTED_OVER:
            self._forget_map()
            self._waiting = {i: item for i, item in self._waiting.items() if self.track.may_come(item[0])}
        if news in (PoseNews.STARTED_OVER, PoseNews.TAKEN):
            self.pass_time(self.track.poses.newest_s)
            self._work()

    def _knows(self, camera: int) -> bool:
        if not 0 <= camera < len(self.cfg.cameras):
            self._note(Outcome.NO_CAMERA, f"camera {camera} of a setup with {len(self.cfg.cameras)}")
            return False
        return True

    def _build(self, cfg: MappingCfg) -> MappingPipeline:
        cameras = tuple(camera.strided(stride) for camera, stride in zip(cfg.cameras, self._strides, strict=True))
        pipeline = MappingPipeline(replace(cfg, cameras=cameras), self._mapper, np.zeros((1, 1)))
        pipeline.mapper = _finite(pipeline.mapper)
        return pipeline

    def _wait(self, camera: int, stamp_s: float, now_s: float | None, fuse: Callable[[Pose], None]) -> None:
        clock_s = self.track.now_s if now_s is None else now_s
        gate = self._gates[camera]
        verdict = gate.judge(stamp_s, clock_s)
        if not verdict.believed:
            outcome = Outcome.AHEAD if verdict is StampVerdict.AHEAD else Outcome.OLD
            self._note(outcome, f"a frame {gate.text(verdict, stamp_s, clock_s)}")
            return
        if (news := self.track.agree(stamp_s)) is not None:
            self._follow(news)
        if camera in self._waiting:
            self._note(Outcome.NO_POSE, f"no pose as new as {self._waiting[camera][0]:.3f} s before the next frame")
        self._waiting[camera] = (stamp_s, fuse)
        self._work()

    def _work(self) -> None:
        for camera, (stamp_s, fuse) in sorted(self._waiting.items()):
            pose = self.track.poses.at(stamp_s)
            if pose is None and self.track.may_come(stamp_s):
                continue
            del self._waiting[camera]
            if pose is None:
                self._note(Outcome.NO_POSE, f"no poses around {stamp_s:.3f} s, the newest is of {self._newest_pose_s}")
                continue
            self.pipeline.advance(1e-9)  # A frame that holds a measurement sets the time since the last one to zero.
            try:
                fuse(pose)
            except NotFiniteError as error:
                self._note(Outcome.NOT_FINITE, str(error))
                continue
            except MapperError as error:
                self._note(Outcome.NO_ANSWER, str(error))
                continue
            if float(self.pipeline.since_frame_s[0]) > 0.0:
                self._note(Outcome.EMPTY)
                continue
            self.newest_frame_s = max(stamp_s, self.newest_frame_s)
            self._note(Outcome.FUSED)

    @property
    def _newest_pose_s(self) -> str:
        return f"{self.track.poses.newest_s:.3f} s"

    def _fuse_depth(self, camera: int, image: FloatArray, pose: Pose) -> None:
        # Cameras are triggered one by one; to the pipeline the others then see nothing.
        images = [
            image[None] if i == camera else np.zeros((1, item.height, item.width))
            for i, item in enumerate(self.pipeline.cfg.cameras)
        ]
        self.pipeline.update(images, pose[0][None], pose[1][None])

    def _note(self, outcome: Outcome, text: str = "") -> None:
        self.counts[outcome] += 1
        self.last_outcome = outcome
        if outcome is not Outcome.FUSED:
            self.last_text = f"{outcome}: {text}" if text else str(outcome)


def stride_for(camera: DepthCamera) -> int:
    """Every how many-th pixel, each way, is enough."""
    return max(1, round(math.sqrt(camera.width * camera.height / COMFORTABLE_PIXELS)))


def _into_base(points_in_camera: FloatArray, camera: DepthCamera) -> FloatArray:
    """Points (P, 3) in the base frame; those out of range, along the optical axis, become NaN."""
    valid = camera.valid_depth(points_in_camera[:, 2])
    rotation = rotation_matrix(np.array([camera.quat_camera_to_base_wxyz]))[0]
    points = np.where(valid[:, None], points_in_camera, 0.0) @ rotation.T + np.array(camera.pos_camera_in_base_m)
    return np.where(valid[:, None], points, np.nan)


def _finite(mapper: Mapper) -> Mapper:
    """A mapper whose answers are refused unless they are finite."""

    def checked(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, log_variance = mapper(z)
        require_finite(mean, log_variance)
        return mean, log_variance

    return checked


def _returns(points: FloatArray) -> FloatArray:
    """Points (P, 3) in their sensor's frame with NaN where there is no return."""
    with np.errstate(invalid="ignore"):
        seen = np.isfinite(points).all(axis=-1) & (np.abs(points).max(axis=-1, initial=0.0) >= LEAST_RANGE_M)
    return np.where(seen[:, None], points, np.nan)


def intrinsics_of(matrix: FloatArray) -> tuple[float, float, float, float]:
    """fx, fy, cx, cy, in px, of a camera matrix (9,) or (3, 3), row by row.

    Raises:
        MappingError: If it is no pinhole camera's: not calibrated, or skewed.
    """
    k = np.asarray(matrix, dtype=np.float64).reshape(3, 3)
    if not (np.isfinite(k).all() and k[0, 0] > 0.0 and k[1, 1] > 0.0):
        raise MappingError(f"The camera matrix has focal lengths {k[0, 0]:g} and {k[1, 1]:g}: it is not calibrated.")
    if abs(k[0, 1]) > SKEW * k[0, 0]:
        raise MappingError(f"The camera matrix is skewed by {k[0, 1]:g} pixels, expected 0 as of a pinhole camera.")
    return float(k[0, 0]), float(k[1, 1]), float(k[0, 2]), float(k[1, 2])
