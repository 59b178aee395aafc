"""Unitree robots behind the low-level topics of their own computer, as a backend of the control loop like any other."""

from __future__ import annotations

import logging
import math
import time
from typing import NamedTuple

import numpy as np

from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import FloatArray, JointCommand, RobotState
from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import Range, finite
from gantry_hardware.model.capabilities import RobotFault
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.unitree import guard, remote, take_over
from gantry_hardware.unitree.clock import TICK_S
from gantry_hardware.unitree.codec import CommandCodec, StateCodec
from gantry_hardware.unitree.link import Link
from gantry_hardware.unitree.models import unitree_model
from gantry_hardware.unitree.motor_loop import COMMAND_TOPIC, STATE_TOPIC, MotorLoop, Received
from gantry_hardware.unitree.rpc import MotionSwitcher
from gantry_hardware.unitree.watch import CLOCK_BACK, StateWatch, WatchLimits

CLOSING_S = 0.1
"""Time for which damping is sent before the driver falls silent."""
CLOCK_WINDOW_S = 0.3
"""Time over which the robot's clock is compared with this machine's."""
CLOCK_RATIO = 1.5
"""By which factor they may differ in speed over that time, on a machine with other work to do."""

_LOG = logging.getLogger("gantry.unitree")
_RANGES = {
    "connect_timeout_s": Range(0.1, 600.0),
    "release_timeout_s": Range(0.1, 600.0),
    "look_s": Range(0.0, 60.0),
    "ramp_s": Range(0.0, 10.0),
    "command_timeout_s": Range(0.01, 1.0),
}


class _Times(NamedTuple):
    """Durations that can be set, s; see :class:`UnitreeRobot`."""

    connect_s: float
    release_s: float
    look_s: float
    ramp_s: float
    command_s: float
    guard_s: float


