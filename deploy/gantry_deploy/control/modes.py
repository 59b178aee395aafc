"""The modes of a robot that is being run, and the one table of what leads from one to another."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """Mode of the controller, which decides what is sent."""

    PASSIVE = "PASSIVE"
    STAND = "STAND"
    POLICY = "POLICY"
    DAMP = "DAMP"


class Event(enum.StrEnum):
    """Event that may change a mode: requests of the operator, and faults."""

    STAND = "stand"
    START = "start"
    STOP = "stop"
    ESTOP = "estop"
    RESET = "reset"
    FAULT = "fault"


TRANSITIONS: dict[tuple[Mode, Event], Mode] = {
    (Mode.PASSIVE, Event.STAND): Mode.STAND,
    (Mode.STAND, Event.START): Mode.POLICY,
    (Mode.POLICY, Event.STOP): Mode.STAND,
    (Mode.STAND, Event.STOP): Mode.PASSIVE,
    (Mode.DAMP, Event.RESET): Mode.PASSIVE,
    (Mode.PASSIVE, Event.ESTOP): Mode.DAMP,
    (Mode.STAND, Event.ESTOP): Mode.DAMP,
    (Mode.POLICY, Event.ESTOP): Mode.DAMP,
    (Mode.DAMP, Event.ESTOP): Mode.DAMP,
    (Mode.STAND, Event.FAULT): Mode.DAMP,
    (Mode.POLICY, Event.FAULT): Mode.DAMP,
    (Mode.DAMP, Event.FAULT): Mode.DAMP,
}
"""All there is. A fault in PASSIVE changes nothing, because nothing is powered; it keeps STAND from being granted."""
