"""The command source of a correction session: one policy step per tick, whose action policy or person decides."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np

from gantry_deploy.contract.policy_contract import OBJECT_GOAL
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.modes import Event, Role
from gantry_deploy.control.policy_inputs import PolicyInputs
from gantry_deploy.control.sources import CommandSource, HandOver
from gantry_deploy.control.ticks import SourceCommand, Tick, TickReport
from gantry_deploy.errors import SafetyError, SessionError
from gantry_deploy.session.session import CorrectionSession, FloatArray
from gantry_deploy.session.states import SessionState


class SessionSource(CommandSource):
    """Commands of a session, above the plain policy.

    Policy and person share one action decoder, so that targets continue where the other left them; where a decoder does
    not continue from earlier targets, the difference is faded out. The loop's slew limit comes last.

    Args:
        session: Decides between policy and person.
        inputs: The policy with what it sees.
    """

    name, role, priority = "session", Role.TASK, 15

    def __init__(self, session: CorrectionSession, inputs: PolicyInputs) -> None:
        self._session, self._inputs = session, inputs
        self._hand_over = HandOver()
        self._state = session.state

    def willing(self, tick: Tick) -> bool:
        """As long as the session commands the robot."""
        return self._session.is_acting

    def begin(self, tick: Tick) -> None:
        """Start from the robot as it is."""
        self._inputs.runner.reset()
        self._hand_over.begin(tick.last if tick.last_role is Role.TASK else None, tick.now_s)

    def command(self, tick: Tick) -> SourceCommand:
        """Joint targets of the action that policy or person wants."""
        session, runner = self._session, self._inputs.runner
        # Where a person corrects the command, legs keep walking: faded targets would lag behind the gait.
        continues = runner.continues or session.parts.operator_map.corrects_command
        if session.begins_attempt:
            runner.reset()
            self._hand_over.begin(None, tick.now_s)
        elif session.state is not self._state and not continues:
            self._hand_over.begin(tick.last, tick.now_s)
        if SessionState.CORRECTING in (session.state, self._state):
            runner.replan()  # A plan from before a correction is for another place.
        self._state = session.state
        step = self._inputs.step(replace(tick, requested=session.command(tick.requested)), session.decide)
        return SourceCommand(self._hand_over.blend(step.target, tick.now_s), replace(step, notes=session.notes))


class SessionLoop:
    """Ties a session to a control loop.

    Args:
        controller: With a policy.
        session: The session.
    """

    def __init__(self, controller: Controller, session: CorrectionSession) -> None:
        if controller.inputs is None:
            raise SessionError("A correction session needs a policy, and the loop has none.")
        self.controller, self.session = controller, session
        controller.safety.add_source(SessionSource(session, controller.inputs))
        self._runner = controller.inputs.runner
        self._asked = ""
        self._takes_command = self._runner.contract.command.kind == OBJECT_GOAL

    def before_tick(self) -> None:
        """Read the device, and let events take effect; an emergency stop at once."""
        now_s, judge = self.controller.robot.now_s(), self.session.parts.judge
        self.session.before_tick(now_s, self.controller.safety.mode)
        if self.session.stop_asked:
            with contextlib.suppress(SafetyError):  # A robot that is passive moves no more.
                self.controller.request(Event.ESTOP)
        asked = "" if judge is None or self._runner.contract.instruction is None else judge.instruction()
        if asked and asked != self._asked:  # Of another attempt; a person may say something else meanwhile.
            self._asked = asked
            self.controller.instruct(asked)
        command = None if judge is None else judge.command()
        if command is not None and self._takes_command:
            self.controller.set_command(command, now_s)

    def after_tick(self, report: TickReport) -> None:
        """Tell the session what was really sent."""
        acted = report.source == SessionSource.name and report.sent is not None
        self.session.sent(self._executed(report) if acted else None)
        fault = "" if report.fault is None else report.fault.text
        state = report.state
        names = self.controller.robot.spec.joint_names
        joints = {} if state is None else dict(zip(names, np.asarray(state.joint_pos_rad).tolist(), strict=True))
        self.session.publish(report.mode.value, fault, joints)

    def _executed(self, report: TickReport) -> FloatArray:
        """Executed action (a,) in the policy's own frame, or the command (c,) that was followed."""
        assert report.sent is not None
        executed = self._runner.executed_action(report.sent)
        if self.session.parts.operator_map.corrects_command:
            assert report.step is not None
            return report.step.command
        return executed
