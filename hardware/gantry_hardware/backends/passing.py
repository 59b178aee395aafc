"""Base of robots that stand before another one and change a part of what is read or written."""

from __future__ import annotations

from typing import Any

from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState


class PassingRobot:
    """Passes everything on to a robot: methods, attributes and capabilities. Subclasses override what they change.

    Args:
        robot: The robot.
    """

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self.spec = robot.spec
        """See :class:`gantry_hardware.backends.backend.Robot`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_robot"], name)

    def connect(self) -> None:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        self._robot.connect()

    def now_s(self) -> float:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        return self._robot.now_s()

    def sleep_until(self, time_s: float) -> None:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        self._robot.sleep_until(time_s)

    def read(self) -> RobotState:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        return self._robot.read()

    def write(self, command: JointCommand) -> JointCommand | None:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        return self._robot.write(command)

    def close(self) -> None:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        self._robot.close()
