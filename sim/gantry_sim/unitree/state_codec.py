"""States of a fake robot, encoded as the real one's."""

from __future__ import annotations

from typing import Any

import numpy as np

from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.unitree.codec import SERVO
from gantry_hardware.unitree.crc import message_crc
from gantry_hardware.unitree.models import UnitreeModel
from gantry_sim.unitree.faults import Reading

BATTERY_V = 29.4
"""Voltage that is told."""
IMU_C = 40
"""Temperature of the IMU that is told."""


class StateEncoder:
    """Writes states.

    Args:
        model: The robot of Unitree.
        spec: Its joints.
    """

    def __init__(self, model: UnitreeModel, spec: RobotSpec) -> None:
        self._layout = layout = model.family.state_layout
        self._motors = model.motor_indices(spec)
        self._is_go = model.family.name == "unitree_go"
        template: list[Any] = [0] * layout.size
        if self._is_go:
            for name, numbers in model.family.fixed.items():
                template[layout.place(name)] = numbers
            template[layout.index("power_v")] = BATTERY_V
        template[layout.index("imu_state.temperature")] = IMU_C
        self._template = template
        for motor in self._motors:
            template[layout.index(f"motor_state.{motor}.mode")] = SERVO

    def encode(self, reading: Reading, wrong_crc: bool = False) -> bytes:
        """A state on the wire.

        Args:
            reading: Its contents.
            wrong_crc: Spoil the checksum.
        """
        layout, values = self._layout, list(self._template)
        self._fill("q", reading.pos_rad, values)
        self._fill("dq", reading.vel_rad_s, values)
        self._fill("tau_est", reading.effort_nm, values)
        for name, numbers in (
            ("quaternion", reading.quat_wxyz),
            ("gyroscope", reading.gyro_rad_s),
            ("accelerometer", reading.acc_m_s2),
        ):
            values[layout.place(f"imu_state.{name}")] = numbers.tolist()
        values[layout.place("wireless_remote")] = list(reading.remote)
        values[layout.index("tick")] = reading.tick
        temperatures = np.clip(reading.temperature_c, 0, 255).astype(int)
        if self._is_go:
            self._fill("temperature", temperatures, values)
            self._fill("lost", reading.lost, values)
            values[layout.index("bms_state.soc")] = reading.battery_percent
            values[layout.place("foot_force")] = list(reading.foot_force)
        else:
            column = layout.column("motor_state", "temperature")
            for motor, number in zip(self._motors, temperatures.tolist(), strict=True):
                at = column.start + motor * column.step
                values[at : at + 2] = (number, number)
            values[layout.index("mode_machine")] = reading.mode_machine
            for motor, lost in zip(self._motors, reading.lost.tolist(), strict=True):
                values[layout.index(f"motor_state.{motor}.motorstate")] = 0x40000000 if lost else 0
        values[layout.index("crc")] = message_crc(layout, values) ^ int(wrong_crc)
        return layout.encode(values)

    def _fill(self, member: str, numbers: np.ndarray, values: list[Any]) -> None:
        where = self._layout.column("motor_state", member)
        column = values[where]
        for motor, number in zip(self._motors, numbers.tolist(), strict=True):
            column[motor] = number
        values[where] = column
