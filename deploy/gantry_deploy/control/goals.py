"""A place to walk to, and the command that it is from where the robot is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.commands import goal_command
from gantry_hardware.backends.state import RobotState


@dataclass(frozen=True)
class Goal:
    """Goal pose to stand at, in the world of the robot's odometry."""

    x_in_world_m: float
    """Place."""
    y_in_world_m: float
    """Place."""
    yaw_in_world_rad: float
    """Heading."""

    def command(self, state: RobotState) -> NDArray[np.float64] | None:
        """Goal command from a state by ``goal_command``, (4,) in its units; None without
        odometry.
        """
        pose = state.pose_in_world
        if pose is None:
            return None
        pos, quat = pose
        place = np.array([[self.x_in_world_m, self.y_in_world_m, 0.0]])
        return goal_command(place, np.array([self.yaw_in_world_rad]), pos[None], quat[None])[0]
