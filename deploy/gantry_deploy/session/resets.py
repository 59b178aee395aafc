"""Resets between two attempts: a simulated scene at once, or a robot that stands up while a person sets the scene."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.modes import Event, Mode
from gantry_deploy.errors import SafetyError

_LOG = logging.getLogger("gantry.session")


class Resetter(Protocol):
    """Way back to a start. Methods are called from the control loop's thread, between two ticks."""

    asks_person: bool
    """Whether a person must say with ``start_episode`` that the scene is ready."""

    def begin(self) -> None:
        """Start to reset."""
        ...

    def done(self) -> bool:
        """Whether scene and robot are back at a start; asked before every tick."""
        ...

    def start(self) -> str | None:
        """Let the session's source act again; the reason why that is not possible yet, or None."""
        ...

    def recover(self) -> str | None:
        """Lift a stop of the safety machine and stand up again; the reason why that is not possible, or None."""
        ...


class SceneLayout(Protocol):
    """Lays out the scene by another program, which may take its time. Methods do not wait."""

    def ask(self) -> None:
        """Ask for a new scene."""
        ...

    def answer(self) -> str | None:
        """None while nothing has been answered, then empty, or the reason why the scene was not laid out."""
        ...


class StandReset:
    """Moves the robot to its standing pose, the mode STAND, while a person sets the scene.

    Args:
        controller: Of the loop.
    """

    asks_person = True

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._stood_since_s: float | None = None

    def begin(self) -> None:
        """Leave the policy's mode for the standing pose."""
        self._stood_since_s = None
        if self._controller.safety.mode is Mode.POLICY:
            self._controller.request(Event.STOP)

    def done(self) -> bool:
        """Whether the standing pose has been reached."""
        if self._controller.safety.mode is not Mode.STAND:
            self._stood_since_s = None
            return False
        now_s = self._controller.robot.now_s()
        self._stood_since_s = now_s if self._stood_since_s is None else self._stood_since_s
        return now_s - self._stood_since_s >= self._controller.stand_duration_s

    def start(self) -> str | None:
        """Enter the policy's mode again."""
        return self._request(Event.START)

    def recover(self) -> str | None:
        """Reset the fault, then stand up."""
        if self._controller.safety.mode is Mode.DAMP and (refusal := self._request(Event.RESET)) is not None:
            return refusal
        return self._request(Event.STAND) if self._controller.safety.mode is Mode.PASSIVE else None

    def _request(self, event: Event) -> str | None:
        try:
            self._controller.request(event)
        except SafetyError as error:
            return str(error)
        return None


class SceneReset(StandReset):
    """Lays out a simulated scene anew at once, robot included; stands up first where the robot does not act yet.

    Args:
        controller: Of the loop.
        reset: Puts scene and robot back.
    """

    asks_person = False

    def __init__(self, controller: Controller, reset: Callable[[], None]) -> None:
        super().__init__(controller)
        self._reset = reset

    def begin(self) -> None:
        """Put everything back, unless the robot has to stand up first."""
        if self._controller.safety.mode is Mode.POLICY:
            self._put_back()

    def done(self) -> bool:
        """At once, or when the robot acts again."""
        if self._controller.safety.mode is Mode.POLICY:
            return True
        if super().done() and super().start() is None:
            self._put_back()
            return True
        return False

    def start(self) -> str | None:
        """At once."""
        return None if self._controller.safety.mode is Mode.POLICY else "the robot does not act yet."

    def _put_back(self) -> None:
        self._reset()
        self._controller.forget_sent()


class LaidOutReset(StandReset):
    """Moves the robot to its standing pose, and has the scene laid out then. Where that fails, a person does it.

    Args:
        controller: Of the loop.
        layout: Lays out the scene.
    """

    def __init__(self, controller: Controller, layout: SceneLayout) -> None:
        super().__init__(controller)
        self._layout = layout
        self._asked, self.asks_person = False, False

    def begin(self) -> None:
        """Leave the policy's mode for the standing pose."""
        super().begin()
        self._asked, self.asks_person = False, False

    def done(self) -> bool:
        """Whether the standing pose has been reached and the scene been laid out."""
        if not super().done():
            return False
        if not self._asked:
            self._asked = True
            self._layout.ask()
        refusal = self._layout.answer()
        if refusal:
            self.asks_person = True
            _LOG.error("The scene is not laid out: %s Lay it out by hand, then start the attempt.", refusal)
        return refusal is not None
