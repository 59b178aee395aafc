"""States and commands of one robot, between the numbers of a message and arrays in the order of its spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.unitree.crc import message_crc
from gantry_hardware.unitree.models import UnitreeModel

FloatArray = NDArray[np.float64]

POS_STOP = 2.146e9
"""Target position that means: no position term."""
VEL_STOP = 16000.0
"""Target velocity that means: no velocity term."""
SERVO = 1
"""Mode of a motor that obeys."""
LOST_BITS = 0x40000000 | 0x80000000
"""Bits of a G1 motor's errors that say that it does not answer."""


@dataclass(frozen=True)
class LowState:
    """One state as it came, n joints in the order of the spec."""

    tick: int
    """The robot's clock, milliseconds."""
    mode_machine: int
    """Kind of machine; 0 where the robot does not tell."""
    quat_wxyz: FloatArray
    """Shape (4,), base to world."""
    gyro_rad_s: FloatArray
    """Shape (3,), in the base frame."""
    acc_m_s2: FloatArray
    """Shape (3,), in the base frame, gravity reaction included."""
    pos_rad: FloatArray
    """Shape (n,)."""
    vel_rad_s: FloatArray
    """Shape (n,)."""
    effort_nm: FloatArray
    """Shape (n,), estimated by the motors."""
    temperature_c: FloatArray
    """Shape (n,), of the motors, the hotter one where there are two."""
    lost: NDArray[np.int64]
    """Shape (n,), messages that a motor missed since it was switched on; zeros where the robot does not tell."""
    errors: NDArray[np.int64]
    """Shape (n,), error bits of the motors; zeros where the robot does not tell."""
    battery_percent: float
    """Charge; NaN where the state does not tell."""
    battery_v: float
    """Voltage; NaN where the state does not tell."""
    remote: bytes
    """Remote controller, 40 bytes."""
    body: tuple[Any, ...]
    """IMU and joints as they came, to notice that nothing changes."""


class StateCodec:
    """Reads the states of a robot.

    Args:
        model: The robot of Unitree.
        spec: Its joints.
    """

    def __init__(self, model: UnitreeModel, spec: RobotSpec) -> None:
        self._model = model
        self._layout = layout = model.family.state_layout
        self._motors = np.array(model.motor_indices(spec))
        self._columns = {name: layout.column("motor_state", name) for name in ("q", "dq", "tau_est")}
        imu = {name: layout.place(f"imu_state.{name}") for name in ("quaternion", "gyroscope", "accelerometer")}
        self._quat, self._gyro, self._acc = imu.values()
        self._remote = layout.place("wireless_remote")
        self._tick, self._crc = layout.index("tick"), layout.index("crc")
        self._is_go = model.family.name == "unitree_go"

    def decode(self, data: bytes) -> tuple[LowState, bool]:
        """A state, and whether its checksum is right.

        Raises:
            ValueError: If the bytes are no state of this robot.
        """
        values = self._layout.decode(data)
        column = {name: self._column(values, where) for name, where in self._columns.items()}
        if self._is_go:
            temperature = self._of_joints(values, "temperature")
            lost, errors = self._of_joints(values, "lost"), np.zeros(len(self._motors), np.int64)
            battery = float(values[self._layout.index("bms_state.soc")])
            volts, machine = float(values[self._layout.index("power_v")]), 0
        else:
            hottest = self._layout.column("motor_state", "temperature")
            second = slice(hottest.start + 1, hottest.stop + 1, hottest.step)
            temperature = np.maximum(self._column(values, hottest), self._column(values, second))
            lost, errors = np.zeros(len(self._motors), np.int64), self._of_joints(values, "motorstate")
            battery = volts = float("nan")
            machine = int(values[self._layout.index("mode_machine")])
        state = LowState(
            tick=values[self._tick],
            mode_machine=machine,
            quat_wxyz=np.array(values[self._quat], np.float64),
            gyro_rad_s=np.array(values[self._gyro], np.float64),
            acc_m_s2=np.array(values[self._acc], np.float64),
            pos_rad=column["q"],
            vel_rad_s=column["dq"],
            effort_nm=column["tau_est"],
            temperature_c=temperature.astype(np.float64),
            lost=lost,
            errors=errors,
            battery_percent=battery,
            battery_v=volts,
            remote=bytes(values[self._remote]),
            body=(values[self._gyro], values[self._acc], values[self._columns["q"]]),
        )
        return state, values[self._crc] == message_crc(self._layout, values)

    def _of_joints(self, values: tuple[Any, ...], member: str) -> NDArray[np.int64]:
        return np.array(values[self._layout.column("motor_state", member)], np.int64)[self._motors]

    def _column(self, values: tuple[Any, ...], where: slice) -> FloatArray:
        return np.array(values[where], np.float64)[self._motors]


class CommandCodec:
    """Writes the commands of a robot.

    Args:
        model: The robot of Unitree.
        spec: Its joints.
    """

    def __init__(self, model: UnitreeModel, spec: RobotSpec) -> None:
        self._layout = layout = model.family.command_layout
        self._motors = model.motor_indices(spec)
        self._columns = {name: layout.column("motor_cmd", name) for name in ("q", "dq", "tau", "kp", "kd")}
        template: list[Any] = [0] * layout.size
        for name, numbers in model.family.fixed.items():
            template[layout.place(name)] = numbers
        count = model.family.num_motors
        template[layout.column("motor_cmd", "mode")] = [SERVO] * count
        template[self._columns["q"]] = [POS_STOP] * count
        template[self._columns["dq"]] = [VEL_STOP] * count
        self._template, self._count = template, count
        self._machine = layout.index("mode_machine") if model.mode_machine else None
        self._crc = layout.index("crc")

    def encode(self, command: JointCommand, mode_machine: int = 0) -> bytes:
        """The message of a command. A joint without stiffness gets no target position, one without damping no velocity.

        Args:
            command: In the spec's order, checked and limited.
            mode_machine: Kind of machine that the robot says it is.
        """
        values = list(self._template)
        has_pos, has_vel = command.stiffness_nm_rad > 0.0, command.damping_nm_s_rad > 0.0
        for name, numbers in (
            ("q", np.where(has_pos, command.pos_rad, POS_STOP)),
            ("dq", np.where(has_vel, command.vel_rad_s, VEL_STOP)),
            ("tau", command.effort_nm),
            ("kp", command.stiffness_nm_rad),
            ("kd", command.damping_nm_s_rad),
        ):
            column = values[self._columns[name]]
            for motor, number in zip(self._motors, numbers.tolist(), strict=True):
                column[motor] = number
            values[self._columns[name]] = column
        if self._machine is not None:
            values[self._machine] = mode_machine
        values[self._crc] = message_crc(self._layout, values)
        return self._layout.encode(values)
