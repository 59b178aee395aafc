"""A robot that looks through depth sources of its own, whatever its backend."""

from __future__ import annotations

import argparse
import logging
from collections import deque
from collections.abc import Sequence

import numpy as np

from gantry_deploy.depth.registry import make_sources, source_names
from gantry_deploy.depth.source import DepthError, DepthImage, DepthSource
from gantry_deploy.perception.maps import DepthFrame
from gantry_deploy.repeated_log import Repeated
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.passing import PassingRobot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import RobotError
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.poses import PoseBuffer

_LOG = logging.getLogger("gantry.depth")

WAITING = 8
"""Images that wait for a pose of the robot."""
NO_POSE = "the robot reports no odometry, so that images have no place in the world"


class SeeingRobot(PassingRobot):
    """A robot with the cameras of depth sources in place of its own, if it has any.

    Everything else is the robot's: methods, attributes and capabilities. An image is handed out as soon as the robot
    was read at its time or later, with the pose of its capture.

    Args:
        robot: Not connected yet.
        sources: Open.
        placed: Whether images need to know where the robot is; without, a robot without odometry stands at the origin,
            for what needs its attitude alone.

    Raises:
        DepthError: If a camera would take its images in real time for a robot whose clock does not follow it.
    """

    def __init__(self, robot: Robot, sources: Sequence[DepthSource], *, placed: bool = True) -> None:
        for source in sources:
            if source.live and not getattr(robot, "realtime", True):
                raise DepthError(
                    f"{source.name} takes pictures in real time, and the clock of this robot ({type(robot).__name__}) "
                    "does not follow it. Give --real-time, or a recorded source."
                )
        super().__init__(robot)
        self._sources, self._placed = list(sources), placed
        self._offsets = [sum(len(other.cameras) for other in sources[:i]) for i in range(len(sources))]
        self.depth_cameras: tuple[DepthCamera, ...] = tuple(camera for item in sources for camera in item.cameras)
        """See :class:`gantry_hardware.model.capabilities.HasDepthCameras`."""
        self._poses = PoseBuffer()
        self._waiting: deque[DepthImage] = deque()
        self._counts = {"without a pose": 0}
        self._told_pose = False
        self._trouble = Repeated(_LOG)

    def read(self) -> RobotState:
        """See :class:`gantry_hardware.backends.backend.Robot`; the pose is kept for images."""
        state = self._robot.read()
        pose = state.pose_in_world
        if pose is None and not self._placed:
            pose = np.zeros(3), state.quat_base_to_world_wxyz
        if pose is not None:
            if state.stamp_s < self._poses.newest_s - 1.0:  # Its clock has begun anew, as that of a simulation does.
                self._poses.clear()
                self._waiting.clear()
            self._told_pose = True
            self._poses.add(state.stamp_s, *pose)
        return state

    def read_depth(self) -> list[DepthFrame]:
        """The images of all sources whose pose is known, oldest first, with that pose."""
        now_s = self._robot.now_s()
        for offset, source in zip(self._offsets, self._sources, strict=True):
            self._waiting.extend(
                DepthImage(image.stamp_s, image.depth_m, image.camera + offset) for image in source.read(now_s)
            )
        trouble = self.depth_trouble()
        if trouble:
            self._trouble.error(f"Depth: {trouble}.")
        else:
            self._trouble.over()
        ready, still = [], []
        for image in sorted(self._waiting, key=lambda item: item.stamp_s):
            pose = self._poses.at(image.stamp_s)
            if pose is not None:
                ready.append(DepthFrame(image.stamp_s, image.depth_m, *pose, image.camera))
            elif image.stamp_s > self._poses.newest_s:
                still.append(image)
            else:
                self._counts["without a pose"] += 1
        self._counts["without a pose"] += max(0, len(still) - WAITING)
        self._waiting = deque(still[-WAITING:])
        return ready

    def depth_trouble(self) -> str:
        """Reason for which the robot sees nothing, or part of nothing; empty while it sees."""
        troubles = [trouble for source in self._sources if (trouble := source.trouble())]
        if not troubles and not self._told_pose:
            return NO_POSE
        return "; ".join(troubles)

    def depth_statistics(self) -> dict[str, object]:
        """Counts of all sources."""
        found: dict[str, object] = {f"images {what}": count for what, count in self._counts.items() if count}
        for source in self._sources:
            found.update(source.statistics())
        return found

    def close(self) -> None:
        """Release robot and cameras; may be called twice."""
        try:
            self._robot.close()
        finally:
            close_all(self._sources)


def require_pose(robot: Robot, choices: Sequence[str]) -> None:
    """Refuse a robot that does not know where it is, if it sees by sources; call it once it is connected.

    Raises:
        RobotError: With what is missing.
    """
    if choices and robot.read().pose_in_world is None:
        raise RobotError(
            "A map from depth cameras needs to know where the robot is, and this one reports no position "
            "(RobotState.pos_base_in_world_m is None). Connect odometry; docs/depth.md says how."
        )


def add_depth_argument(parser: argparse.ArgumentParser) -> None:
    """Offer ``--depth NAME,KEY=VALUE,...``, as often as there are cameras."""
    parser.add_argument(
        "--depth",
        action="append",
        default=[],
        metavar="NAME,KEY=VALUE",
        help=f"look through a depth camera: {', '.join(source_names())}, with its options, for example "
        "realsense,site=front.yaml; may be given several times (docs/depth.md)",
    )


def open_depth(choices: Sequence[str]) -> list[DepthSource]:
    """Make and open the sources of texts ``NAME,KEY=VALUE,...``; all or none.

    Raises:
        GantryError: If one is unknown, or cannot be opened.
    """
    sources = make_sources(choices)
    opened: list[DepthSource] = []
    try:
        for source in sources:
            source.open()
            opened.append(source)
    except BaseException:
        close_all(opened)
        raise
    return opened


def close_all(sources: Sequence[DepthSource]) -> None:
    """Close every source, whatever one of them raises."""
    for source in sources:
        try:
            source.close()
        except Exception as error:  # A library's own; the others must be closed, too.
            _LOG.error("%s could not be closed: %s: %s", source.name, type(error).__name__, error)


def with_depth(robot: Robot, choices: Sequence[str], *, placed: bool = True) -> Robot:
    """The robot with the cameras of sources that are opened now; the robot itself without any.

    ``placed`` as of :class:`SeeingRobot`.

    Raises:
        GantryError: If a source is unknown, or cannot be opened; none is open then.
    """
    if not choices:
        return robot
    sources = open_depth(choices)
    try:
        return SeeingRobot(robot, sources, placed=placed)
    except BaseException:
        close_all(sources)
        raise
