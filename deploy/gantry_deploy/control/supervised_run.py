"""The course of one supervised run: stand up, policy for a while, stand, damp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Event, Mode
from gantry_deploy.errors import SafetyError
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import RobotError

START_PATIENCE_S = 1.0
"""Time after standing up for which a refused start is tried again, while the legs settle."""
SETTLE_S = 1.0
"""Time for which the robot stands after the policy."""
DAMP_S = 0.5
"""Time for which damping is sent after a fault before the run ends."""
NEWS_EVERY_S = 5.0
"""Time between two lines of progress."""


CommandProfile = Callable[[float], NDArray[np.float64]]
"""From the time under the policy in seconds to a command (c,)."""


class WalkSession:
    """Drives a :class:`Controller` through one run and notes how it went.

    Args:
        controller: With a policy and a connected robot.
        command: Shape (c,), what the policy is asked for, or a profile of it over time; None leaves that to the
            controller's goal.
        duration_s: Time under the policy, on the robot's clock.
        say: Takes lines for people.
        done: Whether the task is done, where there is one; the policy is then stopped before its time is over, since it
            has not learned what to do afterwards.
        on_tick: Told of every tick; its time counts.
    """

    def __init__(
        self,
        controller: Controller,
        command: NDArray[np.float64] | CommandProfile | None,
        duration_s: float,
        say: Callable[[str], None],
        done: Callable[[], bool] | None = None,
        on_tick: Callable[[TickReport], None] | None = None,
    ) -> None:
        self.controller = controller
        self.command = command
        self.duration_s = duration_s
        self.completed = False
        self.modes: list[dict[str, Any]] = []
        self.done_after_s: float | None = None
        """Time under the policy until the task was done."""
        self._say, self._done, self._told = say, done, on_tick
        self._start_s: float | None = None
        self._mode_since_s = 0.0
        self._mode: Mode | None = None
        self._ended = False
        self._news_s = 0.0
        self._error_sums, self._error_count = np.zeros(2), 0
        self._last_state: RobotState | None = None
        runner = controller.runner
        self._walks = runner is None or runner.embodiment.walks

    def run(self) -> None:
        """Run to the end or to a fault; the robot is damped when this returns, and when Ctrl-C leaves it.

        Raises:
            SafetyError: If the robot may not stand up, and then nothing has moved, or if the policy may not start.
        """
        self._look()
        self.controller.request(Event.STAND)
        try:
            self.controller.run(command_input=self._source, on_tick=self._on_tick)
        except KeyboardInterrupt as interrupt:
            if self._mode not in (None, Mode.PASSIVE):  # The loop has sent a damping command on its way out.
                self._say(f"           {Mode.DAMP.value}: stopped by {next(iter(interrupt.args), 'Ctrl-C')}")
            raise
        finally:
            try:
                self.controller.send_final_damping()
            except RobotError as error:
                self._say(f"the robot took no last damping command: {error}")

    def _look(self) -> None:
        """Look at the robot before it moves, so that a fault refuses the stand by its reason, and so does an estimate
        that the policy observes and that does not come within a moment."""
        state, inputs = self.controller.tick().state, self.controller.inputs
        if inputs is None or state is None or inputs.lacking(state) is None:
            return
        self.controller.run(START_PATIENCE_S)
        state = self.controller.tick().state
        if state is not None and (lacking := inputs.lacking(state)) is not None:
            raise SafetyError(f"The robot does not stand up: {lacking}")

    def goal_distance_m(self, goal: Goal) -> float | None:
        """Distance from a goal at the last tick under the policy; None without odometry."""
        towards = None if self._last_state is None else goal.command(self._last_state)
        return None if towards is None else float(np.hypot(towards[0], towards[1]))

    def tracking(self) -> dict[str, float] | None:
        """Mean errors under the policy against the command as limited to the trained range; None without odometry."""
        if not self._error_count:
            return None
        planar, yaw = self._error_sums / self._error_count
        return {"lin_vel_error_m_s": float(planar), "yaw_rate_error_rad_s": float(yaw)}

    def _source(self, time_s: float) -> NDArray[np.float64] | None:
        if self.controller.safety.mode is not Mode.POLICY:
            return None
        if self.command is None or not callable(self.command):
            return self.command
        # A policy that has been granted and has not ticked yet is at the start of its time.
        began = self._mode is Mode.POLICY
        return self.command(self.controller.robot.now_s() - self._mode_since_s if began else 0.0)

    def _on_tick(self, report: TickReport) -> None:
        if self._told is not None:
            self._told(report)
        if self._start_s is None:
            self._start_s = report.time_s
        if report.mode is not self._mode:
            self._enter(report)
        since_s = report.time_s - self._mode_since_s
        if report.mode is Mode.STAND:
            self._while_standing(since_s)
        elif report.mode is Mode.POLICY:
            self._last_state = report.state
            self._note_tracking(report)
            self._tell_news(report)
            if self._done is not None and self._done():
                self.done_after_s = since_s
            if self.done_after_s is not None or since_s >= self.duration_s - 0.5 / self.controller.rate_hz:
                self.completed = True
                self.controller.request(Event.STOP)
        elif report.mode is Mode.PASSIVE or (report.mode is Mode.DAMP and since_s >= DAMP_S):
            self.controller.stop()

    def _enter(self, report: TickReport) -> None:
        time_s = report.time_s - (self._start_s or 0.0)
        fault = f": {report.fault.text}" if report.mode is Mode.DAMP and report.fault is not None else ""
        self._say(f"{time_s:7.2f} s  {report.mode.value}{fault}")
        self.modes.append({"time_s": time_s, "mode": report.mode.value})
        # An operator at a remote controller may end the policy before its time; it is not started again.
        self._ended |= self._mode is Mode.POLICY and report.mode is Mode.STAND
        self._mode, self._mode_since_s, self._news_s = report.mode, report.time_s, report.time_s

    def _while_standing(self, since_s: float) -> None:
        if self._ended:
            if since_s >= SETTLE_S:
                self.controller.stop()
            return
        stand_s = self.controller.stand_duration_s
        if since_s < stand_s:
            return
        try:
            self.controller.request(Event.START)
        except SafetyError:
            # A fault between this tick's verdict and now is no refusal to argue with; the next tick shows it.
            if self.controller.safety.mode is Mode.STAND and since_s >= stand_s + START_PATIENCE_S:
                raise

    def _note_tracking(self, report: TickReport) -> None:
        state, step = report.state, report.step
        if state is None or step is None or state.lin_vel_base_in_base_m_s is None:
            return
        if len(step.command) != 3 or not self._walks:
            return
        velocity, yaw_rate = state.lin_vel_base_in_base_m_s, state.ang_vel_base_in_base_rad_s[2]
        planar = float(np.hypot(*(velocity[:2] - step.command[:2])))
        self._error_sums += (planar, abs(float(yaw_rate - step.command[2])))
        self._error_count += 1

    def _tell_news(self, report: TickReport) -> None:
        if report.time_s - self._news_s < NEWS_EVERY_S:
            return
        self._news_s = report.time_s
        state = report.state
        moving = ""
        if state is not None and state.lin_vel_base_in_base_m_s is not None and self._walks:
            x, y, _ = state.lin_vel_base_in_base_m_s
            moving = f"  {x:+.2f} m/s forward, {y:+.2f} m/s left, {state.ang_vel_base_in_base_rad_s[2]:+.2f} rad/s"
        self._say(f"{report.time_s - (self._start_s or 0.0):7.2f} s  {report.mode.value}{moving}")
