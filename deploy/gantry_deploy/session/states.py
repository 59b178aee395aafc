"""States of a correction session as a transition table: the only place that says what may follow what."""

from __future__ import annotations

from gantry_deploy.errors import SessionError
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_hardware.compat import StrEnum
from gantry_hardware.errors import unknown_name_text


class SessionState(StrEnum):
    """State of a session, which decides whose action is executed."""

    RESETTING = "RESETTING"
    """Between two attempts: the scene and the robot go back to a start; nothing is recorded."""
    READY = "READY"
    """Everything is in place; an attempt begins with ``start_episode`` or with a take-over."""
    AUTONOMOUS = "AUTONOMOUS"
    """The policy acts."""
    CORRECTING = "CORRECTING"
    """A person acts."""
    PAUSED = "PAUSED"
    """The robot holds still inside an attempt; nothing is recorded and the attempt's time stands still."""
    STOPPED = "STOPPED"
    """The safety machine has stopped the robot; ``start_episode`` of a person recovers it."""
    CLOSED = "CLOSED"
    """The session is over."""


class Internal(StrEnum):
    """Event that no button triggers."""

    RESET_DONE = "reset_done"
    """Scene and robot are back at a start."""
    ENGAGED = "engaged"
    """The person holds the dead-man switch, or has taken over."""
    RELEASED = "released"
    """The person has let go, or the device has fallen silent."""
    TASK_DONE = "task_done"
    """The task is done, as simulator or reward classifier see it."""
    TASK_LOST = "task_lost"
    """The task cannot be done any more."""
    TIME_OUT = "time_out"
    """The attempt's time is over."""
    STOPPED = "stopped"
    """The safety machine has taken the robot away from the session."""
    RECOVERED = "recovered"
    """The safety machine has given the robot back."""


SessionEvent = TeleopEvent | Internal

_RUNNING = (SessionState.AUTONOMOUS, SessionState.CORRECTING, SessionState.PAUSED)
ENDS: tuple[SessionEvent, ...] = (
    TeleopEvent.SUCCESS,
    TeleopEvent.FAILURE,
    TeleopEvent.TERMINATE,
    TeleopEvent.RERECORD,
    Internal.TASK_DONE,
    Internal.TASK_LOST,
    Internal.TIME_OUT,
)
"""Events that end an attempt."""

TRANSITIONS: dict[tuple[SessionState, SessionEvent], SessionState] = {
    (SessionState.RESETTING, Internal.RESET_DONE): SessionState.READY,
    (SessionState.READY, TeleopEvent.START): SessionState.AUTONOMOUS,
    (SessionState.READY, TeleopEvent.RERECORD): SessionState.RESETTING,
    (SessionState.READY, Internal.ENGAGED): SessionState.CORRECTING,
    (SessionState.AUTONOMOUS, Internal.ENGAGED): SessionState.CORRECTING,
    (SessionState.AUTONOMOUS, TeleopEvent.PAUSE): SessionState.PAUSED,
    (SessionState.CORRECTING, Internal.RELEASED): SessionState.AUTONOMOUS,
    (SessionState.CORRECTING, TeleopEvent.PAUSE): SessionState.PAUSED,
    (SessionState.PAUSED, TeleopEvent.PAUSE): SessionState.AUTONOMOUS,
    (SessionState.PAUSED, TeleopEvent.START): SessionState.AUTONOMOUS,
    (SessionState.PAUSED, Internal.ENGAGED): SessionState.CORRECTING,
    (SessionState.STOPPED, Internal.RECOVERED): SessionState.RESETTING,
    (SessionState.STOPPED, TeleopEvent.START): SessionState.RESETTING,
    **{(state, event): SessionState.RESETTING for state in _RUNNING for event in ENDS},
    **{(state, Internal.STOPPED): SessionState.STOPPED for state in (SessionState.RESETTING, SessionState.READY)},
    **{(state, Internal.STOPPED): SessionState.STOPPED for state in _RUNNING},
    **{(state, TeleopEvent.VETO): state for state in (SessionState.AUTONOMOUS, SessionState.CORRECTING)},
    **{
        (state, event): state if event is TeleopEvent.ESTOP else SessionState.CLOSED
        for state in SessionState
        if state is not SessionState.CLOSED
        for event in (TeleopEvent.ESTOP, TeleopEvent.QUIT)
    },
}
"""All there is. ``estop`` keeps the state: the safety machine acts on it, and then the session is told ``stopped``."""

RECORDED = (SessionState.AUTONOMOUS, SessionState.CORRECTING)
"""States whose steps are recorded and learned from."""


def possible(state: SessionState) -> tuple[str, ...]:
    """Names of the events of a person that a state accepts."""
    known = [event for (before, event) in TRANSITIONS if before is state and isinstance(event, TeleopEvent)]
    if (state, Internal.ENGAGED) in TRANSITIONS or (state, Internal.RELEASED) in TRANSITIONS:
        known.append(TeleopEvent.INTERVENTION)
    return tuple(sorted(event.value for event in known))


def following(state: SessionState, event: SessionEvent) -> SessionState:
    """State after an event.

    Raises:
        SessionError: If the table does not hold the pair, with the events that it does.
    """
    if (state, event) not in TRANSITIONS:
        raise SessionError(f"In {state.value}: {unknown_name_text('event', event.value, possible(state))}")
    return TRANSITIONS[state, event]


def event_of_end(ends: SessionEvent, success: bool) -> TeleopEvent:
    """Event by which a person would end an attempt as it has ended."""
    if success:
        return TeleopEvent.SUCCESS
    if ends in (TeleopEvent.FAILURE, Internal.TASK_LOST):
        return TeleopEvent.FAILURE
    return TeleopEvent.RERECORD if ends is TeleopEvent.RERECORD else TeleopEvent.TERMINATE
