"""Motions of single joints around the pose in which a robot is, at low gain and under the judge's eyes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.judge import Judge
from gantry_deploy.control.modes import Mode
from gantry_deploy.control.robot_side import RobotSide
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.errors import SafetyError
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState

FloatArray = NDArray[np.float64]

RAMP_S = 1.0
"""Time in which gains grow from nothing."""
FINAL_COMMANDS = 5
"""Damping commands after a motion; one alone may get lost."""


@dataclass(frozen=True)
class JointMove:
    """Outcome of one joint's motion."""

    joint: str
    """Joint that was commanded."""
    asked_rad: float
    """Excursion of the target, with its sign; m of a joint that slides."""
    moved_rad: FloatArray
    """Shape (n,), largest excursion of every joint's reading, with its sign."""
    velocity_share: float
    """Excursion by the integral of the joint's velocity reading, in units of that of its position; 1 if they agree."""
    most: str
    """Joint that moved most by its readings."""

    @property
    def problems(self) -> list[str]:
        """Words for each thing that is wrong."""
        found = []
        at = self.asked_rad
        own = float(self.moved_rad[self.index])
        if self.most != self.joint:
            found.append(f"{self.most} moved most")
        elif own * at < 0:
            found.append("it moved the other way")
        if abs(own) < 0.3 * abs(at):
            found.append(f"it moved by {own:+.3f} of {at:+.3f}")
        elif not 0.5 < self.velocity_share < 2.0:
            found.append(f"its velocity reading is {self.velocity_share:.2f} times the change of its position")
        return found

    index: int = 0
    """Place of the joint among the n."""


class GentleMotion:
    """Drives a robot by targets around its present pose.

    Args:
        robot: Connected; its gains are softened already.
        rate_hz: Rate of commands.
        stop: Asked in every tick; true ends the motion with damping.
        config: Limits of the judge; a tilt is allowed, as a robot hangs on a gantry as it likes.
    """

    def __init__(self, robot: Robot, rate_hz: float, stop: Callable[[], bool], config: SafetyConfig) -> None:
        self._robot, self._dt_s, self._stop = robot, 1.0 / rate_hz, stop
        self._judge = Judge(robot.spec, config)
        self.states: list[RobotState] = []
        """Readings of the last motion."""
        self.times_s: list[float] = []
        """Times of those readings since the motion began."""

    def run(self, targets: Callable[[float, FloatArray], FloatArray], duration_s: float) -> None:
        """Follow targets, and damp the robot afterwards, whatever ends the motion.

        Args:
            targets: From the time since the gains are whole, s, and the pose at the beginning (n,), rad, to a pose.
            duration_s: Without the time in which gains grow.

        Raises:
            SafetyError: If the robot may not be commanded, the judge finds a fault, or the motion is stopped.
        """
        self.states, self.times_s = [], []
        if (refusal := RobotSide(self._robot, None).take_over()) is not None:
            raise SafetyError(refusal)
        begin_s = self._robot.now_s()
        try:
            start = self._robot.read().joint_pos_rad.copy()
            hold = JointCommand.position(self._robot.spec, start)
            tick = 0
            while (time_s := self._robot.now_s() - begin_s) < RAMP_S + duration_s:
                state = self._judged()
                self.states.append(state)
                self.times_s.append(time_s)
                pose = targets(time_s - RAMP_S, start) if time_s >= RAMP_S else start
                share = min(1.0, time_s / RAMP_S)
                gains = hold.stiffness_nm_rad * share, hold.damping_nm_s_rad
                self._robot.write(JointCommand(pose, hold.vel_rad_s, hold.effort_nm, *gains))
                tick = max(tick + 1, int(np.ceil((self._robot.now_s() - begin_s) / self._dt_s - 1e-6)))
                self._robot.sleep_until(begin_s + tick * self._dt_s)
        finally:
            self.damp()

    def damp(self) -> None:
        """Send damping some times."""
        for _ in range(FINAL_COMMANDS):
            self._robot.write(JointCommand.damping(self._robot.spec))
            self._robot.sleep_until(self._robot.now_s() + self._dt_s)

    def _judged(self) -> RobotState:
        if self._stop():
            raise SafetyError("The operator stopped the motion.")
        state = self._robot.read()
        if (fault := self._judge(state, self._robot.now_s(), Mode.POLICY)) is not None:
            raise SafetyError(fault.text)
        return state


def move_joint(motion: GentleMotion, robot: Robot, joint: int, amplitude_rad: float, period_s: float) -> JointMove:
    """Move one joint away from its nearer limit and back, and see what moves.

    Raises:
        SafetyError: If the judge finds a fault, or the motion is stopped.
    """
    spec = robot.spec
    pos = float(robot.read().joint_pos_rad[joint])
    lower, upper = spec.array("lower_rad")[joint], spec.array("upper_rad")[joint]
    size = min(amplitude_rad, 0.25 * float(upper - lower))
    asked = size if upper - pos >= pos - lower else -size

    def targets(time_s: float, start: FloatArray) -> FloatArray:
        pose = start.copy()
        pose[joint] += asked * 0.5 * (1.0 - np.cos(2.0 * np.pi * min(time_s, period_s) / period_s))
        return pose

    motion.run(targets, period_s)
    return _outcome(motion, spec.joint_names, joint, asked)


def _outcome(motion: GentleMotion, names: tuple[str, ...], joint: int, asked: float) -> JointMove:
    times = np.array(motion.times_s)
    rows = times >= RAMP_S
    pos = np.array([state.joint_pos_rad for state in motion.states])[rows]
    vel = np.array([state.joint_vel_rad_s for state in motion.states])[rows]
    away = pos - pos[0]
    moved = away[np.abs(away).argmax(axis=0), np.arange(away.shape[1])]
    # Speeds of the way out alone, up to the farthest point.
    end = int(np.abs(away[:, joint]).argmax())
    dt_s = np.diff(times[rows])[:end]
    travelled = float((0.5 * (vel[1:, joint] + vel[:-1, joint])[:end] * dt_s).sum())
    own = float(moved[joint])
    share = travelled / own if abs(own) > 1e-6 else 0.0
    return JointMove(names[joint], asked, moved, share, names[int(np.abs(moved).argmax())], joint)
