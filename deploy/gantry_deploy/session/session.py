"""Correction session: choice between policy and person, attempts, and the steps that are recorded and learned from.

The session owns the table of :mod:`gantry_deploy.session.states`. It knows neither ROS, nor a device, nor a kind of
robot: what differs is given as parts.
"""

from __future__ import annotations

import logging
import queue
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.modes import Mode
from gantry_deploy.embodiments.simulated_task import TaskVerdict
from gantry_deploy.errors import SessionError
from gantry_deploy.policy.onnx_policy import Images
from gantry_deploy.policy.runner import PolicyOutput
from gantry_deploy.session.advice import Advisor
from gantry_deploy.session.attempts import AttemptRecorder, ended
from gantry_deploy.session.config import EPISODE_S, LOGGED_EVENTS, SessionCfg
from gantry_deploy.session.parts import SeeingJudge, SessionParts
from gantry_deploy.session.snapshot import SessionSnapshot
from gantry_deploy.session.states import ENDS, RECORDED, Internal, SessionEvent, SessionState, following, possible
from gantry_deploy.session.steps import Actor, Observation, SessionStep, observation_of
from gantry_deploy.session.tally import Tally
from gantry_deploy.teleop.operator import OperatorInput, TeleopEvent, TogglingDevice, WatchingDevice

FloatArray = NDArray[np.float32]

_LOG = logging.getLogger("gantry.session")


@dataclass
class _Tick:
    """Readings of one tick, before the policy is asked."""

    now_s: float
    given: OperatorInput
    ends: SessionEvent | None = None
    """Event that ends the attempt."""
    verdict: TaskVerdict = field(default_factory=TaskVerdict)


