"""A recorded walk as pictures: poses put into the simulator's model, without physics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.loop import TickReport
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.robots.actuated_scene import SceneIndex, robot_with_motors
from gantry_sim.viewing.camera import Arrow, TrackingCamera

FloatArray = NDArray[np.float64]

FILM_PX = (800, 450)
"""Width and height of a film."""
ASKED_RGBA = (0.85, 0.45, 0.05, 1.0)
"""Arrow of the commanded velocity."""
DONE_RGBA = (0.18, 0.44, 0.87, 1.0)
"""Arrow of the measured velocity."""
ARROW_M_PER_M_S = 0.6
"""Length of an arrow for one metre per second."""
ARROW_CLEARANCE_M = 0.12
"""Height of the arrows above the base."""


@dataclass(frozen=True)
class Poses:
    """Poses of a robot, T times, with n joints."""

    time_s: FloatArray
    """Shape (T,), ascending."""
    pos_base_in_world_m: FloatArray
    """Shape (T, 3)."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (T, 4)."""
    joint_pos_rad: FloatArray
    """Shape (T, n), in the order of the spec."""
    command: FloatArray
    """Shape (T, 3), what was asked for: forward and lateral m/s, yaw rad/s, base frame."""
    velocity: FloatArray
    """Shape (T, 3), what the robot did, likewise."""


class PoseLog:
    """Takes note of poses as a recorder of :class:`gantry_deploy.control.loop.Controller`."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]] = []

    def record(self, report: TickReport) -> None:
        """Take one report; one without odometry is left out."""
        state = report.state
        if state is None or state.pos_base_in_world_m is None or state.lin_vel_base_in_base_m_s is None:
            return
        velocity = np.array([*state.lin_vel_base_in_base_m_s[:2], state.ang_vel_base_in_base_rad_s[2]])
        pose = (state.pos_base_in_world_m, state.quat_base_to_world_wxyz, state.joint_pos_rad)
        self._rows.append((report.time_s, *pose, report.requested, velocity))

    def statistics(self) -> dict[str, int]:
        """Number of poses."""
        return {"written": len(self._rows), "dropped": 0}

    def poses(self) -> Poses:
        """Everything so far."""
        return Poses(*(np.array(column) for column in zip(*self._rows, strict=True)))


def frame_times(poses: Poses, fps: float) -> FloatArray:
    """Shape (k,), when the frames of a film in real time are."""
    length_s = float(poses.time_s[-1] - poses.time_s[0])
    return poses.time_s[0] + np.arange(max(1, math.floor(length_s * fps) + 1)) / fps


Annotate = Callable[[int], tuple[Sequence[Arrow], str]]
"""From a row of the poses to the arrows and the caption of its picture."""


def film(
    spec: RobotSpec,
    poses: Poses,
    fps: float,
    size_px: tuple[int, int] = FILM_PX,
    *,
    scene: mujoco.MjModel | None = None,
    annotate: Annotate | None = None,
) -> Iterator[NDArray[np.uint8]]:
    """Pictures (height, width, 3) of a walk in real time, with arrows for what was asked and what was done.

    Args:
        spec: The robot.
        poses: Its walk.
        fps: Frames per second.
        size_px: Width and height.
        scene: The robot where it walked, if that was not on a flat floor; the camera then goes up and down with it.
        annotate: Other arrows and another caption.

    Raises:
        GantryError: With the first picture, if this machine cannot draw off screen.
    """
    model = robot_with_motors(spec) if scene is None else scene
    describe = annotate or (lambda row: (_arrows(poses, row), _caption(poses, row)))
    heights = np.zeros(len(poses.time_s)) if scene is None else _smooth(poses) - spec.base_height_m
    data, index = mujoco.MjData(model), SceneIndex(model, spec)
    camera = TrackingCamera(model, *size_px, spec.base_height_m)
    try:
        rows = np.clip(np.searchsorted(poses.time_s, frame_times(poses, fps)), 0, len(poses.time_s) - 1)
        for row in rows:
            data.qpos[:3] = poses.pos_base_in_world_m[row]
            data.qpos[3:7] = poses.quat_base_to_world_wxyz[row]
            data.qpos[index.joint_qpos] = poses.joint_pos_rad[row]
            mujoco.mj_kinematics(model, data)
            yield camera.picture(data, poses.pos_base_in_world_m[row], *describe(row), ground_m=float(heights[row]))
    finally:
        camera.close()


def _smooth(poses: Poses) -> FloatArray:
    """Height of the base without its bobbing, (T,): means over a second."""
    height, time_s = poses.pos_base_in_world_m[:, 2], poses.time_s
    low, high = (np.searchsorted(time_s, time_s + shift) for shift in (-0.5, 0.5))
    total = np.concatenate(([0.0], np.cumsum(height)))
    return (total[high] - total[low]) / (high - low)


def _arrows(poses: Poses, row: int) -> list[Arrow]:
    w, x, y, z = poses.quat_base_to_world_wxyz[row]
    yaw = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    turn = np.array([[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]])
    arrows = []
    for height, (values, rgba) in enumerate(((poses.command[row], ASKED_RGBA), (poses.velocity[row], DONE_RGBA))):
        start = poses.pos_base_in_world_m[row] + np.array([0.0, 0.0, ARROW_CLEARANCE_M + 0.05 * height])
        along = turn @ values[:2] * ARROW_M_PER_M_S
        arrows.append(Arrow(start, start + np.array([*along, 0.0]), rgba))
    return arrows


def _caption(poses: Poses, row: int) -> str:
    lines = [f"{poses.time_s[row] - poses.time_s[0]:4.1f} s"]
    for word, values in (("asked", poses.command[row]), ("moves", poses.velocity[row])):
        forward, left, yaw = np.round(values, 2) + 0.0  # No -0.00.
        lines.append(f"{word} {forward:+.2f} m/s ahead  {left:+.2f} m/s left  {yaw:+.2f} rad/s")
    return "\n".join(lines)
