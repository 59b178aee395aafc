"""Robot wrapper that scales down stiffness, damping and efforts, for first motions."""

from __future__ import annotations

from dataclasses import replace

from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.passing import PassingRobot
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import RobotError


class GentleRobot(PassingRobot):
    """Passes everything on, and commands with part of their gains and efforts. Damping commands, without either, stay
    whole.

    Args:
        robot: The robot.
        gain_share: Share of stiffness, damping and efforts, above 0 and up to 1.

    Raises:
        RobotError: If the share is out of range.
    """

    def __init__(self, robot: Robot, gain_share: float) -> None:
        if not 0.0 < gain_share <= 1.0:
            raise RobotError(f"The share of the gains is {gain_share:g}, expected above 0 and up to 1.")
        super().__init__(robot)
        self.gain_share = gain_share

    def write(self, command: JointCommand) -> JointCommand | None:
        """Send a command with softer position loops; returns what was sent."""
        if (command.stiffness_nm_rad > 0).any() or command.effort_nm.any():
            command = replace(
                command,
                effort_nm=command.effort_nm * self.gain_share,
                stiffness_nm_rad=command.stiffness_nm_rad * self.gain_share,
                damping_nm_s_rad=command.damping_nm_s_rad * self.gain_share,
            )
        return self._robot.write(command)
