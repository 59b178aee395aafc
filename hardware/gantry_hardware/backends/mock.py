"""A robot without physics: joints jump to where they are told, the clock stands until it is moved, faults on demand."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import GRAVITY_M_S2, JointCommand, RobotState
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.capabilities import RobotFault
from gantry_hardware.model.spec import RobotSpec

KEPT_COMMANDS = 1000
"""Of what was sent, at least so many commands are kept and at most twice as many."""


class MockRobot:
    """A backend for tests of everything above the motors.

    Joints with a stiffness above zero are at the commanded position at once; the others stay. The base never moves.

    Args:
        spec: The robot to imitate.
        realtime: Follow the machine's monotonic clock; otherwise :meth:`sleep_until` sets the time at once.
        joint_pos_rad: Shape (n,), pose at the start; the default pose if not given.
    """

    simulated = True
    """Moves no robot of metal."""

    def __init__(self, spec: RobotSpec, *, realtime: bool = False, joint_pos_rad: np.ndarray | None = None) -> None:
        self.spec = spec
        self.realtime = realtime
        self.commands: list[JointCommand] = []
        """Everything that was sent, newest last; the list is cut at its front when it grows long."""
        self.clamped: list[str] = []
        """What the limits changed in the newest command."""
        self._limiter = CommandLimiter(spec)
        self._start_pos = spec.array("default_rad") if joint_pos_rad is None else np.array(joint_pos_rad, float)
        self._time_s = 0.0
        self._connected = False
        self._lost = False
        self.reset()

    def reset(self) -> None:
        """Back to the pose of the start, all faults cleared; the clock goes on."""
        self._lost = False
        self._fault: RobotFault | None = None
        self._frozen: RobotState | None = None
        self._overrides: dict[str, Any] = {}
        self._pos = self._start_pos.copy()
        self._vel = np.zeros(self.spec.num_joints)

    def connect(self) -> None:
        """Open the connection.

        Raises:
            RobotError: If :meth:`disconnect` pulled the plug.
        """
        if self._lost:
            raise RobotError("The mock robot is disconnected and does not answer.")
        self._connected = True

    def now_s(self) -> float:
        """Time on the robot's clock."""
        return time.monotonic() if self.realtime else self._time_s

    def sleep_until(self, time_s: float) -> None:
        """Wait for ``time_s``, or in lock-step make it the present; a time in the past changes nothing."""
        if self.realtime:
            time.sleep(max(0.0, time_s - time.monotonic()))
        self._time_s = max(self._time_s, time_s)

    def read(self) -> RobotState:
        """The state now, with the faults that were asked for.

        Raises:
            RobotError: If not connected.
        """
        self._require_connection()
        if self._frozen is not None:
            return self._frozen
        return self._state()

    def write(self, command: JointCommand) -> JointCommand:
        """Take a command and follow it at once; returns it after the limits.

        Raises:
            RobotError: If not connected, or if the command's shapes or numbers are wrong.
        """
        self._require_connection()
        limited, self.clamped = self._limiter.clamp(command)
        self._pos = np.where(limited.stiffness_nm_rad > 0.0, limited.pos_rad, self._pos)
        self.commands.append(limited)
        if len(self.commands) > 2 * KEPT_COMMANDS:
            del self.commands[:KEPT_COMMANDS]
        return limited

    def close(self) -> None:
        """Release the robot."""
        self._connected = False

    def freeze(self) -> None:
        """From now on :meth:`read` repeats the present state with its present stamp, like a link that went silent."""
        self._frozen = self.read()

    def set_nan(self, field: str = "joint_pos_rad", index: int = 0) -> None:
        """From now on one number of a field of the state is not a number."""
        values = np.array(getattr(self._state(), field), dtype=np.float64)
        values[index] = np.nan
        self.override(**{field: values})

    def set_tilt(self, angle_rad: float) -> None:
        """From now on the base is pitched by ``angle_rad`` from upright, at rest."""
        self.override(
            quat_base_to_world_wxyz=np.array([math.cos(angle_rad / 2), 0.0, math.sin(angle_rad / 2), 0.0]),
            lin_acc_base_in_base_m_s2=GRAVITY_M_S2 * np.array([-math.sin(angle_rad), 0.0, math.cos(angle_rad)]),
        )

    def override(self, **fields: Any) -> None:
        """From now on these fields of the state have these values.

        Raises:
            UnknownNameError: If :class:`RobotState` has no such field.
        """
        for name in fields:
            if name not in RobotState.__dataclass_fields__:
                raise UnknownNameError("state field", name, RobotState.__dataclass_fields__)
        self._overrides.update(fields)

    def set_fault(self, kind: str, text: str) -> None:
        """From now on the robot knows of a fault of its own, until :meth:`reset_faults`."""
        self._fault = RobotFault(kind, text)

    def fault(self) -> RobotFault | None:
        """The robot's own fault; see :class:`gantry_hardware.model.capabilities.HasFaults`."""
        return self._fault

    def reset_faults(self) -> None:
        """Forget the robot's own fault."""
        self._fault = None

    def disconnect(self) -> None:
        """From now on reading and writing fail, like a robot that was switched off."""
        self._lost = True

    def _require_connection(self) -> None:
        if self._lost:
            raise RobotError("The mock robot is disconnected and does not answer.")
        if not self._connected:
            raise RobotError("The mock robot is not connected; call connect() first.")

    def _state(self) -> RobotState:
        state = RobotState(
            stamp_s=self.now_s(),
            joint_pos_rad=self._pos.copy(),
            joint_vel_rad_s=self._vel.copy(),
            joint_effort_nm=np.zeros(self.spec.num_joints),
            quat_base_to_world_wxyz=np.array([1.0, 0.0, 0.0, 0.0]),
            ang_vel_base_in_base_rad_s=np.zeros(3),
            lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, GRAVITY_M_S2]),
            pos_base_in_world_m=np.array([0.0, 0.0, self.spec.base_height_m]),
            lin_vel_base_in_base_m_s=np.zeros(3),
            foot_contact=np.ones(len(self.spec.feet), dtype=bool),
        )
        return replace(state, **self._overrides) if self._overrides else state
