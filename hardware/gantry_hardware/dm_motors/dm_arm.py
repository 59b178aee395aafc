"""An arm of DM motors on a CAN bus, as a backend of the control loop: impedance commands out, joint readings in."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.start_ramp import StartRamp
from gantry_hardware.backends.state import JointCommand, RobotState, fixed_base_state
from gantry_hardware.dm_motors import frames
from gantry_hardware.dm_motors.can_bus import CanSocket, open_can
from gantry_hardware.dm_motors.chain import MotorChain
from gantry_hardware.dm_motors.links import clipped, motor_links
from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.gravity import GravityModel
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

LOOK_S = 0.2
"""Time for which :meth:`DmArm.connect` listens for other commanders before it sends anything."""
ALONE_S = 1.0
"""Time after another's command for which this one commands nothing."""
ENABLE_S = 0.5
"""Time within which a motor must be on after it was told to."""
AT_REST_RAD_S = 0.05
"""Speed below which a joint that is let down has come to rest, rad/s, of a sliding joint m/s."""
REST_S = 0.3
"""Time for which it must be at rest."""
JOIN_S = 2.0
"""Longest wait for the thread's end, besides letting the arm down."""


class DmArm:
    """Implements :class:`gantry_hardware.backends.backend.Robot` for an arm of DM motors.

    A thread exchanges frames with all motors at ``bus_hz``. Until the first command with any stiffness, damping or
    torque the motors stay as they are, and are only asked. The first command is the measured pose, from which the arm
    moves at most at ``start_speed_rad_s`` until it has caught up. If no command has come for ``command_timeout_s`` the
    arm is held where it is, its gripper as it was told. :meth:`close` lets the arm down with damping alone and
    switches the motors off. Should the whole process die, the motors' own timeout remains (as delivered 0.4 s, after
    which they damp).

    Args:
        spec: The arm.
        channel: CAN interface.
        motors: YAML file with a :class:`gantry_hardware.dm_motors.links.DmArmCfg`; empty for a robot that is known.
        gravity: Add the torque that gravity asks of each joint to every command with stiffness, as in simulation.
        bus_hz: Rate of the exchange.
        command_timeout_s: Age of the newest command from which the arm is held.
        start_speed_rad_s: Largest speed when commands begin, of sliding joints m/s.
        lower_s: Longest time for which :meth:`close` lets the arm down.
        connect_timeout_s: How long :meth:`connect` waits for all motors.
        bus: An open bus to use instead of ``channel``; it is not closed.

    Raises:
        GantryError: If the robot's motors or masses are not known, or an option is out of range.
    """

    def __init__(
        self,
        spec: RobotSpec,
        *,
        channel: str = "can0",
        motors: str = "",
        gravity: bool = True,
        bus_hz: float = 200.0,
        command_timeout_s: float = 0.2,
        start_speed_rad_s: float = 0.5,
        lower_s: float = 4.0,
        connect_timeout_s: float = 2.0,
        bus: CanSocket | None = None,
    ) -> None:
        self.spec = spec
        self.links = motor_links(spec, motors)
        """Motors in the order of the joints."""
        self._channel, self._given_bus = channel, bus
        self._period_s = 1.0 / finite("bus_hz", bus_hz, 10.0, 1000.0, RobotError)
        self._command_timeout_s = finite("command_timeout_s", command_timeout_s, 0.02, 10.0, RobotError)
        self._lower_s = finite("lower_s", lower_s, 0.0, 60.0, RobotError)
        self._connect_timeout_s = finite("connect_timeout_s", connect_timeout_s, 0.1, 60.0, RobotError)
        self._gravity = GravityModel(spec) if gravity else None
        self._limiter = CommandLimiter(spec)
        self._ramp = StartRamp(start_speed_rad_s, command_timeout_s)
        self._chain: MotorChain | None = None
        self._bus: CanSocket | None = None
        self._lock = threading.Lock()
        self._command: tuple[JointCommand, float] | None = None
        self._failure = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.holds = 0
        """Times that the arm was held because commands had stopped."""

    def connect(self) -> None:
        """Open the bus, listen for other commanders, and wait for an answer of every motor; nothing moves.

        Raises:
            RobotError: If there is no such bus, another program commands the motors, a motor does not answer, or one
                reports a fault that does not end by being cleared.
        """
        if self._chain is not None:
            return
        self._bus = self._given_bus or open_can(self._channel)
        self._chain = chain = MotorChain(self._bus, self.links, self.spec.joint_names)
        self._command, self._failure = None, ""
        self._ramp.restart()
        try:
            chain.listen(time.monotonic() + LOOK_S)
            self.refuse_other_commanders()
            deadline_s = time.monotonic() + self._connect_timeout_s
            while chain.missing_text() and time.monotonic() < deadline_s:
                chain.query(time.monotonic() + 0.05)
            if text := chain.missing_text():
                raise RobotError(f"{text[0].upper()}{text[1:]} Waited {self._connect_timeout_s:g} s.")
            while chain.fault_text() and time.monotonic() < deadline_s:
                chain.tell_all(frames.CLEAR_ERROR, time.monotonic() + 0.05)
                chain.query(time.monotonic() + 0.05)
            if text := chain.fault_text():
                raise RobotError(f"{text[0].upper()}{text[1:]} It could not be cleared.")
        except RobotError:
            self._release()
            raise
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(chain,), name="dm motors", daemon=True)
        self._thread.start()

    def now_s(self) -> float:
        """Local monotonic time."""
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Wait for a local monotonic time."""
        time.sleep(max(0.0, time_s - time.monotonic()))

    def read(self) -> RobotState:
        """The newest state, stamped with the time of its oldest joint: one motor that is silent makes all of it old.

        Raises:
            RobotError: If not connected, if the bus is gone, or if a motor reports a fault or has switched itself off.
        """
        chain = self._working_chain()
        if text := chain.fault_text():
            raise RobotError(f"{text[0].upper()}{text[1:]}")
        readings = [item for item in chain.newest if item is not None]
        joints = np.array([link.joint(reading) for link, (reading, _) in zip(self.links, readings, strict=True)])
        return fixed_base_state(chain.oldest_s(), *joints.T.copy())

    def write(self, command: JointCommand) -> JointCommand | None:
        """Take a command for the next exchange and return what is sent, within the limits of joints and motors.

        The first command that is not limp switches the motors on. A limp one is sent once they are on, and withheld
        before.

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, if the bus is gone, if a motor reports a
                fault, if the state is too old to begin from, or if another program commands the motors.
        """
        limited, _ = self._limiter.clamp(command)
        self._working_chain()
        self.refuse_other_commanders()
        state, now_s = self.read(), time.monotonic()
        if self._command is None and _is_limp(limited):
            return None
        if self._ramp.starts_anew(now_s) and now_s - state.stamp_s > self._command_timeout_s:
            raise RobotError(
                f"The newest reading of all motors on {self._channel} is {now_s - state.stamp_s:.2f} s old; the arm "
                f"begins only from one younger than {self._command_timeout_s:g} s."
            )
        limited = limited.with_pos(self._ramp.limit(limited.pos_rad, state.joint_pos_rad, now_s))
        sent = self._clipped(self._with_gravity(limited, state.joint_pos_rad))
        with self._lock:
            self._command = (sent, now_s)
        return sent

    def refuse_other_commanders(self) -> None:
        """Refuse while another program on this machine or another device on the bus commands the motors.

        Raises:
            RobotError: With the id that it commands.
        """
        chain = self._chain
        if chain is not None and time.monotonic() - chain.foreign_s < ALONE_S:
            raise RobotError(
                f"Another program or device commands the motors on {self._channel} too (frames with id "
                f"{chain.foreign_id:#04x} that this one has not sent). Stop it."
            )

    def close(self) -> None:
        """Let the arm down with damping alone, switch the motors off and release the bus; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join(JOIN_S + self._lower_s)
        self._release()

    def statistics(self) -> dict[str, int]:
        """Frames that were refused or not taken by the interface, and holds, so far."""
        chain = self._chain
        counts = {} if chain is None else {"refused frames": chain.refused, "unsent frames": chain.unsent}
        return {**counts, "holds": self.holds}

    def _working_chain(self) -> MotorChain:
        if self._chain is None:
            raise RobotError(f"The arm on {self._channel} is not connected; call connect() first.")
        if self._failure:
            raise RobotError(self._failure)
        return self._chain

    def _with_gravity(self, command: JointCommand, pos: FloatArray) -> JointCommand:
        if self._gravity is None or not command.stiffness_nm_rad.any():
            return command
        effort = command.effort_nm + np.where(command.stiffness_nm_rad > 0.0, self._gravity.effort(pos), 0.0)
        limit = self.spec.array("effort_limit_nm")
        return JointCommand(
            command.pos_rad,
            command.vel_rad_s,
            np.clip(effort, -limit, limit),
            command.stiffness_nm_rad,
            command.damping_nm_s_rad,
        )

    def _clipped(self, command: JointCommand) -> JointCommand:
        """The command as the motors take it, in the joints' numbers."""
        rows = zip(
            command.pos_rad,
            command.vel_rad_s,
            command.effort_nm,
            command.stiffness_nm_rad,
            command.damping_nm_s_rad,
            strict=True,
        )
        told = [clipped(link, link.command(*map(float, row))) for link, row in zip(self.links, rows, strict=True)]
        return JointCommand(*np.array(told).T.copy())

    def _run(self, chain: MotorChain) -> None:
        try:
            self._exchange_all(chain)
            if self._command is not None:
                self._let_down(chain)
        except RobotError as error:
            self._failure = str(error)

    def _exchange_all(self, chain: MotorChain) -> None:
        next_s = time.monotonic()
        enabled_s: float | None = None
        held: JointCommand | None = None
        while not self._stop.is_set():
            next_s = max(next_s + self._period_s, time.monotonic() + 0.2 * self._period_s)
            with self._lock:
                newest = self._command
            if newest is None:
                chain.query(next_s)
            else:
                now_s = time.monotonic()
                enabled_s = now_s if enabled_s is None else enabled_s
                self._keep_enabled(chain, now_s - enabled_s)
                late = bool(self._failure) or now_s - newest[1] > self._command_timeout_s
                if late and held is None:
                    self.holds += 1
                held = (held or self._hold(chain, newest[0])) if late else None
                self._send(chain, newest[0] if held is None else held, next_s)
            time.sleep(max(0.0, next_s - time.monotonic()))

    def _keep_enabled(self, chain: MotorChain, age_s: float) -> None:
        """Switch on what is off at the start; later a motor that is off has lost its power, and the others are held."""
        off = [] if self._failure else chain.disabled()
        if off and age_s > ENABLE_S:
            self._failure = f"The {chain.motor_text(off[0])} on {self._channel} is off although it was switched on."
        elif off:
            chain.tell_all(frames.ENABLE, time.monotonic() + self._period_s, off)

    def _hold(self, chain: MotorChain, last: JointCommand) -> JointCommand:
        """The pose of now, a gripper as it was told last."""
        pos = np.array([link.joint(item[0])[0] for link, item in zip(self.links, chain.newest, strict=True) if item])
        gripper = [name in self.spec.gripper_joints for name in self.spec.joint_names]
        hold = JointCommand.position(self.spec, np.where(gripper, last.pos_rad, pos))
        return self._clipped(self._with_gravity(hold, pos))

    def _let_down(self, chain: MotorChain) -> None:
        """Damp until the joints are at rest, then switch the motors off."""
        began_s = moved_s = next_s = time.monotonic()
        damping = self._clipped(JointCommand.damping(self.spec))
        while (now_s := time.monotonic()) - began_s < self._lower_s and now_s - moved_s < REST_S:
            next_s = max(next_s + self._period_s, now_s + 0.2 * self._period_s)
            self._send(chain, damping, next_s)
            speeds = [link.joint(item[0])[1] for link, item in zip(self.links, chain.newest, strict=True) if item]
            if max(map(abs, speeds), default=math.inf) > AT_REST_RAD_S:
                moved_s = now_s
            time.sleep(max(0.0, next_s - time.monotonic()))
        chain.tell_all(frames.DISABLE, time.monotonic() + 0.05)

    def _send(self, chain: MotorChain, command: JointCommand, until_s: float) -> None:
        rows = zip(
            command.pos_rad,
            command.vel_rad_s,
            command.effort_nm,
            command.stiffness_nm_rad,
            command.damping_nm_s_rad,
            strict=True,
        )
        commands = [link.command(*map(float, row)) for link, row in zip(self.links, rows, strict=True)]
        chain.command(commands, until_s)

    def _release(self) -> None:
        bus, self._bus, self._chain = self._bus, None, None
        if bus is not None and self._given_bus is None:
            bus.close()


def _is_limp(command: JointCommand) -> bool:
    return not (command.stiffness_nm_rad.any() or command.damping_nm_s_rad.any() or command.effort_nm.any())