class CorrectionSession:
    """One session. :meth:`before_tick`, :meth:`decide` and :meth:`sent` belong to the control loop's thread, in this
    order; requests and snapshots may come from any.

    Args:
        parts: What differs.
        cfg: Settings.
        start_s: Beginning on the robot's clock, s.
    """

    def __init__(self, parts: SessionParts, cfg: SessionCfg, start_s: float) -> None:
        self.parts, self.cfg = parts, cfg
        dt_s = parts.contract.dt_s
        self.state = SessionState.RESETTING
        """Present state."""
        self.tally = Tally(dt_s, cfg.recent)
        """Counts so far."""
        self.advisor = Advisor(dt_s, cfg.advice_ratio, cfg.stall_s)
        """Advice to the person."""
        length_s = cfg.episode_s or (EPISODE_S if parts.judge is None else parts.judge.episode_s)
        self.stop_asked = False
        """Whether the person has asked for an emergency stop in this tick."""
        self.max_steps = max(1, round(length_s / dt_s))
        """Steps of an attempt."""
        device = parts.device
        self.images: Images | None = None
        """Newest picture (3, height, width) uint8 of each camera; None without cameras."""
        self._watcher = device if isinstance(device, WatchingDevice) else None
        self._start_s, self._tick = start_s, _Tick(start_s, OperatorInput(start_s))
        self._requests: queue.SimpleQueue[TeleopEvent] = queue.SimpleQueue()
        self._attempt = AttemptRecorder(parts.operator_map.gripper, cfg.gripper_penalty)
        self._resetting = False
        self._command: FloatArray | None = None
        """Command (c,) that was asked for, of a map that corrects it."""
        self._engaged, self._toggled = False, False
        self._seeing = parts.judge if isinstance(parts.judge, SeeingJudge) else None
        self._log: deque[str] = deque(maxlen=LOGGED_EVENTS)
        self._snapshot = SessionSnapshot(state=self.state.value)

    def request(self, event: TeleopEvent) -> str | None:
        """Ask for an event, from any thread; it takes effect in the next tick.

        Returns:
            None if the present state knows it, otherwise the reason why not, with what is possible.
        """
        known = possible(self.state)
        if event.value not in known:
            return f"'{event.value}' is not possible in {self.state.value}; possible: {', '.join(known) or 'nothing'}."
        self._requests.put(event)
        return None

    @property
    def begins_attempt(self) -> bool:
        """Whether the next step is the first one of an attempt, before which the policy forgets the past."""
        return self.state in RECORDED and not self._attempt.is_running

    @property
    def notes(self) -> dict[str, str]:
        """Facts of this tick for a recording: state, number of the attempt, successes so far, beginning or end."""
        attempt, won = self._attempt.episode, self.tally.successes
        told = {"session_state": self.state.value, "attempt": str(attempt), "successes": str(won)}
        return told | self._attempt.notes

    @property
    def is_closed(self) -> bool:
        """Whether the session is over."""
        return self.state is SessionState.CLOSED

    @property
    def is_acting(self) -> bool:
        """Whether the session commands the robot."""
        return self.state not in (SessionState.STOPPED, SessionState.CLOSED)

    def before_tick(self, now_s: float, mode: Mode) -> None:
        """Read the device and let events take effect.

        Args:
            now_s: Time on the robot's clock.
            mode: Of the safety machine; the session's source acts in POLICY alone.
        """
        tick = self._tick = _Tick(now_s, self.parts.device.read(now_s))
        self.stop_asked, self._attempt.event = False, None
        if self.is_closed:
            return
        self._follow_safety(mode)
        for event in (*tick.given.events, *self._asked()):
            self._hear(event, tick)
        self._follow_hand(tick.given.engaged or self._toggled)
        if self.state is SessionState.RESETTING:
            self._reset()
        if self.state in RECORDED and self._attempt.is_open:
            self._judge(tick)

    def command(self, asked: NDArray[np.float64]) -> NDArray[np.float64]:
        """Command (c,) that the policy follows in this tick, in the contract's units: the one ``asked`` for, or the
        person's of a map that corrects the command."""
        own = self.parts.operator_map
        if not own.corrects_command:
            return asked
        self._command = np.asarray(asked, dtype=np.float32)
        if self.state is SessionState.CORRECTING:
            return own.action(self._tick.given, None).astype(np.float64)
        return asked if self.state in RECORDED else own.hold(None).astype(np.float64)

    def decide(self, seen: PolicyOutput) -> FloatArray:
        """Action (a,), dimensionless, of this step; completes the last one. A corrected command has been given before.

        Args:
            seen: Observation and answer of the policy.
        """
        tick, obs, attempt = self._tick, observation_of(seen), self._attempt
        self.images = seen.images
        if attempt.is_open:
            self._complete(obs, seen, tick)
        if self.state not in RECORDED:
            own = self.parts.operator_map
            return seen.action if own.corrects_command else own.hold(seen)
        if not attempt.is_running:
            self._begin()
        if self._seeing is not None:
            self._seeing.see(obs)
        by_person, own = self.state is SessionState.CORRECTING, self.parts.operator_map
        wanted = seen.action if self._command is None else self._command
        given, watcher = tick.given, self._watcher
        if watcher is not None:
            watcher.watch(seen, by_person)
            given = replace(given, action=watcher.act(seen)) if by_person else given
        action = own.action(given, seen) if by_person and not own.corrects_command else wanted
        step = SessionStep(
            attempt.episode,
            attempt.steps,
            tick.now_s,
            obs,
            np.array(action, dtype=np.float32),
            np.array(wanted, dtype=np.float32),
            Actor.PERSON if by_person else Actor.POLICY,
            base_action=seen.base_action,
            parameters_version=self.parts.parameters()[0],
        )
        attempt.decide(step)
        self.advisor.watch(np.asarray(seen.signals.joint_pos_rad[0]), self.parts.disagreement())
        return seen.action if own.corrects_command else step.action

    def sent(self, executed: FloatArray | None) -> None:
        """Take what was really sent: executed action (a,), dimensionless, in the policy's frame; None for nothing."""
        self._attempt.sent(executed)

    def snapshot(self) -> SessionSnapshot:
        """State of now; any thread."""
        return self._snapshot

    def publish(self, mode: str, fault: str, joints: dict[str, float]) -> SessionSnapshot:
        """Make the snapshot of a tick.

        Args:
            mode: Of the safety machine.
            fault: In words; empty without one.
            joints: Positions by name, rad and of sliding joints m.
        """
        parts, tally, tick = self.parts, self.tally, self._tick
        version, sha256 = parts.parameters()
        acting = {SessionState.AUTONOMOUS: "policy", SessionState.CORRECTING: "person"}
        self._snapshot = SessionSnapshot(
            time_s=tick.now_s - self._start_s,
            state=self.state.value,
            actor=acting.get(self.state, ""),
            mode=mode,
            fault=fault,
            possible=possible(self.state),
            robot=parts.contract.robot,
            task=parts.task,
            device=parts.device.name,
            device_help=self._help(),
            episode=max(self._attempt.episode, 0),
            step=self._attempt.steps,
            attempts=len(tally.attempts),
            successes=tally.successes,
            successes_alone=tally.successes_alone,
            success_rate=tally.success_rate,
            intervention_rate=tally.intervention_rate,
            person_s=tally.person_s,
            advice=self.advisor.text if self.state is SessionState.AUTONOMOUS else "",
            disagreement=self.advisor.disagreement,
            classifier=None if self._seeing is None else self._seeing.probability,
            parameters_version=version,
            parameters_sha256=sha256,
            cameras=tuple(camera.name for camera in parts.contract.cameras),
            joints=joints,
            axes={axis.value: float(value) for axis, value in tick.given.axes.items()},
            learner=parts.learner(),
            log=tuple(self._log),
        )
        return self._snapshot

    def close(self) -> None:
        """End the session; an open attempt ends without a verdict, and its last step is left out."""
        if not self.is_closed:
            self._go(TeleopEvent.QUIT, "the session ends")
        self._drop()

    def _help(self) -> tuple[str, ...]:
        if not hasattr(self, "_device_help"):
            self._device_help = tuple(self.parts.device.describe())
        return self._device_help

    def _asked(self) -> list[TeleopEvent]:
        found: list[TeleopEvent] = []
        while True:
            try:
                found.append(self._requests.get_nowait())
            except queue.Empty:
                return found

    def _hear(self, event: TeleopEvent, tick: _Tick) -> None:
        """One event of a person."""
        if event.value not in possible(self.state):
            self._note(f"'{event.value}' was not possible in {self.state.value}")
            return
        if event is TeleopEvent.INTERVENTION:
            self._toggled = not (self._toggled or self.state is SessionState.CORRECTING)
        elif event is TeleopEvent.VETO:
            if self._seeing is not None:
                self._seeing.veto()
        elif event in ENDS and self._attempt.is_open:
            tick.ends = event
        elif event is TeleopEvent.START and self.state is SessionState.READY:
            self._start()
        elif event is TeleopEvent.START and self.state is SessionState.STOPPED:
            self._recover()
        elif event is TeleopEvent.ESTOP:
            self.stop_asked = True
        else:
            self._go(event, "asked by the person")

    def _follow_hand(self, engaged: bool) -> None:
        """A take-over begins with the moment in which the person grips, not with a hand that was never taken away."""
        rising, self._engaged = engaged and not self._engaged, engaged
        if rising and self.state in (SessionState.READY, SessionState.AUTONOMOUS, SessionState.PAUSED):
            if self.state is SessionState.READY and not self._may_start():
                return
            self.parts.operator_map.begin()
            self._go(Internal.ENGAGED, "the person takes over")
        elif not engaged and self.state is SessionState.CORRECTING:
            self._go(Internal.RELEASED, "the person gives back")

    def _let_go(self) -> None:
        """A take-over by toggling ends with its attempt: the next key takes over again, and does not give back."""
        self._toggled = False
        if isinstance(self.parts.device, TogglingDevice):
            self.parts.device.release()

    def _follow_safety(self, mode: Mode) -> None:
        if self.state is SessionState.STOPPED:
            if mode is Mode.POLICY:
                self._go(Internal.RECOVERED, "the robot has been recovered")
            return
        running = self.state in RECORDED or self.state is SessionState.PAUSED
        if mode is Mode.DAMP or (running and mode is not Mode.POLICY):
            self._drop()
            self._let_go()
            self._resetting = False
            self._go(Internal.STOPPED, "the safety machine has stopped the robot")

    def _reset(self) -> None:
        if not self._resetting:
            self._resetting = True
            self.parts.resetter.begin()
            self.parts.adopt()
        if self.parts.resetter.done():
            self._resetting = False
            self._go(Internal.RESET_DONE, "")
            if self.cfg.auto_start and not self.parts.resetter.asks_person:
                self._start()

    def _start(self) -> None:
        if self._may_start():
            self._go(TeleopEvent.START, "")

    def _recover(self) -> None:
        refusal = self.parts.resetter.recover()
        if refusal is None:
            self._go(TeleopEvent.START, "the person recovers the robot")
        else:
            self._note(f"the robot cannot be recovered: {refusal}")

    def _may_start(self) -> bool:
        refusal = self.parts.resetter.start()
        if refusal is not None:
            self._note(f"the attempt cannot begin: {refusal}")
        return refusal is None

    def _begin(self) -> None:
        self._attempt.begin()
        if self._seeing is not None:
            self._seeing.begin()
        self.advisor.begin()
        if self._watcher is not None:
            self._watcher.begin()

    def _judge(self, tick: _Tick) -> None:
        """Verdict about the step whose outcome can be seen now."""
        if tick.ends is None and self.parts.judge is not None:
            verdict = tick.verdict = self.parts.judge.verdict()
            tick.ends = Internal.TASK_DONE if verdict.done else Internal.TASK_LOST if verdict.lost else None
        if tick.ends is None and self._attempt.steps >= self.max_steps:
            tick.ends = Internal.TIME_OUT

    def _complete(self, obs: Observation, seen: PolicyOutput, tick: _Tick) -> None:
        """Hand on the step before, whose outcome is what is seen now."""
        step, ends = self._attempt.complete(), tick.ends
        success = ends in (TeleopEvent.SUCCESS, Internal.TASK_DONE)
        if ends is not None:
            terminated = success or ends in (TeleopEvent.FAILURE, Internal.TASK_LOST)
            step = ended(step, success, terminated, obs, seen.base_action)
        self.tally.add(step, tick.now_s - self._start_s)
        for sink in self.parts.sinks:
            sink.take(step)
        if ends is None:
            return
        if ends is TeleopEvent.RERECORD:
            for sink in self.parts.sinks:
                sink.discard(step.episode)
        said = "success" if success else tick.verdict.text or ends.value
        self._attempt.end(ends, success)
        self._let_go()
        self._go(ends, f"attempt {step.episode}: {said} after {step.index + 1} steps")
        if self.cfg.max_attempts and len(self.tally.attempts) >= self.cfg.max_attempts:
            self._go(TeleopEvent.QUIT, "all attempts have been made")

    def _drop(self) -> None:
        """Leave an attempt whose last step cannot be completed."""
        self._attempt.abort()
        self.tally.drop()

    def _go(self, event: SessionEvent, why: str) -> None:
        before = self.state
        try:
            self.state = following(before, event)
        except SessionError as error:
            self._note(str(error))
            return
        if why:
            self._note(f"{before.value} -> {self.state.value}: {why}" if before is not self.state else why)

    def _note(self, text: str) -> None:
        self._log.append(text)
        _LOG.info("%s", text)
