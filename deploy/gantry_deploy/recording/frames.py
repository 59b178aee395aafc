"""Additional records for a viewer beside a recording's numbers: the robot's description, and the poses of its links.

The base is told in the odometry's frame, each link in that of the link before it, as ``robot_state_publisher`` does.
"""

from __future__ import annotations

import math

import numpy as np

from gantry_deploy.recording import ros_messages
from gantry_hardware.backends.state import RobotState
from gantry_hardware.model.description import Frames, robot_description
from gantry_hardware.model.spec import RobotSpec

RATE_HZ = 25.0
"""Of the moving frames: enough to look at, and a fraction of what the joints themselves take at every tick."""
_SLACK_S = 1e-6


def base_frames(state: RobotState) -> Frames:
    """Pose of the base in the odometry's frame; no frame at all if the robot has no odometry."""
    pos, turn = state.pos_base_in_world_m, state.quat_base_to_odom_wxyz
    quat = state.quat_base_to_world_wxyz if turn is None else turn
    known = pos is not None
    return Frames(
        (ros_messages.ODOM_FRAME,) if known else (),
        (ros_messages.BASE_FRAME,) if known else (),
        np.asarray(pos, dtype=np.float64).reshape(1, 3) if known else np.zeros((0, 3)),
        np.asarray(quat, dtype=np.float64).reshape(1, 4) if known else np.zeros((0, 4)),
    )


def finite(frames: Frames) -> bool:
    """Whether every number is one."""
    return bool(np.isfinite(frames.pos_m).all() and np.isfinite(frames.quat_wxyz).all())


class RecordedFrames:
    """Messages of one robot's frames.

    Args:
        spec: The robot.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._description = robot_description(spec)
        self._last_s = -math.inf

    def first(self, stamp_ns: int) -> dict[str, bytes]:
        """Messages by topic, which are said once."""
        if self._description is None:
            return {}
        messages = {"/robot_description": ros_messages.string(self._description.urdf)}
        if self._description.fixed.children:
            messages["/tf_static"] = ros_messages.transforms(stamp_ns, self._description.fixed)
        return messages

    def due(self, time_s: float, stamp_ns: int, state: RobotState) -> dict[str, bytes]:
        """Messages by topic at a tick, empty between two of them.

        Args:
            time_s: Of the tick on the robot's clock.
            stamp_ns: Of the state.
            state: With the joints; one that is not finite is left out.
        """
        if 0.0 <= time_s - self._last_s < 1.0 / RATE_HZ - _SLACK_S:
            return {}
        parts = [base_frames(state)]
        if self._description is not None:
            parts.append(self._description.moving(state.joint_pos_rad))
        parts = [frames for frames in parts if frames.children and finite(frames)]
        if not parts:
            return {}
        self._last_s = time_s
        return {"/tf": ros_messages.transforms(stamp_ns, *parts)}
