"""Robot wrapper that scales down stiffness and damping, for first motions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import RobotError


class GentleRobot:
    """Passes everything on, and commands with part of their gains. Damping commands, without stiffness, stay whole.

    Args:
        robot: The robot.
        gain_share: Share of stiffness and damping, above 0 and up to 1.

    Raises:
        RobotError: If the share is out of range.
    """

    def __init__(self, robot: Robot, gain_share: float) -> None:
        if not 0.0 < gain_share <= 1.0:
            raise RobotError(f"The share of the gains is {gain_share:g}, expected above 0 and up to 1.")
        self.spec = robot.spec
        self.gain_share = gain_share
        self._robot = robot

    def __getattr__(self, name: str) -> Any:
        """Whatever else the robot can do."""
        return getattr(self._robot, name)

    def connect(self) -> None:
        """Connect the robot."""
        self._robot.connect()

    def now_s(self) -> float:
        """Time on the robot's clock."""
        return self._robot.now_s()

    def sleep_until(self, time_s: float) -> None:
        """Wait on the robot's clock."""
        self._robot.sleep_until(time_s)

    def read(self) -> RobotState:
        """The newest state."""
        return self._robot.read()

    def write(self, command: JointCommand) -> JointCommand | None:
        """Send a command with softer position loops; returns what was sent."""
        if (command.stiffness_nm_rad > 0).any():
            command = replace(
                command,
                stiffness_nm_rad=command.stiffness_nm_rad * self.gain_share,
                damping_nm_s_rad=command.damping_nm_s_rad * self.gain_share,
            )
        return self._robot.write(command)

    def close(self) -> None:
        """Release the robot."""
        self._robot.close()
