"""The control loop of every robot: read, judge, observe, infer, write, record, at the contract's rate."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_deploy.actions.target_steps import TargetSteps
from gantry_deploy.control.car_idle_commands import make_postures
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.operator_input import Asked
from gantry_deploy.control.safety import Event, Fault, FaultCode, Mode, SafetyMachine
from gantry_deploy.control.ticks import TickRecorder, TickReport
from gantry_deploy.control.timing import TimingLog
from gantry_deploy.errors import SurroundingsError
from gantry_deploy.perception.images import make_picture_source
from gantry_deploy.perception.maps import MapSource, require_source
from gantry_deploy.perception.road import SurroundingsSource, require_surroundings
from gantry_deploy.policy.runner import PolicyRunner, PolicyStep
from gantry_hardware.backend import Robot
from gantry_hardware.capabilities import HasExclusiveCommand, capability
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.state import JointCommand, RobotState

__all__ = ["Controller", "TickRecorder", "TickReport"]

_LOG = logging.getLogger("gantry.loop")

LAST_WORDS = 3
"""Damping commands that are sent before a robot that was not passive is left; one alone may get lost."""
DEFAULT_RATE_HZ = 50.0
"""Rate of a loop without a policy."""

CommandSource = Callable[[float], ArrayLike | None]
"""From the time since the run's start in seconds to the requested command (c,), or None for nothing new."""


