"""CAN frames of DM motors in MIT mode: commands, feedback, and what switches a motor on and off.

A command has the motor's id and packs, most significant bit first, position in 16 bits, velocity, proportional gain,
derivative gain and torque in 12 bits each. Feedback has an id of its own and holds state and id in one byte, then
position in 16 bits, velocity and torque in 12 bits each, and two temperatures. Every number is a share of the motor
type's range; gains go from 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.errors import RobotError, UnknownNameError

FRAME_BYTES = 8
"""Size of every frame's data."""
KP_MAX, KD_MAX = 500.0, 5.0
"""Largest gains, N m/rad and N m s/rad, of every type."""
ENABLE, DISABLE, CLEAR_ERROR = (bytes([0xFF] * 7 + [last]) for last in (0xFC, 0xFD, 0xFB))
"""Data of the frames that switch a motor on and off, and end an error."""
QUERY_ID = 0x7FF
"""Id of questions to any motor."""
REFRESH = 0xCC
"""Third byte of a question for feedback, which moves nothing."""
DISABLED, ENABLED = 0x0, 0x1
"""States of a motor that works."""
STATES = {
    DISABLED: "disabled",
    ENABLED: "enabled",
    0x8: "over voltage",
    0x9: "under voltage",
    0xA: "over current",
    0xB: "over temperature of the power stage",
    0xC: "over temperature of the motor",
    0xD: "lost communication",
    0xE: "overload",
}
"""Name of every state."""


@dataclass(frozen=True)
class MotorRange:
    """Ranges of a motor type's numbers, symmetric about 0."""

    pos_rad: float
    """Largest position."""
    vel_rad_s: float
    """Largest speed."""
    torque_nm: float
    """Largest torque."""


RANGES = {
    "DM3507": MotorRange(12.5, 50.0, 5.0),
    "DM4310": MotorRange(12.5, 30.0, 10.0),
    "DM4340": MotorRange(12.5, 10.0, 28.0),
    "DM6248": MotorRange(12.5, 20.0, 120.0),
    "DM8009": MotorRange(12.5, 45.0, 54.0),
}
"""Motor types, as delivered: the ranges can be changed in the motor, and must be the same on both sides."""


@dataclass(frozen=True)
class MotorCommand:
    """Impedance command to one motor, at its own shaft."""

    pos_rad: float
    """Target position."""
    vel_rad_s: float
    """Target velocity."""
    kp_nm_rad: float
    """Proportional gain."""
    kd_nm_s_rad: float
    """Derivative gain."""
    torque_nm: float
    """Feed-forward torque."""


@dataclass(frozen=True)
class MotorFeedback:
    """Reading of one motor."""

    state: int
    """Key of :data:`STATES`."""
    motor_id: int
    """Lowest four bits of the motor's id."""
    pos_rad: float
    """Position of the shaft."""
    vel_rad_s: float
    """Velocity of the shaft."""
    torque_nm: float
    """Torque of the motor."""
    stage_temperature_c: int = 0
    """Of the power stage."""
    rotor_temperature_c: int = 0
    """Of the windings."""

    @property
    def state_text(self) -> str:
        """Name of the state."""
        return STATES.get(self.state, f"state {self.state:#x}, which is not known")


def motor_range(kind: str) -> MotorRange:
    """Ranges of a motor type.

    Raises:
        UnknownNameError: If there is no such type.
    """
    if kind not in RANGES:
        raise UnknownNameError("DM motor type", kind, RANGES)
    return RANGES[kind]


def to_bits(value: float, low: float, high: float, bits: int) -> int:
    """Nearest step of a number in a range, clipped to it."""
    share = (min(max(value, low), high) - low) / (high - low)
    return round(share * ((1 << bits) - 1))


def from_bits(step: int, low: float, high: float, bits: int) -> float:
    """Number of a step."""
    return low + step * (high - low) / ((1 << bits) - 1)


def command_data(command: MotorCommand, limits: MotorRange) -> bytes:
    """Data of a command frame; numbers beyond the ranges are clipped."""
    word = to_bits(command.pos_rad, -limits.pos_rad, limits.pos_rad, 16)
    word = word << 12 | to_bits(command.vel_rad_s, -limits.vel_rad_s, limits.vel_rad_s, 12)
    word = word << 12 | to_bits(command.kp_nm_rad, 0.0, KP_MAX, 12)
    word = word << 12 | to_bits(command.kd_nm_s_rad, 0.0, KD_MAX, 12)
    word = word << 12 | to_bits(command.torque_nm, -limits.torque_nm, limits.torque_nm, 12)
    return word.to_bytes(FRAME_BYTES, "big")


def read_command(data: bytes, limits: MotorRange) -> MotorCommand:
    """Command of a frame's data.

    Raises:
        RobotError: If the data have another size.
    """
    _require_size(data)
    word = int.from_bytes(data, "big")
    return MotorCommand(
        pos_rad=from_bits(word >> 48, -limits.pos_rad, limits.pos_rad, 16),
        vel_rad_s=from_bits(word >> 36 & 0xFFF, -limits.vel_rad_s, limits.vel_rad_s, 12),
        kp_nm_rad=from_bits(word >> 24 & 0xFFF, 0.0, KP_MAX, 12),
        kd_nm_s_rad=from_bits(word >> 12 & 0xFFF, 0.0, KD_MAX, 12),
        torque_nm=from_bits(word & 0xFFF, -limits.torque_nm, limits.torque_nm, 12),
    )


def feedback_data(feedback: MotorFeedback, limits: MotorRange) -> bytes:
    """Data of a feedback frame, as a motor sends it."""
    word = feedback.state << 4 | feedback.motor_id & 0xF
    word = word << 16 | to_bits(feedback.pos_rad, -limits.pos_rad, limits.pos_rad, 16)
    word = word << 12 | to_bits(feedback.vel_rad_s, -limits.vel_rad_s, limits.vel_rad_s, 12)
    word = word << 12 | to_bits(feedback.torque_nm, -limits.torque_nm, limits.torque_nm, 12)
    return (word << 16 | feedback.stage_temperature_c << 8 | feedback.rotor_temperature_c).to_bytes(FRAME_BYTES, "big")


def read_feedback(data: bytes, limits: MotorRange) -> MotorFeedback:
    """Reading of a feedback frame's data.

    Raises:
        RobotError: If the data have another size.
    """
    _require_size(data)
    word = int.from_bytes(data, "big")
    return MotorFeedback(
        state=word >> 60,
        motor_id=word >> 56 & 0xF,
        pos_rad=from_bits(word >> 40 & 0xFFFF, -limits.pos_rad, limits.pos_rad, 16),
        vel_rad_s=from_bits(word >> 28 & 0xFFF, -limits.vel_rad_s, limits.vel_rad_s, 12),
        torque_nm=from_bits(word >> 16 & 0xFFF, -limits.torque_nm, limits.torque_nm, 12),
        stage_temperature_c=word >> 8 & 0xFF,
        rotor_temperature_c=word & 0xFF,
    )


def query_data(motor_id: int) -> bytes:
    """Data of a question for a motor's feedback."""
    return bytes([motor_id & 0xFF, motor_id >> 8, REFRESH]) + bytes(5)


def _require_size(data: bytes) -> None:
    if len(data) != FRAME_BYTES:
        raise RobotError(f"A DM motor's frame has {len(data)} bytes, expected {FRAME_BYTES}.")
