"""Commands to a VESC and the values that it reports, as payloads of frames.

Numbers and scales are those of the firmware (``comm/commands.c`` and ``datatypes.h`` of vedderb/bldc); all integers are
most significant byte first.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from gantry_hardware.errors import RobotError


class Comm(enum.IntEnum):
    """First byte of a payload."""

    GET_VALUES = 4
    SET_CURRENT = 6
    SET_CURRENT_BRAKE = 7
    SET_RPM = 8
    SET_SERVO_POS = 12
    ALIVE = 30


FAULTS = (
    "none",
    "over voltage",
    "under voltage",
    "gate driver",
    "absolute over current",
    "over temperature of the power stage",
    "over temperature of the motor",
    "over voltage of the gate driver",
    "under voltage of the gate driver",
    "under voltage of the processor",
    "reset by its watchdog",
    "encoder",
    "encoder amplitude too small",
    "encoder amplitude too large",
    "flash memory",
)
"""Names of the first fault codes, by code."""

_VALUES = struct.Struct(">hhiiiihihiiiiiiB")
"""Values up to the fault code; newer firmware appends more."""
VALUES_SIZE = 1 + _VALUES.size
"""Shortest reply to ``GET_VALUES``, bytes."""


@dataclass(frozen=True)
class VescValues:
    """Reply to ``GET_VALUES``, as far as it is used."""

    fet_temperature_c: float
    """Of the power stage."""
    motor_current_a: float
    """Mean since the last reply."""
    erpm: int
    """Electrical speed of the motor, signed, 1/min."""
    input_voltage_v: float
    """Of the battery."""
    tachometer: int
    """Signed count of sixths of electrical turns; wraps around at 32 bits."""
    fault: int
    """Fault code; 0 for none."""

    @property
    def fault_text(self) -> str:
        """Number and name of the fault."""
        name = FAULTS[self.fault] if self.fault < len(FAULTS) else "see the firmware's mc_fault_code"
        return f"{self.fault} ({name})"


def get_values() -> bytes:
    """Ask for the values."""
    return bytes([Comm.GET_VALUES])


def alive() -> bytes:
    """Start the firmware's timeout anew; changes nothing else."""
    return bytes([Comm.ALIVE])


def set_rpm(erpm: int) -> bytes:
    """Speed set-point, 1/min, electrical."""
    return struct.pack(">Bi", Comm.SET_RPM, erpm)


def set_current(current_a: float) -> bytes:
    """Motor current; 0 lets the motor roll."""
    return struct.pack(">Bi", Comm.SET_CURRENT, round(1e3 * current_a))


def set_current_brake(current_a: float) -> bytes:
    """Braking current, whichever way the motor turns."""
    return struct.pack(">Bi", Comm.SET_CURRENT_BRAKE, round(1e3 * current_a))


def set_servo_pos(position: float) -> bytes:
    """Position of the servo, 0 to 1."""
    return struct.pack(">Bh", Comm.SET_SERVO_POS, round(1e3 * position))


def values_payload(values: VescValues) -> bytes:
    """Reply to ``GET_VALUES`` as a VESC sends it, unused numbers zero."""
    fields = _VALUES.pack(
        round(10.0 * values.fet_temperature_c),
        0,
        round(100.0 * values.motor_current_a),
        0,
        0,
        0,
        0,
        values.erpm,
        round(10.0 * values.input_voltage_v),
        0,
        0,
        0,
        0,
        values.tachometer,
        0,
        values.fault,
    )
    return bytes([Comm.GET_VALUES]) + fields


def read_values(payload: bytes) -> VescValues:
    """Values of a reply to ``GET_VALUES``.

    Raises:
        RobotError: If it is no such reply, or a shorter one.
    """
    if payload[:1] != bytes([Comm.GET_VALUES]) or len(payload) < VALUES_SIZE:
        kind = payload[0] if payload else "(nothing)"
        raise RobotError(
            f"A VESC answers with {len(payload)} bytes of kind {kind}, expected at least {VALUES_SIZE} of kind "
            f"{Comm.GET_VALUES.value} (GET_VALUES)."
        )
    numbers = _VALUES.unpack_from(payload, 1)
    return VescValues(
        fet_temperature_c=0.1 * numbers[0],
        motor_current_a=0.01 * numbers[2],
        erpm=numbers[7],
        input_voltage_v=0.1 * numbers[8],
        tachometer=numbers[13],
        fault=numbers[15],
    )
