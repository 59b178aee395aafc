"""A VESC made of software on a pseudo-terminal, with a motor and a servo: for tests, and to try a configuration.

It is strict: what a real one would misunderstand (unknown commands, wrong lengths, servo positions beyond 0 to 1) is
noted in :attr:`FakeVesc.violations`. Its motor stops when commands stop, as a real one's does.
"""

from __future__ import annotations

import math
import os
import pty
import select
import threading
import time
import tty
from dataclasses import dataclass

from gantry_hardware.vesc.frames import FrameReader, frame
from gantry_hardware.vesc.messages import Comm, VescValues, values_payload

STEP_S = 0.005
"""Time between two steps of the motor."""
FOLLOW_S = 0.1
"""Time constant with which the motor follows a speed set-point."""
ERPM_PER_A_S = 1500.0
"""Change of speed by braking current, 1/min per A and s."""
COAST_S = 3.0
"""Time constant with which an undriven motor slows down."""
LENGTHS = {
    Comm.GET_VALUES: 1,
    Comm.SET_CURRENT: 5,
    Comm.SET_CURRENT_BRAKE: 5,
    Comm.SET_RPM: 5,
    Comm.SET_SERVO_POS: 3,
    Comm.ALIVE: 1,
}
"""Size of a command, bytes."""


@dataclass
class FakeFaults:
    """Faults that a test switches on and off."""

    silent: bool = False
    """No answers, as from a VESC without power."""
    wrong_crc: bool = False
    """Answers carry a wrong CRC."""
    cut: bool = False
    """Answers end in their middle."""
    noise: bytes = b""
    """Sent in front of every answer."""
    code: int = 0
    """Fault code in the answers."""


class FakeVesc:
    """A motor controller at the other end of :attr:`path`. Use it as a context manager.

    Args:
        timeout_s: Time without a command after which the motor is let go, or braked.
        timeout_brake_a: Braking current then; 0 lets it roll.
        erpm_limit: Set-points beyond it are violations, 1/min.
    """

    def __init__(self, timeout_s: float = 1.0, timeout_brake_a: float = 0.0, erpm_limit: float = 23250.0) -> None:
        self._timeout_s, self._timeout_brake_a, self._erpm_limit = timeout_s, timeout_brake_a, erpm_limit
        self._fd, self._slave = pty.openpty()
        tty.setraw(self._slave)
        self.path = os.ttyname(self._slave)
        """Port for the driver."""
        self.faults = FakeFaults()
        """What is wrong with it."""
        self.violations: list[str] = []
        """What a driver should not have sent."""
        self.commands: list[tuple[Comm, float]] = []
        """Every command but questions, with its number in the unit of the message: 1/min, A, 0 to 1."""
        self.erpm = 0.0
        """Electrical speed, 1/min."""
        self.servo = 0.5
        """Position of the servo, 0 to 1."""
        self.timed_out = False
        """Whether commands have stopped for longer than the timeout."""
        self._counts = 0.0
        self._mode: tuple[Comm, float] = (Comm.SET_CURRENT, 0.0)
        self._commanded_s = time.monotonic()
        self.reader = FrameReader()
        """Counts refused frames."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake vesc", daemon=True)

    def __enter__(self) -> FakeVesc:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()

    def unplug(self) -> None:
        """Pull the plug: the driver's port reports an error from now on. May be called twice."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2.0)
        for fd in (self._fd, self._slave):
            if fd >= 0:
                os.close(fd)
        self._fd = self._slave = -1

    def put_tachometer(self, counts: int) -> None:
        """Set the count of the motor, for example close to where it wraps around."""
        self._counts = float(counts)

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._stop.is_set():
            try:
                ready = select.select([self._fd], [], [], STEP_S)[0]
                data = os.read(self._fd, 4096) if ready else b""
            except OSError:  # No driver has the port open.
                data = b""
                time.sleep(STEP_S)
            now_s = time.monotonic()
            self._move(now_s, now_s - last_s)
            last_s = now_s
            for payload in self.reader.feed(data):
                self._take(payload, now_s)

    def _move(self, now_s: float, dt_s: float) -> None:
        self.timed_out = now_s - self._commanded_s > self._timeout_s
        mode, value = (Comm.SET_CURRENT_BRAKE, self._timeout_brake_a) if self.timed_out else self._mode
        before = self.erpm
        if mode == Comm.SET_RPM:
            self.erpm += (value - self.erpm) * (1.0 - math.exp(-dt_s / FOLLOW_S))
        else:
            self.erpm *= math.exp(-dt_s / COAST_S)
            if mode == Comm.SET_CURRENT_BRAKE:
                self.erpm = math.copysign(max(0.0, abs(self.erpm) - ERPM_PER_A_S * value * dt_s), self.erpm)
        self._counts += 0.1 * 0.5 * (before + self.erpm) * dt_s

    def _take(self, payload: bytes, now_s: float) -> None:
        kinds = [kind for kind in Comm if kind == payload[0]]
        if not kinds or len(payload) != LENGTHS[kinds[0]]:
            self.violations.append(f"{len(payload)} bytes of kind {payload[0]}")
            return
        kind = kinds[0]
        if kind == Comm.GET_VALUES:
            self._answer()
            return
        number = int.from_bytes(payload[1:], "big", signed=True)
        value = number if kind in (Comm.SET_RPM, Comm.ALIVE) else 1e-3 * number
        self.commands.append((kind, float(value)))
        if kind == Comm.SET_SERVO_POS:
            if not 0.0 <= value <= 1.0:
                self.violations.append(f"servo position {value}")
            self.servo = value
            return  # The firmware does not count it among the commands that keep the motor going.
        self._commanded_s = now_s
        if kind == Comm.SET_RPM and abs(value) > self._erpm_limit:
            self.violations.append(f"speed {value}")
        if kind != Comm.ALIVE:
            self._mode = (kind, float(value))

    def _answer(self) -> None:
        if self.faults.silent:
            return
        counts = (round(self._counts) + 2**31) % 2**32 - 2**31
        values = VescValues(25.0, 0.0, round(self.erpm), 11.1, counts, self.faults.code)
        # Later firmware appends position, id, temperatures, voltages and a status byte.
        data = frame(values_payload(values) + bytes(20))
        if self.faults.wrong_crc:
            data = data[:-2] + bytes([data[-2] ^ 0xFF]) + data[-1:]
        if self.faults.cut:
            data = data[: len(data) // 2]
        os.write(self._fd, self.faults.noise + data)
