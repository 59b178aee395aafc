"""Modes of a robot that is being run, and two tables: transitions between modes, and the sources that act in each."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.compat import StrEnum


class Mode(StrEnum):
    """Mode of the controller, which decides which command sources may act."""

    PASSIVE = "PASSIVE"
    STAND = "STAND"
    POLICY = "POLICY"
    DAMP = "DAMP"


class Event(StrEnum):
    """Event that may change a mode: requests of the operator, and faults."""

    STAND = "stand"
    START = "start"
    STOP = "stop"
    ESTOP = "estop"
    RESET = "reset"
    FAULT = "fault"


class Role(StrEnum):
    """Role of a command source."""

    IDLE = "idle"
    TASK = "task"
    BRAKE = "brake"


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

ACTING: dict[Mode, Role] = {
    Mode.PASSIVE: Role.IDLE,
    Mode.STAND: Role.IDLE,
    Mode.POLICY: Role.TASK,
    Mode.DAMP: Role.BRAKE,
}
"""Role of the sources that may act in each mode; among those the willing one with the highest priority does."""


@dataclass(frozen=True)
class Transition:
    """Entry into a mode."""

    number: int
    """Count of the changes of mode; tells a mode that was left and entered again from one that lasted."""
    before: Mode
    """Mode that was left."""
    mode: Mode
    """Mode that was entered."""
