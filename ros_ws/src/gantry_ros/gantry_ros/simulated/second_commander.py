"""Effect of a second commander on a simulated robot, on the robot's clock: time at which it was heard, time at which
the robot was damped, and how high its base was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_ros.convert.robot import is_braking

KEPT = 100
"""Second commanders that are kept for the report."""


@dataclass
class Encounter:
    """One second commander; times on the robot's clock, s, as exact as a step of the robot."""

    heard_s: float
    """The step that began when its first command had come."""
    height_m: float | None
    """Height of the base then; None for a robot that knows none."""
    mode_before: str
    """Activity of the robot then, by its inputs."""
    damped_s: float | None = None
    """The first step after it that was damped."""
    damped_height_m: float | None = None
    """Height of the base then."""
    damped_by: str = ""
    """Whether the robot refused both, or was told to damp."""
    later_height_m: float | None = None
    """Height of the base after the last step that was taken note of."""

    @property
    def reaction_s(self) -> float | None:
        """From the first command of the second to damping."""
        return None if self.damped_s is None else self.damped_s - self.heard_s

    @property
    def lost_m(self) -> float | None:
        """Height that the base has lost when damping begins."""
        if self.height_m is None or self.damped_height_m is None:
            return None
        return self.height_m - self.damped_height_m


class SecondCommanderLog:
    """Takes note of every step of a simulated robot."""

    def __init__(self) -> None:
        self._heard_s: float | None = None
        self._encounters: list[Encounter] = []

    def note(
        self,
        robot_s: float,
        state: RobotState | None,
        command: JointCommand | None,
        *,
        second_s: float | None,
        two: bool,
        activity: str,
    ) -> None:
        """Take note of a step.

        Args:
            robot_s: When it begins, on the robot's clock.
            state: The last reading.
            command: What the robot does in it.
            second_s: When the newest second commander was heard, on any clock; a change is news.
            two: Whether the robot refuses two commanders.
            activity: What its inputs say.
        """
        height = None if state is None or state.pos_base_in_world_m is None else float(state.pos_base_in_world_m[2])
        if second_s != self._heard_s:
            self._heard_s = second_s
            if second_s is not None:
                self._encounters = [*self._encounters, Encounter(robot_s, height, activity)][-KEPT:]
        if not self._encounters:
            return
        newest = self._encounters[-1]
        newest.later_height_m = height
        if newest.damped_s is None and command is not None and is_braking(command):
            newest.damped_s, newest.damped_height_m = robot_s, height
            newest.damped_by = "the robot" if two else "a command"

    def report(self) -> list[dict[str, Any]]:
        """Plain data for JSON."""
        return [{**asdict(item), "reaction_s": item.reaction_s, "lost_m": item.lost_m} for item in self._encounters]
