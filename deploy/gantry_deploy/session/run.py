"""One correction session from standing up to the last damping: robot, loop, session, and those that look on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.modes import Event
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.control.ticks import TickRecorder, TickReport
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.embodiments.simulated_task import scene_reset, task_judge
from gantry_deploy.errors import SafetyError, SessionError
from gantry_deploy.flash.status import publisher_for_service
from gantry_deploy.perception.images import watch_scene
from gantry_deploy.perception.maps import make_map_source
from gantry_deploy.policy.policy import Policy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.session.classifier import SuccessClassifier
from gantry_deploy.session.config import SessionCfg
from gantry_deploy.session.parts import SessionParts, StepSink
from gantry_deploy.session.resets import LaidOutReset, Resetter, SceneLayout, SceneReset, StandReset
from gantry_deploy.session.session import CorrectionSession
from gantry_deploy.session.snapshot import LearnerFacts, SessionSnapshot
from gantry_deploy.session.source import SessionLoop
from gantry_deploy.teleop.operator import AttendedDevice, TeleopDevice
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import RobotError

PACE_LAG_S = 0.5
"""A paced robot makes up for at most so much, s."""
VIEWS_HZ = 10.0
"""Rate at which views are told."""


@dataclass
class Live:
    """Weights that change while the session runs."""

    policy: Policy | None = None
    """Acts in place of the bundle's network; None for the bundle's own."""
    facts: Callable[[], LearnerFacts] = LearnerFacts
    """Facts about the learner."""
    parameters: Callable[[], tuple[int, str]] = lambda: (0, "")
    """Version and SHA-256 of the weights that act."""
    disagreement: Callable[[], float | None] = lambda: None
    """Spread of the critic's heads at the last action."""
    adopt: Callable[[], None] = lambda: None
    """Lets newer weights act, between two attempts."""


@dataclass
class Views:
    """Those that look on."""

    tell: Sequence[Callable[[SessionSnapshot], None]] = ()
    """Called about ten times a second with the newest snapshot; must not block."""
    recorder: TickRecorder | None = None
    """Gets every report of the loop."""


def attach_session(
    controller: Controller,
    device: TeleopDevice,
    cfg: SessionCfg,
    resetter: Resetter,
    sinks: Sequence[StepSink] = (),
    live: Live | None = None,
    classifier: SuccessClassifier | None = None,
) -> SessionLoop:
    """Let a session act in a control loop, above its policy.

    Args:
        controller: With a policy and a connected robot.
        device: The operator's device, connected.
        cfg: Settings of the session.
        resetter: Way back to a start.
        sinks: Receivers of steps.
        live: Weights that change.
        classifier: Judges success in place of a simulator.
    """
    if controller.runner is None:
        raise SessionError("A correction session needs a policy, and the loop has none.")
    contract, robot, live = controller.runner.contract, controller.robot, live or Live()
    parts = SessionParts(
        contract,
        device,
        make_operator_map(contract),
        resetter,
        task_judge(robot) if classifier is None else classifier.beside(task_judge(robot)),
        sinks,
        live.facts,
        live.parameters,
        live.disagreement,
        live.adopt,
        contract.provenance.task or "",
    )
    session = CorrectionSession(parts, cfg, robot.now_s())
    if isinstance(device, AttendedDevice):
        device.attend(session.request, lambda: session.state.value)
    return SessionLoop(controller, session)


class SessionRun:
    """A robot, a policy and a person. :meth:`run` returns when the session is closed; the robot is then damped.

    Args:
        bundle: The policy.
        robot: Not connected yet.
        device: The operator's device, connected.
        cfg: Settings of the session.
        sinks: Receivers of steps.
        live: Weights that change.
        classifier: Judges success in place of a simulator.
        safety: Limits and timeouts.
        views: Those that look on.
        command: Shape (c,), command that the policy follows, in the contract's units; None for zero, or the task's own.
        speed: Factor on the clock that a robot in lock-step does not outrun; 0 for no bound.
        layout: Lays out the scene of a robot that cannot do it itself; None where a person does.

    Raises:
        GantryError: If bundle and robot do not fit.
    """

    def __init__(
        self,
        bundle: Bundle,
        robot: Robot,
        device: TeleopDevice,
        cfg: SessionCfg,
        *,
        sinks: Sequence[StepSink] = (),
        live: Live | None = None,
        classifier: SuccessClassifier | None = None,
        safety: SafetyConfig | None = None,
        views: Views | None = None,
        command: NDArray[np.float64] | None = None,
        speed: float = 0.0,
        layout: SceneLayout | None = None,
    ) -> None:
        self._speed, self._paced_s = speed, 0.0
        live, self._views = live or Live(), views or Views()
        contract = bundle.contract
        self.robot, self._cfg, self._command = robot, cfg, command
        runner = PolicyRunner(bundle, robot.spec, live.policy)
        eyes = make_map_source(contract, robot, runner.mapper_model, None)
        watch_scene(contract, robot)
        around = embodiment_of(contract).surroundings_source(contract, robot)
        robot.connect()
        machine = SafetyMachine(robot.spec, safety)
        self.controller = Controller(robot, runner, machine, self._views.recorder, map_source=eyes, surroundings=around)
        resetter = _resetter(self.controller, layout)
        self.loop = attach_session(self.controller, device, cfg, resetter, sinks, live, classifier)
        self.session = self.loop.session
        self._told_s = 0.0
        self._status = publisher_for_service()

    def run(self, duration_s: float | None = None) -> None:
        """Stand up and run until the session is closed.

        Args:
            duration_s: Longest time on the robot's clock; None for no end.

        Raises:
            SafetyError: If the robot may not stand up; nothing has moved.
        """
        self.controller.tick()
        self.controller.request(Event.STAND)
        try:
            self.controller.run(duration_s, self._before, self._after)
        finally:
            self.session.close()
            with contextlib.suppress(RobotError):
                self.controller.send_final_damping()
            if self._status is not None:
                self._status.close()

    def close(self) -> None:
        """End the session after the present tick, from any thread or a signal handler; the robot is then damped."""
        self.controller.stop()

    def estop(self) -> None:
        """Stop the robot at once, from any thread; the safety machine brakes, holds or damps it."""
        with contextlib.suppress(SafetyError):  # A robot that is passive moves no more.
            self.controller.request(Event.ESTOP)

    def summary(self) -> dict[str, Any]:
        """Plain data for JSON: the session's counts, and the loop's statistics."""
        return {**self.session.tally.summary(), "loop": self.controller.statistics()}

    def _before(self, time_s: float) -> NDArray[np.float64] | None:
        self.loop.before_tick()
        if self.session.is_closed:
            self.controller.stop()
        return self._command

    def _after(self, report: TickReport) -> None:
        self.loop.after_tick(report)
        if self._status is not None:
            self._status.note(report, self.controller.counts())
        now_s = time.monotonic()
        if self._speed > 0.0:
            self._paced_s = max(self._paced_s, now_s - PACE_LAG_S) + 1.0 / (self._speed * self.controller.rate_hz)
            time.sleep(max(0.0, self._paced_s - now_s))
        if now_s - self._told_s >= 1.0 / VIEWS_HZ:
            self._told_s = now_s
            snapshot = self.session.snapshot()
            for tell in self._views.tell:
                tell(snapshot)


def _resetter(controller: Controller, layout: SceneLayout | None) -> Resetter:
    """Way back to a start: the robot's own, another program's, or a person's."""
    reset = scene_reset(controller.robot)
    if reset is not None:
        return SceneReset(controller, reset)
    return StandReset(controller) if layout is None else LaidOutReset(controller, layout)
