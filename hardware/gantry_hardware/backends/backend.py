"""The one interface between a control loop and a robot, simulated or real.

The loop owns nothing of time: a robot brings its clock, so the same loop runs in real time on the metal and in
lock-step, faster than real time, in a simulator.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.model.spec import RobotSpec


@runtime_checkable
class Robot(Protocol):
    """A robot backend. ``gantry_hardware.backends.testing.check_backend`` checks an implementation.

    A class that moves no robot of metal says so by an attribute ``simulated = True``; every other one is asked for
    ``--yes`` before it moves (:func:`gantry_hardware.backends.registry.moves_metal`).
    """

    spec: RobotSpec
    """Joints, limits and gains; known before :meth:`connect`."""

    def connect(self) -> None:
        """Open the connection and wait for a first state.

        Raises:
            RobotError: If the robot does not answer; nothing has moved.
        """
        ...

    def now_s(self) -> float:
        """Time on the robot's clock; never goes backwards."""
        ...

    def sleep_until(self, time_s: float) -> None:
        """Return at ``time_s`` of the robot's clock: a real robot waits, a lock-step simulator steps its physics."""
        ...

    def read(self) -> RobotState:
        """The newest state, at once. The caller judges its age by ``stamp_s``.

        Raises:
            RobotError: If no state has ever arrived.
        """
        ...

    def write(self, command: JointCommand) -> JointCommand | None:
        """Send a command and return what was really sent, after the backend's own limits.

        None if nothing was sent: a command without any torque is withheld while another node or program commands the
        robot, and one without stiffness from a robot that takes positions alone.

        Raises:
            RobotError: If the shapes do not match the spec; nothing has been sent.
        """
        ...

    def close(self) -> None:
        """Release the robot; may be called twice."""
        ...
