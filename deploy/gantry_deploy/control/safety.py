"""Safety machine: permission to move the robot, and the choice of the command source that moves it.

PASSIVE sends no torque, STAND moves to the default pose, POLICY lets a task source act, mostly the network, DAMP brakes
every joint and stays until an operator resets it. Any fault leads to DAMP from any mode in which the robot is powered.
An arm is left alone in PASSIVE and held in DAMP, see ``control.idle_commands``; a car is left alone likewise and brakes
in DAMP, see :mod:`gantry_deploy.control.car_idle_commands`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gantry_deploy.control.judge import POLICY_SOURCE, Fault, FaultCode, Judge
from gantry_deploy.control.modes import ACTING, TRANSITIONS, Event, Mode, Role, Transition
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.control.ticks import SourceCommand, Tick
from gantry_deploy.errors import SafetyError, SurroundingsError
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import GantryError, unknown_name_text
from gantry_hardware.model.spec import RobotSpec

if TYPE_CHECKING:  # Modules that only ask for the mode load no network runtime.
    from gantry_deploy.control.sources import CommandSource
    from gantry_deploy.policy.runner import PolicyStep

__all__ = [
    "TRANSITIONS",
    "Event",
    "Fault",
    "FaultCode",
    "Mode",
    "Role",
    "SafetyConfig",
    "SafetyMachine",
]

_LOG = logging.getLogger("gantry.safety")

Guard = Callable[[], str | None]
"""Check of an event: the reason for refusing it now, or None."""
Listener = Callable[[Transition], None]
"""Receiver of changes of the mode."""


@dataclass(frozen=True)
class Choice:
    """The source that acts in a tick, and its command."""

    mode: Mode
    """Mode that decided."""
    source: str
    """Name of the source."""
    command: JointCommand | None
    """Command to send; None for nothing."""
    step: PolicyStep | None
    """Step of the policy in this tick, even if the brake overruled it."""


class SafetyMachine:
    """The mode, its table of transitions, the judge, and the choice among command sources.

    Requests may come from any thread; the judge and the choice belong to the control loop.

    Args:
        spec: The robot whose limits count.
        config: Limits and timeouts.
    """

    def __init__(self, spec: RobotSpec, config: SafetyConfig | None = None) -> None:
        self.spec = spec
        self.config = config or SafetyConfig()
        self.judge = Judge(spec, self.config)
        """Finds faults; :meth:`report` takes notice of them."""
        self._transition = Transition(0, Mode.PASSIVE, Mode.PASSIVE)
        self._fault: Fault | None = None
        self._sources: list[CommandSource] = []
        self._acting: CommandSource | None = None
        self._begun = self._transition
        self._guards: dict[Event, Guard] = {}
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()

    @property
    def mode(self) -> Mode:
        """The present mode."""
        return self._transition.mode

    @property
    def transition(self) -> Transition:
        """The newest change of the mode."""
        return self._transition

    @property
    def fault(self) -> Fault | None:
        """Fault that led to DAMP; kept until the reset."""
        return self._fault

    @property
    def acting(self) -> str:
        """Name of the source that acted last, empty before the first tick."""
        return "" if self._acting is None else self._acting.name

    @property
    def is_powered(self) -> bool:
        """Whether the robot was commanded anything else than what PASSIVE sends, or will be."""
        return not (self._begun.mode is Mode.PASSIVE and self.mode is Mode.PASSIVE)

    def allowed_events(self) -> list[str]:
        """Requests that the table knows in the present mode."""
        return [event.value for (mode, event) in TRANSITIONS if mode is self.mode and event is not Event.FAULT]

    def add_guard(self, event: Event, guard: Guard) -> None:
        """Grant ``event`` only while ``guard()`` returns None; what it returns otherwise is told to the operator.

        It is asked without the machine being locked, and may wait; a mode that changes meanwhile refuses the request.
        """
        self._guards[event] = guard

    def add_listener(self, listener: Listener) -> None:
        """Tell ``listener`` of every change of the mode, from the thread that caused it; it must not block or raise."""
        self._listeners.append(listener)

    def add_source(self, source: CommandSource) -> None:
        """Let ``source`` act in the modes of its role. Call it before the loop runs.

        Raises:
            SafetyError: If another source has the same name, or the same role and priority.
        """
        for other in self._sources:
            if other.name == source.name or (other.role, other.priority) == (source.role, source.priority):
                has = f"role '{source.role}' and priority {source.priority}"
                raise SafetyError(f"Command source '{source.name}' of {has} clashes with '{other.name}'.")
        self._sources.append(source)
        self._sources.sort(key=lambda item: -item.priority)

    def sources(self, role: Role) -> list[str]:
        """Names of the sources of a role, the highest priority first."""
        return [source.name for source in self._sources if source.role is role]

    def choose(self, tick: Tick, role: Role | None = None) -> Choice:
        """Command of the willing source with the highest priority among those that the mode permits.

        A source that fails, gives numbers that are not finite, or a mode in which none is willing, is a fault, and the
        brake acts in the same tick; so it does after an emergency stop that came in while a source was busy. Other
        requests of that time take effect in the next tick. A source is told once that it takes over or that its mode
        was entered.

        Args:
            tick: Inputs of the sources; the machine fills in the transition and the last role.
            role: Role whose turn it is whatever the mode; None for the mode's own.
        """
        step = None
        while True:
            entered = self._transition
            turn = role or ACTING[entered.mode]
            last_role = None if self._acting is None else self._acting.role
            given = self._ask(replace(tick, transition=entered, last_role=last_role), turn)
            step = given.step or step
            if turn is Role.BRAKE or self.mode is not Mode.DAMP:
                return Choice(entered.mode, self.acting, given.command, step)

    def request(self, event: str, time_s: float = 0.0) -> None:
        """An operator's request.

        Args:
            event: ``stand``, ``start``, ``stop``, ``estop`` or ``reset``.
            time_s: On the robot's clock, for the record of an ``estop``.

        Raises:
            SafetyError: If there is no such event, or the present mode does not grant it; nothing has changed.
        """
        known = [item.value for item in Event if item is not Event.FAULT]
        if event not in known:
            raise SafetyError(unknown_name_text("safety event", str(event), known))
        asked = Event(event)
        guard = self._guards.get(asked)
        with self._lock:
            self._target(asked)
            entered = self._transition
        # A guard may wait for others to answer; an emergency stop and the judge must not wait with it.
        refusal = None if guard is None else guard()
        with self._lock:
            target = self._target(asked)
            if refusal is None and guard is not None and entered != self._transition:
                refusal = "the mode changed while it was looked whether it is possible; ask again."
            if refusal is not None:
                raise SafetyError(f"'{event}' is refused in {self.mode}: {refusal}")
            if asked is Event.ESTOP and self._fault is None:
                self._fault = Fault(FaultCode.OPERATOR_STOP, "The operator pressed the emergency stop.", time_s)
            if asked is Event.RESET:
                self._fault = None
            self.judge.forget()
            self._enter(target)

    def report(self, fault: Fault) -> Mode:
        """Take notice of a fault: DAMP from any powered mode. The first cause is kept. Returns the mode."""
        with self._lock:
            target = TRANSITIONS.get((self.mode, Event.FAULT))
            if target is not None:
                self._fault = self._fault or fault
                self._enter(target)
            return self.mode

    def _ask(self, tick: Tick, role: Role) -> SourceCommand:
        """Command of the source whose turn it is; nothing from one that failed, which is reported."""
        source: CommandSource
        try:
            for source in (item for item in self._sources if item.role is role):
                if source.willing(tick):
                    break
            else:
                asked = ", ".join(self.sources(role)) or "none"
                text = f"No command source is willing to act in {tick.transition.mode}; asked: {asked}."
                self.report(Fault(FaultCode.SOURCE, text, tick.now_s))
                return SourceCommand(None)
            if self._acting is not source or self._begun != tick.transition:
                source.begin(tick)
                self._acting, self._begun = source, tick.transition
            given = source.command(tick)
        except Exception as error:  # whatever it is, a damped robot is better off than one whose loop has died
            if role is Role.BRAKE:
                raise
            self.report(_fault_of(source, error, tick.now_s))
            return SourceCommand(None)
        fault = None if given.command is None else self.judge.targets(given.command, tick.now_s, source.name)
        if fault is None:
            return given
        self.report(fault)
        return SourceCommand(None, given.step)

    def _target(self, asked: Event) -> Mode:
        """Target mode of a request in the present mode.

        Raises:
            SafetyError: If it is not possible.
        """
        target = TRANSITIONS.get((self.mode, asked))
        if target is None:
            because = "" if self._fault is None else f" ({self._fault.text})"
            raise SafetyError(
                f"'{asked.value}' is not possible in {self.mode}{because}. "
                f"Possible now: {', '.join(self.allowed_events())}."
            )
        return target

    def _enter(self, mode: Mode) -> None:
        if mode is not self.mode:
            self._transition = Transition(self._transition.number + 1, self.mode, mode)
            for listener in self._listeners:
                listener(self._transition)


def _fault_of(source: CommandSource, error: Exception, now_s: float) -> Fault:
    """Fault of a source that failed."""
    code = FaultCode.POLICY if source.name == POLICY_SOURCE else FaultCode.SOURCE
    if isinstance(error, SurroundingsError):
        code = FaultCode.SURROUNDINGS
    if not isinstance(error, GantryError):
        _LOG.error("The %s broke", source.name, exc_info=error)
        return Fault(code, f"The {source.name} broke: {type(error).__name__}: {error}", now_s)
    return Fault(code, str(error) if code is not FaultCode.SOURCE else f"The {source.name}: {error}", now_s)