class Controller:
    """Drives one robot. Requests, commands and heartbeats may come from any thread; ticks come from one.

    Args:
        robot: A connected backend.
        runner: The policy; None for a loop that can only stand.
        safety: Mode and judge.
        recorder: Gets every report, if given.
        rate_hz: Rate of a loop without a policy; a policy's contract has the say otherwise.
        map_source: From :func:`gantry_deploy.perception.maps.make_map_source`, for a policy that looks at a map.
        surroundings: A :class:`gantry_deploy.perception.road.RoadView` or the like, for a policy that drives a car.

    Raises:
        ContractError: If the policy looks at a map and there is none, or at pictures and the robot takes none, or at
            a road without a source of it.
    """

    def __init__(
        self,
        robot: Robot,
        runner: PolicyRunner | None,
        safety: SafetyMachine,
        recorder: TickRecorder | None = None,
        *,
        rate_hz: float | None = None,
        map_source: MapSource | None = None,
        surroundings: SurroundingsSource | None = None,
    ) -> None:
        if runner is not None:
            require_source(runner.contract, map_source)
            require_surroundings(runner.contract, surroundings)
        self.robot = robot
        self.runner = runner
        self.safety = safety
        self.recorder = recorder
        self.map_source = map_source
        self.surroundings = surroundings
        self._pictures = None if runner is None else make_picture_source(runner.contract, robot)
        self.rate_hz = runner.contract.rate_hz if runner is not None else rate_hz or DEFAULT_RATE_HZ
        self.timing = TimingLog(
            ("period", "jitter", "busy", "read", "map", "safety", "observe", "infer", "step", "write")
        )
        self._postures = make_postures(robot.spec, runner, safety, 1.0 / self.rate_hz)
        self._target_steps = TargetSteps(robot.spec, safety.config.max_target_step_rad)
        self._asked = Asked(None if runner is None else runner.contract, safety.config.command_timeout_s)
        self._heartbeat_s: float | None = None
        self._finding: Fault | None = None
        self._state: RobotState | None = None
        self._sent: JointCommand | None = None
        self._mode = Mode.PASSIVE
        self._entry = safety.entries
        self._last_tick_s: float | None = None
        self._missed_in_a_row = 0
        self._counts = {"ticks": 0, "missed_deadlines": 0, "read_errors": 0, "write_errors": 0}
        self._stop = threading.Event()
        safety.add_guard(Event.STAND, self._refuse_stand)
        safety.add_guard(Event.START, self._refuse_start)

    def set_command(self, command: ArrayLike, stamp_s: float) -> None:
        """Set the operator's command, which holds until it is older than the command timeout.

        Args:
            command: Shape (c,), in the units of the contract's command.
            stamp_s: When it was given, on the robot's clock.

        Raises:
            SafetyError: If it has another size; the old command stays.
        """
        self._asked.set_command(command, stamp_s)

    def set_goal(self, goal: Goal | None) -> None:
        """Set the goal to walk to, until another goal or command, or until the policy ends.

        Raises:
            SafetyError: If the policy does not walk to goals.
        """
        self._asked.set_goal(goal)

    @property
    def stand_duration_s(self) -> float:
        """Duration of the newest way to the standing pose; an arm may need longer than the setting."""
        return self._postures.stand.duration_s

    @property
    def goal(self) -> Goal | None:
        """Current goal of the robot, if there is one."""
        return self._asked.goal

    def heartbeat(self, stamp_s: float) -> None:
        """The operator is there; ``stamp_s`` on the robot's clock."""
        self._heartbeat_s = stamp_s

    def request(self, event: str) -> None:
        """Ask for ``stand``, ``start``, ``stop``, ``estop`` or ``reset``; takes effect in the next tick.

        Raises:
            SafetyError: If that is not possible now, with what is.
        """
        self.safety.request(event, self.robot.now_s())

    def stop(self) -> None:
        """Let :meth:`run` return after the present tick; the mode stays."""
        self._stop.set()

    def tick(self) -> TickReport:
        """One turn of the loop. Trouble with the robot or the policy damps the robot and is in the report."""
        clock = time.perf_counter
        begin = clock()
        now_s = self.robot.now_s()
        period_s = self._note_period(now_s)
        state, trouble = self._read(now_s)
        read_done = clock()
        if self.map_source is not None:
            self.map_source.update(now_s)
        mapped = clock()
        requested = self._requested(state, now_s)
        mode = self._judge(state, trouble, now_s, requested)
        judged = clock()
        step = self._policy_step(state, requested, now_s) if mode is Mode.POLICY and state is not None else None
        mode, command = self._choose(step, now_s)
        chosen = clock()
        sent = self._sent = self._write(command, now_s)
        done = clock()
        parts = (read_done - begin, mapped - read_done, judged - mapped, done - chosen, done - begin)
        self._note_timing(step, period_s, dict(zip(("read", "map", "safety", "write", "busy"), parts, strict=True)))
        fault = self.safety.fault if self.safety.mode is Mode.DAMP else self._finding
        look = None if step is None or self.map_source is None else self.map_source.look
        report = TickReport(now_s, mode, fault, state, requested, step, sent, period_s, done - begin, look)
        if self.recorder is not None:
            self.recorder.record(report)
        return report

    def run(
        self,
        duration_s: float | None = None,
        command_source: CommandSource | None = None,
        on_tick: Callable[[TickReport], None] | None = None,
    ) -> None:
        """Tick at the contract's rate until ``duration_s`` is over or :meth:`stop` is called.

        Deadlines are absolute, so that errors do not add up; a period that was missed is counted and left out.

        Args:
            duration_s: On the robot's clock; None for no end.
            command_source: Asked before every tick.
            on_tick: Told of every tick, for displays; its time counts.
        """
        dt_s = 1.0 / self.rate_hz
        start_s = self.robot.now_s()
        self._stop.clear()
        self._last_tick_s, self._missed_in_a_row = None, 0
        # What exists now outlives the loop; the collector need not walk through it while the robot moves.
        gc.freeze()
        try:
            index = 0
            while not self._stop.is_set() and (duration_s is None or index * dt_s < duration_s - 0.5 * dt_s):
                now_s = self.robot.now_s()
                if command_source is not None:
                    command = command_source(now_s - start_s)
                    if command is not None:
                        self.set_command(command, now_s)
                report = self.tick()
                if on_tick is not None:
                    on_tick(report)
                late = (self.robot.now_s() - start_s) * self.rate_hz
                index = max(index + 1, int(np.ceil(late - 1e-6)))
                self.robot.sleep_until(start_s + index * dt_s)
        except BaseException:
            # Whatever stopped the loop, the robot must not keep following the last target.
            if self._is_powered():
                now_s = self.robot.now_s()
                self._write(self._postures.last_word(self._state, self._sent, now_s), now_s)
            raise
        finally:
            gc.unfreeze()

    def last_words(self) -> None:
        """Damp a robot that is about to be left, unless it is passive; call it after :meth:`run`. A car is braked until
        it should stand.

        Raises:
            RobotError: If the robot takes no command.
        """
        if not self._is_powered():
            return
        words = 0
        while words < LAST_WORDS:
            self._sent = self._send(self._brake())
            words += not self._postures.braking(self.robot.now_s())
            self.robot.sleep_until(self.robot.now_s() + 1.0 / self.rate_hz)

    def statistics(self) -> dict[str, Any]:
        """Timings (count, mean, p50, p99, max in seconds), counts, mode and fault; plain data for JSON."""
        fault = self.safety.fault
        return {
            "rate_hz": self.rate_hz,
            "mode": self.safety.mode.value,
            "fault": None if fault is None else {"code": fault.code.value, "text": fault.text, "time_s": fault.time_s},
            **self._counts,
            "recorder": None if self.recorder is None else self.recorder.statistics(),
            "timing": self.timing.summary(),
        }

    def counts(self) -> dict[str, int]:
        """Ticks, missed deadlines, failed reads and writes; cheap enough for every tick."""
        return dict(self._counts)

    def _note_period(self, now_s: float) -> float:
        """Time since the last tick; counts the periods in between in which no tick began."""
        self._counts["ticks"] += 1
        period_s = 0.0 if self._last_tick_s is None else now_s - self._last_tick_s
        self._last_tick_s = now_s
        missed = max(0, round(period_s * self.rate_hz) - 1)
        self._counts["missed_deadlines"] += missed
        self._missed_in_a_row = self._missed_in_a_row + missed if missed else 0
        return period_s

    def _note_timing(self, step: PolicyStep | None, period_s: float, parts: dict[str, float]) -> None:
        for name, duration_s in parts.items():
            if name != "map" or self.map_source is not None:
                self.timing.add(name, duration_s)
        if period_s > 0.0:
            self.timing.add("period", period_s)
            self.timing.add("jitter", abs(period_s - 1.0 / self.rate_hz))
        if step is not None:
            self.timing.add("observe", step.observe_s)
            self.timing.add("infer", step.infer_s)
            # What the policy costs: judging, observing and inferring, without talking to the robot.
            self.timing.add("step", step.observe_s + step.infer_s + parts["safety"])

    def _read(self, now_s: float) -> tuple[RobotState | None, Fault | None]:
        """The state, or why there is none."""
        try:
            self._state = self.robot.read()
            return self._state, None
        except RobotError as error:
            self._counts["read_errors"] += 1
            return None, Fault(FaultCode.NO_STATE, f"The robot cannot be read: {error}", now_s)

    def _requested(self, state: RobotState | None, now_s: float) -> NDArray[np.float64]:
        if self.map_source is not None and self.map_source.lost(now_s):
            return self._asked.nothing  # No fresh map: command zero velocity.
        return self._asked.at(state, now_s)

    def _judge(
        self, state: RobotState | None, trouble: Fault | None, now_s: float, requested: NDArray[np.float64]
    ) -> Mode:
        """Let the judge see everything, and prepare a mode that is entered in this tick."""
        self._finding = trouble or self.safety.judge(
            state,
            now_s,
            missed_deadlines=self._missed_in_a_row,
            heartbeat_s=self._heartbeat_s,
            requested_command=requested,
        )
        if self._finding is not None:
            self.safety.report(self._finding)
        mode, entry = self.safety.snapshot()
        if entry != self._entry:
            if mode is Mode.DAMP or self._mode is Mode.POLICY:
                self._asked.drop_goal()  # A policy that starts again must not set off for where it was once sent.
            self._postures.begin(mode, state, self._sent, now_s, entry)
            self._entry, self._mode = entry, mode
            if mode is Mode.POLICY and self.runner is not None:
                self.runner.reset()
        return mode

    def _policy_step(self, state: RobotState, requested: NDArray[np.float64], now_s: float) -> PolicyStep | None:
        if self.runner is None:
            return None
        try:
            window = None if self.map_source is None else self.map_source.window(state, now_s)
            images = None if self._pictures is None else self._pictures.newest(now_s)
            limit_s = self.safety.config.surroundings_timeout_s
            around = None if self.surroundings is None else self.surroundings.newest(state, now_s, limit_s)
            step = self.runner.step(state, requested, window, images, around)
        except SurroundingsError as error:
            self.safety.report(Fault(FaultCode.SURROUNDINGS, str(error), now_s))
            return None
        except GantryError as error:
            self.safety.report(Fault(FaultCode.POLICY, str(error), now_s))
            return None
        except Exception as error:  # whatever it is, a damped robot is better off than one whose loop has died
            _LOG.exception("The policy broke")
            self.safety.report(Fault(FaultCode.POLICY, f"The policy broke: {type(error).__name__}: {error}", now_s))
            return None
        fault = self.safety.judge_target(step.target, now_s)
        if fault is not None:
            self.safety.report(fault)
        return step

    def _choose(self, step: PolicyStep | None, now_s: float) -> tuple[Mode, JointCommand | None]:
        """The command of this tick's mode, unless a fault or an emergency stop came in while the tick was busy.

        Other requests take effect in the next tick, which prepares for them.
        """
        mode = Mode.DAMP if self.safety.mode is Mode.DAMP else self._mode
        if mode is Mode.POLICY and step is not None:
            self._postures.release()
            return mode, self._target_steps.limit(step.target, self._sent)
        if mode in (Mode.STAND, Mode.PASSIVE):
            return mode, self._postures.command(mode, self._state, now_s)
        return Mode.DAMP, self._brake()

    def _brake(self) -> JointCommand | None:
        return self._postures.brake(self._state, self._sent, self.robot.now_s())

    def _send(self, command: JointCommand | None) -> JointCommand | None:
        return None if command is None else self.robot.write(command)

    def _write(self, command: JointCommand | None, now_s: float) -> JointCommand | None:
        try:
            return self._send(command)
        except RobotError as error:
            self._counts["write_errors"] += 1
            self.safety.report(Fault(FaultCode.WRITE, f"The robot took no command: {error}", now_s))
        try:
            return self._send(self._brake())
        except RobotError:
            return None

    def _is_powered(self) -> bool:
        """Whether the robot got anything else than limp commands, or will; one that did not is left alone."""
        return not (self._mode is Mode.PASSIVE and self.safety.mode is Mode.PASSIVE)

    def _look(self) -> None:
        """Judge the robot before the first tick, so that no robot stands up that was never judged."""
        now_s = self.robot.now_s()
        state, trouble = self._read(now_s)
        self._finding = trouble or self.safety.judge(state, now_s, heartbeat_s=self._heartbeat_s)

    def _refuse_stand(self) -> str | None:
        if self._counts["ticks"] == 0:
            self._look()
        if self._finding is not None:
            return self._finding.text
        if (shared := capability(self.robot, HasExclusiveCommand)) is not None:
            try:
                shared.refuse_other_commanders()
            except RobotError as error:
                return str(error)
        # Looking takes time, in which the loop goes on judging.
        return None if self._finding is None else self._finding.text

    def _refuse_start(self) -> str | None:
        if self.runner is None:
            return "no policy is loaded."
        if self.map_source is not None and self.map_source.lost(self.robot.now_s()):
            return "the policy looks at a map, and none has come for a while."
        if (missing := self._asked.missing()) is not None:
            return missing
        if self.surroundings is not None:
            lacking = self.surroundings.missing(self.robot.now_s(), self.safety.config.surroundings_timeout_s)
            if lacking is not None:
                return lacking
        return self._postures.stand.refusal(self._state, self.robot.now_s())
