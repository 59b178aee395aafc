"""Strict reading of the commands that a Unitree robot gets."""

from __future__ import annotations

from typing import Any

import numpy as np

from gantry_hardware.backends.limits import gain_limits
from gantry_hardware.backends.state import FloatArray, JointCommand
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.unitree.codec import POS_STOP, SERVO, VEL_STOP
from gantry_hardware.unitree.crc import message_crc
from gantry_hardware.unitree.models import UnitreeModel
from gantry_sim.unitree.ledger import Ledger

POS_MARGIN_RAD = 0.05
"""By which a target may be beyond a joint's limit."""
SLACK = 1.001
"""Factor on limits, for single precision."""
MAX_JUMP = 2.0
"""Torque of the first stiff command after none, in units of the joint's limit."""


class CommandJudge:
    """Decodes commands, refuses what a robot would not obey, and notes what it would be hurt by.

    Args:
        model: The robot of Unitree.
        spec: Its joints and limits.
        ledger: Takes notes.
    """

    def __init__(self, model: UnitreeModel, spec: RobotSpec, ledger: Ledger) -> None:
        self._model, self._spec, self._ledger = model, spec, ledger
        self._layout = layout = model.family.command_layout
        self._motors = np.array(model.motor_indices(spec))
        self._columns = {name: layout.column("motor_cmd", name) for name in ("mode", "q", "dq", "tau", "kp", "kd")}
        self._lower = spec.array("lower_rad") - POS_MARGIN_RAD
        self._upper = spec.array("upper_rad") + POS_MARGIN_RAD
        self._effort, self._speed = spec.array("effort_limit_nm"), spec.array("velocity_limit_rad_s")
        self._gains = gain_limits(spec)
        self._was_stiff = False

    def relax(self) -> None:
        """The motors hold nothing any more: the next stiff command is a first one."""
        self._was_stiff = False

    def read(self, data: bytes, mode_machine: int, pos_rad: FloatArray, at_ms: int) -> JointCommand | None:
        """The command that the motors obey, or None for one that is refused.

        Args:
            data: As it came.
            mode_machine: Kind of machine that this robot is.
            pos_rad: Shape (n,), where its joints are.
            at_ms: On the robot's clock.
        """
        try:
            values = self._layout.decode(data)
        except ValueError as error:
            self._ledger.refuse("undecodable", str(error), at_ms)
            return None
        crc = message_crc(self._layout, values)
        if values[self._layout.index("crc")] != crc:
            self._ledger.refuse("crc", f"the checksum is {values[self._layout.index('crc')]:#x}, not {crc:#x}", at_ms)
            return None
        if self._model.mode_machine and (told := values[self._layout.index("mode_machine")]) != mode_machine:
            self._ledger.refuse("mode_machine", f"the command is for machine {told}, this is {mode_machine}", at_ms)
            return None
        for name, expected in self._model.family.fixed.items():
            if values[self._layout.place(name)] != expected:
                self._ledger.remarks[name] += 1
        columns = {name: np.array(values[where], np.float64)[self._motors] for name, where in self._columns.items()}
        bad = next((name for name, numbers in columns.items() if not np.isfinite(numbers).all()), None)
        if bad is not None:
            self._ledger.refuse("not_finite", f"'{bad}' holds a number that is not finite", at_ms)
            return None
        return self._command(columns, pos_rad, at_ms)

    def _command(self, columns: dict[str, Any], pos_rad: FloatArray, at_ms: int) -> JointCommand:
        """The law of the motors, with notes of what breaks a limit."""
        obeys = columns["mode"] == SERVO
        self._note("mode", ~obeys, "is not in mode 1 and gives no torque", at_ms)
        q, dq, tau, kp, kd = (columns[name] for name in ("q", "dq", "tau", "kp", "kd"))
        no_pos, no_vel = q >= 0.99 * POS_STOP, dq >= 0.99 * VEL_STOP
        self._note("stop_value", (no_pos & (kp > 0.0)) | (no_vel & (kd > 0.0)), "has a gain on a stop value", at_ms)
        kp, kd = np.where(obeys & ~no_pos, kp, 0.0), np.where(obeys & ~no_vel, kd, 0.0)
        stiff = kp > 0.0
        self._note("position_limit", stiff & ((q < self._lower) | (q > self._upper)), "is told beyond its range", at_ms)
        too_fast = (kd > 0.0) & (np.abs(dq) > SLACK * self._speed)
        self._note("velocity_limit", too_fast, "is told to be too fast", at_ms)
        self._note("torque_limit", np.abs(tau) > SLACK * self._effort, "is told too large a torque", at_ms)
        too_stiff = (kp > SLACK * self._gains[0]) | (kd > SLACK * self._gains[1])
        self._note("gain_limit", too_stiff | (kp < 0.0) | (kd < 0.0), "has a gain out of range", at_ms)
        if not self._was_stiff and stiff.any():
            jump = stiff & (kp * np.abs(q - pos_rad) > MAX_JUMP * self._effort)
            self._note("jump", jump, "is told to be far away by the first stiff command", at_ms)
        self._was_stiff = bool(stiff.any())
        return JointCommand(
            np.where(stiff, q, self._spec.array("default_rad")),
            np.where(kd > 0.0, dq, 0.0),
            np.where(obeys, tau, 0.0),
            kp,
            kd,
        )

    def _note(self, kind: str, bad: np.ndarray, what: str, at_ms: int) -> None:
        if bad.any():
            self._ledger.violate(kind, f"'{self._spec.joint_names[int(np.argmax(bad))]}' {what}", at_ms)


def is_damping(command: JointCommand) -> bool:
    """Whether a command only brakes."""
    has_torque = command.stiffness_nm_rad.any() or command.effort_nm.any()
    return bool(not has_torque and command.damping_nm_s_rad.any())
