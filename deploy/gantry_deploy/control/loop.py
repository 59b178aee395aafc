"""The control loop of every robot: read, judge, ask the command source, write, record, at the contract's rate."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_deploy.actions.target_steps import TargetSteps
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.idle_commands import make_idle_commands
from gantry_deploy.control.modes import Transition
from gantry_deploy.control.operator_input import CommandBuffer
from gantry_deploy.control.policy_inputs import PolicyInputs
from gantry_deploy.control.robot_side import RobotSide
from gantry_deploy.control.safety import Choice, Event, Fault, FaultCode, Mode, Role, SafetyMachine
from gantry_deploy.control.sources import BrakeSource, IdleSource, PolicySource
from gantry_deploy.control.ticks import Tick, TickRecorder, TickReport
from gantry_deploy.control.timing import LoopTiming
from gantry_deploy.errors import SafetyError
from gantry_deploy.perception.maps import MapSource
from gantry_deploy.perception.road import SurroundingsSource
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import RobotError

__all__ = ["Controller", "TickRecorder", "TickReport"]

FINAL_COMMANDS = 3
"""Damping commands that are sent before a robot that was not passive is left; one alone may get lost."""
DEFAULT_RATE_HZ = 50.0
"""Rate of a loop without a policy."""

CommandInput = Callable[[float], ArrayLike | None]
"""From the time since the run's start in seconds to the requested command (c,), or None for nothing new."""


