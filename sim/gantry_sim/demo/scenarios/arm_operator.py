"""The operator of an arm's episodes where there is no ROS 2, as ``episode_node`` is over it."""

from __future__ import annotations

import contextlib

from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Event, Mode
from gantry_hardware.errors import GantryError
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.demo.measured import Trial

HOLD_S = 0.7
"""The arm is held so long after an episode, so that its end can be seen."""


class Operator:
    """Sees episodes through: object laid anew, arm at its start, policy until the task is done or time is over.

    Args:
        controller: With the policy and the connected arm.
        robot: The arm.
        episode_s: Longest time under the policy.
    """

    def __init__(self, controller: Controller, robot: BenchRobot, episode_s: float) -> None:
        self._controller, self._robot, self._episode_s = controller, robot, episode_s
        self._trial: Trial | None = None
        self._began_s = self._ended_s = 0.0

    def run(self) -> Trial:
        """One episode; the controller is passive afterwards, unless a fault has damped it.

        Raises:
            GantryError: If the arm may not move.
        """
        robot, controller = self._robot, self._controller
        self._trial, self._began_s, self._ended_s = None, 0.0, 0.0
        robot.reset()
        if robot.goal_in_base_m is not None:
            controller.set_command(robot.goal_in_base_m, robot.now_s())
        controller.tick()  # Look at the arm once, so that a fault refuses by its reason.
        controller.request(Event.STAND)
        controller.run(on_tick=self._on_tick)
        if self._trial is None:
            raise GantryError("The arm never came under the policy.")
        return self._trial

    def _on_tick(self, report: TickReport) -> None:
        if report.mode is Mode.DAMP:
            self._trial = Trial(False, reason="damped" if report.fault is None else report.fault.text.rstrip("."))
            self._controller.stop()
        elif report.mode is Mode.POLICY:
            self._watch(report.time_s)
        elif report.mode is Mode.PASSIVE and self._trial is not None:
            self._controller.stop()
        elif report.mode is Mode.STAND:
            if self._trial is None:
                with contextlib.suppress(GantryError):  # Still on its way to the start; the next tick asks again.
                    self._controller.request(Event.START)
            elif report.time_s - self._ended_s >= HOLD_S:
                self._controller.request(Event.STOP)

    def _watch(self, now_s: float) -> None:
        if self._trial is not None:
            return
        self._began_s = self._began_s or now_s
        if self._robot.task_done:
            self._trial = Trial(True, now_s)
        elif self._robot.task_lost:
            self._trial = Trial(False, reason="the object is out of reach")
        elif now_s - self._began_s >= self._episode_s:
            self._trial = Trial(False, reason=f"not done within {self._episode_s:g} s")
        else:
            return
        self._ended_s = now_s
        self._controller.request(Event.STOP)