class UnitreeRobot:
    """Implements :class:`gantry_hardware.backends.backend.Robot` on ``rt/lowstate`` and ``rt/lowcmd``.

    Connecting only listens. :meth:`take_over` looks at the robot, releases its own controller and begins to send,
    damping first; the loop calls it when the robot shall stand up. From then on commands go out at 500 Hz by a thread
    of the driver. It sends damping instead while there is a fault (:meth:`fault`), and when nothing was written for
    ``command_timeout_s``.

    Args:
        spec: The robot that must be on the other side.
        interface: Network interface to the robot, for example ``eth0``.
        domain: DDS domain; robots use 0.
        connect_timeout_s: How long :meth:`connect` waits for a first state.
        release: Whether :meth:`take_over` releases the robot's own controller; false for a robot without a motion
            switcher, which must be free.
        release_timeout_s: How long that may take, and how long the joints may take to come to rest.
        look_s: How long the released controller may still announce commands.
        ramp_s: Time in which the stiffness grows to what is asked for, after there was none.
        command_timeout_s: Age of the newest command at which damping is sent instead.
        guard_timeout_s: Silence of this process after which its guard process damps the robot; 0 for no guard.
        silent_writers: Whether to tolerate programs that announce commands and send none, as a service of the robot may
            do after it was released; one that sends damps the robot all the same.
        mode_machine: Kind of machine that a G1 must say it is; -1 for whatever it says.
        max_motor_c: See :class:`gantry_hardware.unitree.watch.WatchLimits`, like the options after it.
        min_battery_percent: See there.
        frozen_after_s: See there.
        max_crc_errors: See there.

    Raises:
        UnknownNameError: If the robot is none of Unitree's that is known here, or the machine has no such interface.
        RobotError: If its joints are not the motors' or an option makes no sense.
    """

    realtime = True
    """The robot's clock does not wait."""

    def __init__(
        self,
        spec: RobotSpec,
        *,
        interface: str = "",
        domain: int = 0,
        connect_timeout_s: float = 5.0,
        release: bool = True,
        release_timeout_s: float = 10.0,
        look_s: float = 1.0,
        ramp_s: float = 0.5,
        command_timeout_s: float = 0.1,
        guard_timeout_s: float = guard.TIMEOUT_S,
        silent_writers: bool = False,
        mode_machine: int = -1,
        max_motor_c: float = WatchLimits.max_motor_c,
        min_battery_percent: float = WatchLimits.min_battery_percent,
        frozen_after_s: float = WatchLimits.frozen_after_s,
        max_crc_errors: int = WatchLimits.max_crc_errors,
    ) -> None:
        given = locals()
        for name, (low, high) in _RANGES.items():
            finite(f"Option '{name}'", given[name], low, high, RobotError)
        guard.require_timeout(guard_timeout_s)
        self.spec = spec
        self._model = unitree_model(spec.name)
        self._states, self._commands = StateCodec(self._model, spec), CommandCodec(self._model, spec)
        self._limits = WatchLimits(
            max_motor_c=max_motor_c,
            min_battery_percent=min_battery_percent,
            frozen_after_s=frozen_after_s,
            max_crc_errors=max_crc_errors,
        )
        self._place = (interface, domain)
        self._times = _Times(connect_timeout_s, release_timeout_s, look_s, ramp_s, command_timeout_s, guard_timeout_s)
        self._releases, self._silent_writers, self._mode_machine = release, silent_writers, mode_machine
        self._limiter = CommandLimiter(spec)
        self._damping: dict[int, bytes] = {}
        self._stiff_since_s: float | None = None
        self._last_health: dict[str, float] = {}
        self._link: Link | None = None
        self._loop: MotorLoop | None = None
        self._switcher: MotionSwitcher | None = None

    @property
    def link_text(self) -> str:
        """Network interface and domain, for people."""
        return f"interface '{self._place[0]}', DDS domain {self._place[1]}"

    # -- the Robot interface -------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Listen, and wait for a first state; nothing is sent.

        Raises:
            RobotError: If no state comes, none with a right checksum, or from another kind of machine; the interface
                and the domain are named.
        """
        if self._loop is not None:
            return
        _LOG.info("Looking for a Unitree %s on %s", self._model.name, self.link_text)
        self._link = Link(*self._place)
        try:
            watch = StateWatch(self.spec.joint_names, self._limits)
            self._loop = MotorLoop(
                self._link,
                self._model,
                self._states,
                watch,
                self._damping_bytes,
                self._times.command_s,
                self._silent_writers,
            )
            self._switcher = MotionSwitcher(self._link, self._times.release_s)
            self._loop.start()
            first = self._wait_for_state(self._loop)
            self._require_machine(first)
            self._require_clock(self._loop)
        except BaseException:
            self.close()
            raise

    def now_s(self) -> float:
        """Local monotonic time."""
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Wait for a local monotonic time."""
        time.sleep(max(0.0, time_s - time.monotonic()))

    def read(self) -> RobotState:
        """The newest state, stamped with the time at which the robot made it.

        Raises:
            RobotError: If not connected.
        """
        newest = self._connected().newest
        if newest is None:
            raise RobotError(f"No state has come on '{STATE_TOPIC}' on {self.link_text}.")
        state = newest.state
        return RobotState(
            stamp_s=newest.stamp_s,
            joint_pos_rad=state.pos_rad.copy(),
            joint_vel_rad_s=state.vel_rad_s.copy(),
            joint_effort_nm=state.effort_nm.copy(),
            quat_base_to_world_wxyz=_unit(state.quat_wxyz),
            ang_vel_base_in_base_rad_s=state.gyro_rad_s.copy(),
            lin_acc_base_in_base_m_s2=state.acc_m_s2.copy(),
        )

    def write(self, command: JointCommand) -> JointCommand | None:
        """Send a command from now on, within the spec's limits, stiffness ramped in; returns what is really sent.

        During a fault that is damping. Before :meth:`take_over` nothing is sent: a command that brakes is withheld. So
        is one without any torque while another program announces commands.

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, or if the robot was not taken over and the
                command would move it.
        """
        loop = self._connected()
        limited, _ = self._limiter.clamp(command)
        brakes = not limited.stiffness_nm_rad.any() and not limited.effort_nm.any()
        if not loop.drives:
            if brakes:
                return None
            raise RobotError(f"Robot '{self.spec.name}' was not taken over from its own controller: call take_over().")
        if loop.watch.fault is not None and not brakes:
            limited = JointCommand.damping(self.spec)
        limited = self._ramped(limited)
        newest = loop.newest
        is_limp = brakes and not limited.damping_nm_s_rad.any()
        data = self._commands.encode(limited, 0 if newest is None else newest.state.mode_machine)
        loop.set_command(data, is_limp=is_limp)
        return None if is_limp and loop.crowded else limited

    def close(self) -> None:
        """Damp the robot for a moment if it was taken over, and leave; its own controller is not started again."""
        self._last_health = self.health()
        loop, self._loop = self._loop, None
        link, self._link = self._link, None
        if loop is not None:
            loop.close(CLOSING_S)
        self._switcher = None
        if link is not None:
            link.close()

    # -- capabilities --------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """See :class:`gantry_hardware.model.capabilities.NeedsTakeOver`.

        Raises:
            RobotError: If there is a fault, the robot is not in a state to be commanded, its own controller stays, or
                another program announces commands.
        """
        loop = self._connected()
        try:
            if (fault := self.fault()) is not None:
                raise RobotError(fault.text)
            # Limbs of a robot that is limp already may swing.
            speed_rad_s = math.inf if loop.drives else take_over.MAX_SPEED_RAD_S
            take_over.require_envelope(self.spec, self.read(), self.now_s(), speed_rad_s)
            self._start_guard(loop)
            if self._releases and self._switcher is not None:
                for name in take_over.release(self._switcher, self._times.release_s):
                    _LOG.info("Released the robot's own controller '%s' on %s", name, self.link_text)
            take_over.require_alone(loop, self._times.look_s, self.link_text)
            if not loop.drives:
                loop.drive()
                take_over.wait_for_rest(self.read, self._times.release_s)
            take_over.require_envelope(self.spec, self.read(), self.now_s(), speed_rad_s)
        except RobotError as error:
            raise RobotError(f"Robot '{self.spec.name}' cannot be taken over: {error}") from error

    def refuse_other_commanders(self) -> None:
        """Refuse while another program announces commands, once the robot was taken over.

        Raises:
            RobotError: With what is known of the others.
        """
        loop = self._connected()
        if loop.drives:
            take_over.require_alone(loop, 0.0, self.link_text)

    def fault(self) -> RobotFault | None:
        """See :class:`gantry_hardware.model.capabilities.HasFaults`."""
        return None if self._loop is None else self._loop.watch.fault

    def reset_faults(self) -> None:
        """Forget the fault; a robot's clock that went back is followed from now on."""
        if self._loop is None or (fault := self._loop.watch.fault) is None:
            return
        if fault.kind == CLOCK_BACK:
            self._loop.clock.restart()
        self._loop.watch.reset()

    def take_requests(self) -> list[str]:
        """See :class:`gantry_hardware.model.capabilities.HasRemote`."""
        if self._loop is None:
            return []
        taken, self._loop.requests = self._loop.requests, []
        return taken

    def stick_axes(self) -> FloatArray:
        """See :class:`gantry_hardware.model.capabilities.HasRemote`."""
        newest = None if self._loop is None else self._loop.newest
        return np.zeros(3) if newest is None else remote.sticks(newest.state.remote)

    def health(self) -> dict[str, float]:
        """Temperature of the hottest motor, charge and voltage where they are told, kind of machine, counts of states
        and commands, and the times between two commands; after :meth:`close` as they were.
        """
        if self._loop is None or self._loop.newest is None:
            return dict(self._last_health)
        loop, state = self._loop, self._loop.newest.state
        values = {"hottest_motor_c": float(state.temperature_c.max()), **{k: float(v) for k, v in loop.counts.items()}}
        if self._model.has_battery:
            values |= {"battery_percent": state.battery_percent, "battery_v": state.battery_v}
        if self._model.mode_machine:
            values["mode_machine"] = float(state.mode_machine)
        if loop.guard is not None:
            values["guarded"] = float(not loop.guard.has_ended)
        return values | loop.period_statistics()

    # -- parts ---------------------------------------------------------------------------------------------------

    def _connected(self) -> MotorLoop:
        if self._loop is None:
            raise RobotError(f"The Unitree robot '{self.spec.name}' is not connected; call connect() first.")
        return self._loop

    def _start_guard(self, loop: MotorLoop) -> None:
        """Start the guard process, unless there is one that works or none is wanted."""
        old, timeout_s = loop.guard, self._times.guard_s
        if timeout_s and self._link is not None and (old is None or old.has_ended):
            new = guard.Guard(self._place, COMMAND_TOPIC, self._model.family.name, self._link.key, timeout_s)
            new.wait_until_ready()
            loop.guard = new
            if old is not None:
                old.close()

    def _wait_for_state(self, loop: MotorLoop) -> Received:
        timeout_s = self._times.connect_s
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            if loop.newest is not None:
                return loop.newest
            time.sleep(0.005)
        counts = loop.counts
        if counts["crc_errors"]:
            why = f"{counts['crc_errors']} states came, all with a wrong checksum: other firmware, or a damaged line."
        elif counts["undecodable"]:
            why = f"{counts['undecodable']} messages came that are no {self._model.family.state.name}."
        else:
            why = (
                "Is the robot on, the cable in, and the interface the one to the robot (ip addr; robots have "
                "192.168.123.x)?"
            )
        raise RobotError(f"No state on '{STATE_TOPIC}' for {timeout_s:g} s on {self.link_text}. {why}")

    def _require_machine(self, first: Received) -> None:
        told = first.state.mode_machine
        if self._model.mode_machine and self._mode_machine >= 0 and told != self._mode_machine:
            raise RobotError(
                f"The robot on {self.link_text} says it is mode_machine {told}, expected {self._mode_machine}: another "
                "kind of machine, or one whose waist is locked."
            )

    def _require_clock(self, loop: MotorLoop) -> None:
        """Refuse a robot whose clock does not count milliseconds, by which the age of its states is judged."""
        end_s, speed = time.monotonic() + self._times.connect_s, 0.0
        while time.monotonic() < end_s:
            begin, begin_s = loop.clock.robot_s, time.monotonic()
            time.sleep(CLOCK_WINDOW_S)
            speed = (loop.clock.robot_s - begin) / (time.monotonic() - begin_s)
            if 1.0 / CLOCK_RATIO < speed < CLOCK_RATIO:
                return
        raise RobotError(
            f"The robot's clock on {self.link_text} makes {speed / TICK_S:.0f} ticks in a second, expected "
            f"{1.0 / TICK_S:.0f}: its states cannot be told to be fresh."
        )

    def _damping_bytes(self, mode_machine: int) -> bytes:
        if mode_machine not in self._damping:
            self._damping[mode_machine] = self._commands.encode(JointCommand.damping(self.spec), mode_machine)
        return self._damping[mode_machine]

    def _ramped(self, command: JointCommand) -> JointCommand:
        """The command with its stiffness and efforts as far as they have grown since there was no stiffness."""
        if not command.stiffness_nm_rad.any():
            self._stiff_since_s = None
            return command
        now_s = self.now_s()
        if self._stiff_since_s is None:
            self._stiff_since_s = now_s
        ramp_s = self._times.ramp_s
        share = 1.0 if ramp_s <= 0.0 else min(1.0, (now_s - self._stiff_since_s) / ramp_s)
        if share >= 1.0:
            return command
        damping = np.maximum(command.damping_nm_s_rad, (1.0 - share) * self.spec.damp_damping_nm_s_rad)
        stiffness, effort = share * command.stiffness_nm_rad, share * command.effort_nm
        return JointCommand(command.pos_rad, command.vel_rad_s, effort, stiffness, damping)


def _unit(quat_wxyz: FloatArray) -> FloatArray:
    """The quaternion with norm 1, which single precision does not have; what is far from it is left as it is."""
    norm = float(np.linalg.norm(quat_wxyz))
    return quat_wxyz / norm if abs(norm - 1.0) < 1e-3 else quat_wxyz.copy()