class Controller:
    """Drives one robot. Requests, commands and heartbeats may come from any thread; ticks come from one.

    Further sources of joint commands, a script or a person, are added by :meth:`SafetyMachine.add_source`.

    Args:
        robot: A connected backend.
        runner: The policy; None for a loop that stands, or whose joints another source commands.
        safety: Mode, judge and choice of the command source; the loop adds policy, idle commands and brake.
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
        self.robot = robot
        self.runner = runner
        self.safety = safety
        self.recorder = recorder
        self.map_source = map_source
        self.surroundings = surroundings
        self.rate_hz = runner.contract.rate_hz if runner is not None else rate_hz or DEFAULT_RATE_HZ
        self.timing = LoopTiming()
        config, contract = safety.config, None if runner is None else runner.contract
        self.inputs = None
        """The policy with what it sees; None without one."""
        if runner is not None:
            self.inputs = PolicyInputs(runner, robot, map_source, surroundings, config.surroundings_timeout_s)
            safety.add_source(PolicySource(self.inputs))
        self._side = RobotSide(robot, contract)
        self._idle = make_idle_commands(robot.spec, contract, config, 1.0 / self.rate_hz)
        safety.add_source(IdleSource(self._idle))
        safety.add_source(BrakeSource(self._idle))
        self._target_steps = TargetSteps(robot.spec, config.max_target_step_rad)
        self._buffer = CommandBuffer(contract, config.command_timeout_s)
        self._heartbeat_s: float | None = None
        self._finding: Fault | None = None
        self._state: RobotState | None = None
        self._sent: JointCommand | None = None
        self._counts = {"read_errors": 0, "write_errors": 0}
        self._stop = threading.Event()
        safety.add_listener(self._on_transition)
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
        self._buffer.set_command(command, stamp_s)

    def set_goal(self, goal: Goal | None) -> None:
        """Set the goal to walk to, until another goal or command, or until the policy ends.

        Raises:
            SafetyError: If the policy does not walk to goals.
        """
        self._buffer.set_goal(goal)

    def instruct(self, text: str) -> None:
        """Tell the policy in words what to do, until another instruction.

        Raises:
            SafetyError: If there is no policy.
            InstructionError: If the policy takes no instructions, or knows no word of this one.
        """
        if self.runner is None:
            raise SafetyError("There is no policy that could be told anything.")
        self.runner.instruct(text)

    @property
    def stand_duration_s(self) -> float:
        """Duration of the newest way to the standing pose; an arm may need longer than the setting."""
        return self._idle.duration_s

    @property
    def goal(self) -> Goal | None:
        """Current goal of the robot, if there is one."""
        return self._buffer.goal

    def heartbeat(self, stamp_s: float) -> None:
        """The operator is there; ``stamp_s`` on the robot's clock."""
        self._heartbeat_s = stamp_s

    def request(self, event: str) -> None:
        """Ask for ``stand``, ``start``, ``stop``, ``estop`` or ``reset``; takes effect in the next tick.

        Raises:
            SafetyError: If that is not possible now, with what is.
        """
        self.safety.request(event, self.robot.now_s())

    def forget_sent(self) -> None:
        """Forget the last command: a simulated robot has been put elsewhere, and targets need not go there in steps."""
        self._sent = None

    def stop(self) -> None:
        """Let :meth:`run` return after the present tick; the mode stays."""
        self._stop.set()

    def tick(self) -> TickReport:
        """One turn of the loop. Trouble with the robot or the policy damps the robot and is in the report."""
        clock = time.perf_counter
        begin = clock()
        now_s = self.robot.now_s()
        period_s = self.timing.begin(now_s, self.rate_hz)
        state, trouble = self._read(now_s)
        read_done = clock()
        if self.map_source is not None:
            self.map_source.update(now_s)
        mapped = clock()
        self._side.obey_remote(self.safety, now_s)
        requested = self._requested(state, now_s)
        self._judge(state, trouble, now_s, requested)
        judged = clock()
        tick = Tick(now_s, self.safety.transition, self._state, requested, self._sent)
        choice = self.safety.choose(tick)
        chosen = clock()
        sent = self._sent = self._write(choice, tick)
        done = clock()
        step = choice.step
        policy_s = None if step is None else (step.observe_s, step.infer_s)
        map_s = None if self.map_source is None else mapped - read_done
        self.timing.end(read_done - begin, map_s, judged - mapped, policy_s, done - chosen, done - begin)
        fault = self.safety.fault if self.safety.mode is Mode.DAMP else self._finding
        look = None if step is None or self.map_source is None else self.map_source.look
        busy_s, acting = done - begin, self.safety.acting
        report = TickReport(now_s, choice.mode, fault, state, requested, step, sent, period_s, busy_s, look, acting)
        if self.recorder is not None:
            self.recorder.record(report)
        return report

    def run(
        self,
        duration_s: float | None = None,
        command_input: CommandInput | None = None,
        on_tick: Callable[[TickReport], None] | None = None,
    ) -> None:
        """Tick at the contract's rate until ``duration_s`` is over or :meth:`stop` is called.

        Deadlines are absolute, so that errors do not add up; a period that was missed is counted and left out.

        Args:
            duration_s: On the robot's clock; None for no end.
            command_input: Called before every tick.
            on_tick: Told of every tick, for displays; its time counts.
        """
        dt_s = 1.0 / self.rate_hz
        start_s = self.robot.now_s()
        self._stop.clear()
        self.timing.restart()
        # What exists now outlives the loop; the collector need not walk through it while the robot moves.
        gc.freeze()
        try:
            index = 0
            while not self._stop.is_set() and (duration_s is None or index * dt_s < duration_s - 0.5 * dt_s):
                now_s = self.robot.now_s()
                if command_input is not None:
                    command = command_input(now_s - start_s)
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
            if self.safety.is_powered:
                with contextlib.suppress(RobotError):
                    self._send(self._idle.final(self._braking().command))
            raise
        finally:
            gc.unfreeze()

    def send_final_damping(self) -> None:
        """Damp a robot that is about to be left, unless it is passive; call it after :meth:`run`. A car is braked until
        it should stand.

        Raises:
            RobotError: If the robot takes no command.
        """
        if not self.safety.is_powered:
            return
        finals = 0
        while finals < FINAL_COMMANDS:
            self._sent = self._send(self._braking().command)
            finals += not self._idle.is_braking(self.robot.now_s())
            self.robot.sleep_until(self.robot.now_s() + 1.0 / self.rate_hz)

    def leave(self) -> None:
        """Leave the robot after :meth:`run`: :meth:`send_final_damping`, and PASSIVE as the mode of a next run.

        Raises:
            RobotError: If the robot takes no command.
        """
        self.send_final_damping()
        now_s = self.robot.now_s()
        self.safety.request(Event.ESTOP, now_s)
        self.safety.request(Event.RESET, now_s)

    def statistics(self) -> dict[str, Any]:
        """Timings (count, mean, p50, p99, max in seconds), counts, mode and fault; plain data for JSON."""
        fault = self.safety.fault
        return {
            "rate_hz": self.rate_hz,
            "mode": self.safety.mode.value,
            "fault": None if fault is None else {**asdict(fault), "code": fault.code.value},
            **self.counts(),
            "recorder": None if self.recorder is None else self.recorder.statistics(),
            "timing": self.timing.summary(),
            "robot": self._side.health(),
        }

    def counts(self) -> dict[str, int]:
        """Ticks, missed deadlines, failed reads and writes; cheap enough for every tick."""
        return {"ticks": self.timing.ticks, "missed_deadlines": self.timing.missed, **self._counts}

    def _read(self, now_s: float) -> tuple[RobotState | None, Fault | None]:
        """The state, or why there is none."""
        try:
            self._state = self.robot.read()
            return self._state, None
        except RobotError as error:
            self._counts["read_errors"] += 1
            return None, Fault(FaultCode.NO_STATE, f"The robot cannot be read: {error}", now_s)

    def _on_transition(self, transition: Transition) -> None:
        if transition.mode is Mode.DAMP or transition.before is Mode.POLICY:
            self._buffer.drop_goal()  # A policy that starts again must not set off for where it was once sent.
        if transition.before is Mode.DAMP and transition.mode is Mode.PASSIVE:
            self._side.reset()

    def _requested(self, state: RobotState | None, now_s: float) -> NDArray[np.float64]:
        if self.map_source is not None and self.map_source.lost(now_s):
            return self._buffer.nothing  # No fresh map: command zero velocity.
        if (asked := self._side.requested()) is not None:
            return asked
        return self._buffer.at(state, now_s)

    def _judge(
        self, state: RobotState | None, trouble: Fault | None, now_s: float, requested: NDArray[np.float64]
    ) -> None:
        """Let the judge see everything."""
        # What the robot knows of itself comes first: it is the cause of what its state shows.
        found = self._side.fault(now_s, self.safety.mode) or trouble
        self._finding = found or self.safety.judge(
            state,
            now_s,
            self.safety.mode,
            missed_deadlines=self.timing.missed_in_a_row,
            heartbeat_s=self._heartbeat_s,
            requested_command=requested,
        )
        self._finding = self._side.placed(self._finding)
        if self._finding is not None:
            self.safety.report(self._finding)

    def _braking(self) -> Choice:
        """Command of the brake, whatever the mode."""
        tick = Tick(self.robot.now_s(), self.safety.transition, self._state, self._buffer.nothing, self._sent)
        return self.safety.choose(tick, Role.BRAKE)

    def _send(self, command: JointCommand | None) -> JointCommand | None:
        return None if command is None else self.robot.write(command)

    def _write(self, choice: Choice, tick: Tick) -> JointCommand | None:
        """Send what was chosen, or the brake's command to a robot that does not take it."""
        command = choice.command
        if command is not None and choice.mode is Mode.POLICY:
            command = self._target_steps.limit(command, tick.last)
        try:
            return self._send(command)
        except RobotError as error:
            self._counts["write_errors"] += 1
            self.safety.report(Fault(FaultCode.WRITE, f"The robot took no command: {error}", tick.now_s))
        try:
            return self._send(self.safety.choose(tick).command)
        except RobotError:
            return None

    def _refuse_stand(self) -> str | None:
        if self.timing.ticks == 0:  # No robot stands up that was never judged.
            now_s = self.robot.now_s()
            self._judge(*self._read(now_s), now_s, self._buffer.nothing)
        if self._finding is not None:
            return self._finding.text
        if (refusal := self._side.take_over()) is not None:
            return refusal
        # Looking takes time, in which the loop goes on judging.
        return None if self._finding is None else self._finding.text

    def _refuse_start(self) -> str | None:
        if not self.safety.sources(Role.TASK):
            return "no policy is loaded."
        now_s = self.robot.now_s()
        refusal = None if self.inputs is None else self.inputs.refusal(now_s, self._state)
        return self._buffer.missing() or refusal or self._idle.refusal(self.safety.transition, self._state, now_s)
