"""Layout of Unitree's low-level messages, and the two ways in which their bytes are arranged.

A message travels as CDR (XCDR version 1, little-endian), where a structure has no alignment of its own. Its checksum is
counted over the structure as a C compiler lays it out in memory. Both have the same numbers in the same order and
differ in padding alone, so that one description yields both formats of :mod:`struct`.

Names and sizes are the manufacturer's (``unitree_go`` of the Go2, ``unitree_hg`` of the G1); docs/unitree.md says how
they were checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Union

BYTE, INT16, UINT16, INT32, UINT32, FLOAT32 = "B", "h", "H", "i", "I", "f"
"""Kinds of numbers, as :mod:`struct` calls them."""
_SIZES = {BYTE: 1, INT16: 2, UINT16: 2, INT32: 4, UINT32: 4, FLOAT32: 4}
ENCAPSULATION = b"\x00\x01\x00\x00"
"""First bytes of a message on the wire: little-endian XCDR version 1."""


@dataclass(frozen=True)
class Struct:
    """A structure: its name on the wire and its members in order."""

    name: str
    """For example ``unitree_go.msg.dds_.LowState_``."""
    members: tuple[Member, ...]
    """Members in order."""

    @property
    def alignment(self) -> int:
        """Alignment of the structure in memory, bytes."""
        return max(item.kind.alignment if isinstance(item.kind, Struct) else _SIZES[item.kind] for item in self.members)


@dataclass(frozen=True)
class Member:
    """A member of a structure."""

    name: str
    """Name on the wire."""
    kind: Union[str, Struct]  # noqa: UP007  a forward reference in a dataclass of Python 3.10
    """A number, or a structure."""
    count: int = 0
    """Length of an array; 0 for a single value."""


class Layout:
    """One message as a flat tuple of numbers, its two formats, and the places of its members in that tuple.

    Args:
        message: The structure; its last member is the checksum.
    """

    def __init__(self, message: Struct) -> None:
        self.message = message
        wire, memory = _Format(aligns_structs=False), _Format(aligns_structs=True)
        self._places: dict[str, slice] = {}
        self._columns: dict[tuple[str, str], slice] = {}
        self._add("", message, wire, memory)
        self.wire = struct.Struct("<" + wire.text)
        """On the wire, without the four bytes of encapsulation."""
        self.memory = struct.Struct("<" + memory.text)
        """In memory, as the checksum is counted."""
        self.size = wire.count
        """Count of the numbers."""

    def place(self, path: str) -> slice:
        """Place of a member in the flat tuple.

        Args:
            path: For example ``imu_state.quaternion`` or ``motor_state.3.q``.
        """
        return self._places[path]

    def index(self, path: str) -> int:
        """Index of a single number in the flat tuple."""
        return self._places[path].start

    def column(self, array: str, member: str) -> slice:
        """One member of every element of an array of structures, for example ``q`` of ``motor_state``."""
        known = self._columns.get((array, member))
        if known is None:
            first, second = self.index(f"{array}.0.{member}"), self.index(f"{array}.1.{member}")
            count = next(item.count for item in self.message.members if item.name == array)
            known = self._columns[array, member] = slice(first, first + count * (second - first), second - first)
        return known

    def decode(self, data: bytes) -> tuple[Any, ...]:
        """The numbers of a message from the wire.

        Raises:
            ValueError: If it is encoded in another way or has another length.
        """
        if data[:2] != ENCAPSULATION[:2]:
            raise ValueError(f"encapsulation {data[:2].hex()}, expected {ENCAPSULATION[:2].hex()}")
        if len(data) < 4 + self.wire.size:
            raise ValueError(f"{len(data)} bytes, expected {4 + self.wire.size}")
        return self.wire.unpack_from(data, 4)

    def encode(self, values: tuple[Any, ...] | list[Any]) -> bytes:
        """The message on the wire, its checksum as it stands in ``values``."""
        return ENCAPSULATION + self.wire.pack(*values)

    def _add(self, prefix: str, layout: Struct, wire: _Format, memory: _Format) -> None:
        memory.begin(layout)
        for item in layout.members:
            path, begin = prefix + item.name, wire.count
            if isinstance(item.kind, str):
                wire.add(item.kind, item.count or 1)
                memory.add(item.kind, item.count or 1)
            elif item.count:
                for i in range(item.count):
                    self._add(f"{path}.{i}.", item.kind, wire, memory)
            else:
                self._add(f"{path}.", item.kind, wire, memory)
            self._places[path] = slice(begin, wire.count)
        memory.end(layout)


@dataclass
class _Format:
    """A format of :mod:`struct` that grows by members, padding written out."""

    aligns_structs: bool
    text: str = ""
    size: int = 0
    count: int = 0

    def add(self, kind: str, count: int) -> None:
        self._pad(_SIZES[kind])
        self.text += f"{count}{kind}"
        self.size += count * _SIZES[kind]
        self.count += count

    def begin(self, layout: Struct) -> None:
        if self.aligns_structs:
            self._pad(layout.alignment)

    end = begin

    def _pad(self, alignment: int) -> None:
        missing = -self.size % alignment
        self.text += f"{missing}x" if missing else ""
        self.size += missing


@dataclass(frozen=True)
class Family:
    """Robots that speak the same messages."""

    name: str
    """As the manufacturer's package of messages is called."""
    state: Struct
    """Message of the topic ``rt/lowstate``."""
    command: Struct
    """Message of the topic ``rt/lowcmd``."""
    fixed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Members of a command that always have the same value."""

    @cached_property
    def state_layout(self) -> Layout:
        """Of the state."""
        return Layout(self.state)

    @cached_property
    def command_layout(self) -> Layout:
        """Of the command."""
        return Layout(self.command)

    @property
    def num_motors(self) -> int:
        """Motors that a message has places for; a robot may use fewer."""
        return next(item.count for item in self.command.members if item.name == "motor_cmd")


def _numbers(kind: str, *names: str) -> Iterator[Member]:
    return (Member(name, kind) for name in names)


_HEAD = (
    Member("head", BYTE, 2),
    Member("level_flag", BYTE),
    Member("frame_reserve", BYTE),
    Member("sn", UINT32, 2),
    Member("version", UINT32, 2),
    Member("bandwidth", UINT16),
)


def _imu(package: str, temperature: str) -> Member:
    return Member(
        "imu_state",
        Struct(
            f"{package}.msg.dds_.IMUState_",
            (
                Member("quaternion", FLOAT32, 4),
                Member("gyroscope", FLOAT32, 3),
                Member("accelerometer", FLOAT32, 3),
                Member("rpy", FLOAT32, 3),
                Member("temperature", temperature),
            ),
        ),
    )


_GO_MOTOR_STATE = Struct(
    "unitree_go.msg.dds_.MotorState_",
    (
        Member("mode", BYTE),
        *_numbers(FLOAT32, "q", "dq", "ddq", "tau_est", "q_raw", "dq_raw", "ddq_raw"),
        Member("temperature", BYTE),
        Member("lost", UINT32),
        Member("reserve", UINT32, 2),
    ),
)
_GO_MOTOR_COMMAND = Struct(
    "unitree_go.msg.dds_.MotorCmd_",
    (Member("mode", BYTE), *_numbers(FLOAT32, "q", "dq", "tau", "kp", "kd"), Member("reserve", UINT32, 3)),
)
_BATTERY = Struct(
    "unitree_go.msg.dds_.BmsState_",
    (
        *_numbers(BYTE, "version_high", "version_low", "status", "soc"),
        Member("current", INT32),
        Member("cycle", UINT16),
        Member("bq_ntc", BYTE, 2),
        Member("mcu_ntc", BYTE, 2),
        Member("cell_vol", UINT16, 15),
    ),
)

GO = Family(
    "unitree_go",
    state=Struct(
        "unitree_go.msg.dds_.LowState_",
        (
            *_HEAD,
            _imu("unitree_go", BYTE),
            Member("motor_state", _GO_MOTOR_STATE, 20),
            Member("bms_state", _BATTERY),
            Member("foot_force", INT16, 4),
            Member("foot_force_est", INT16, 4),
            Member("tick", UINT32),
            Member("wireless_remote", BYTE, 40),
            Member("bit_flag", BYTE),
            Member("adc_reel", FLOAT32),
            *_numbers(BYTE, "temperature_ntc1", "temperature_ntc2"),
            *_numbers(FLOAT32, "power_v", "power_a"),
            Member("fan_frequency", UINT16, 4),
            *_numbers(UINT32, "reserve", "crc"),
        ),
    ),
    command=Struct(
        "unitree_go.msg.dds_.LowCmd_",
        (
            *_HEAD,
            Member("motor_cmd", _GO_MOTOR_COMMAND, 20),
            Member("bms_cmd", Struct("unitree_go.msg.dds_.BmsCmd_", (Member("off", BYTE), Member("reserve", BYTE, 3)))),
            Member("wireless_remote", BYTE, 40),
            Member("led", BYTE, 12),
            Member("fan", BYTE, 2),
            Member("gpio", BYTE),
            *_numbers(UINT32, "reserve", "crc"),
        ),
    ),
    fixed={"head": (0xFE, 0xEF), "level_flag": (0xFF,)},
)
"""Go2: 20 motors, of which it has 12."""

_HG_MOTOR_STATE = Struct(
    "unitree_hg.msg.dds_.MotorState_",
    (
        Member("mode", BYTE),
        *_numbers(FLOAT32, "q", "dq", "ddq", "tau_est"),
        Member("temperature", INT16, 2),
        Member("vol", FLOAT32),
        Member("sensor", UINT32, 2),
        Member("motorstate", UINT32),
        Member("reserve", UINT32, 4),
    ),
)
_HG_MOTOR_COMMAND = Struct(
    "unitree_hg.msg.dds_.MotorCmd_",
    (Member("mode", BYTE), *_numbers(FLOAT32, "q", "dq", "tau", "kp", "kd"), Member("reserve", UINT32)),
)

HG = Family(
    "unitree_hg",
    state=Struct(
        "unitree_hg.msg.dds_.LowState_",
        (
            Member("version", UINT32, 2),
            *_numbers(BYTE, "mode_pr", "mode_machine"),
            Member("tick", UINT32),
            _imu("unitree_hg", INT16),
            Member("motor_state", _HG_MOTOR_STATE, 35),
            Member("wireless_remote", BYTE, 40),
            Member("reserve", UINT32, 4),
            Member("crc", UINT32),
        ),
    ),
    command=Struct(
        "unitree_hg.msg.dds_.LowCmd_",
        (
            *_numbers(BYTE, "mode_pr", "mode_machine"),
            Member("motor_cmd", _HG_MOTOR_COMMAND, 35),
            Member("reserve", UINT32, 4),
            Member("crc", UINT32),
        ),
    ),
)
"""G1: 35 motors, of which it has 29."""
