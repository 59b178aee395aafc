"""DM motors made of software at the other end of a local pair of sockets, which carry CAN frames: for tests.

They are strict: frames that a real motor would misunderstand are noted in :attr:`FakeMotors.violations`. Each turns an
inertia with a little friction; a motor that is not told anything for its timeout reports lost communication and damps.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

import numpy as np

from gantry_hardware.dm_motors import frames
from gantry_hardware.dm_motors.can_bus import CanSocket
from gantry_hardware.dm_motors.frames import MotorCommand, MotorFeedback
from gantry_hardware.dm_motors.links import MotorLink

STEP_S = 0.002
"""Longest step of the mechanics."""
INERTIA_KG_M2 = 0.02
"""Of every motor with what it turns."""
FRICTION_NM_S_RAD = 0.02
"""Viscous friction."""
LOST_DAMPING_NM_S_RAD = 1.0
"""Damping of a motor that has lost communication."""
LOST = 0xD
"""State of such a motor."""
LIMP = MotorCommand(0.0, 0.0, 0.0, 0.0, 0.0)


class FakeMotors:
    """Motors on a bus. Use it as a context manager.

    Args:
        links: Their ids and types.
        pos_rad: Shape (n,), where they are at the start, at their shafts.
        timeout_s: Time without a command after which an enabled motor loses communication.
    """

    def __init__(self, links: Sequence[MotorLink], pos_rad: Sequence[float], timeout_s: float = 0.4) -> None:
        mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._bus, self.bus = CanSocket(mine, "fake"), CanSocket(other, "can0")
        self._links, self._timeout_s = links, timeout_s
        n = len(links)
        self.pos_rad = np.array(pos_rad, dtype=np.float64)
        """Shape (n,), at the shafts."""
        self.vel_rad_s = np.zeros(n)
        """Shape (n,), at the shafts."""
        self.load_nm = np.zeros(n)
        """Shape (n,), torque from outside."""
        self.states = [frames.DISABLED] * n
        """Key of :data:`gantry_hardware.dm_motors.frames.STATES` of each."""
        self.told = [LIMP] * n
        """Newest command of each."""
        self.commands = 0
        """Commands with any gain or torque so far."""
        self.silent: set[int] = set()
        """Places of motors that do not answer."""
        self.stuck: set[int] = set()
        """Places of motors whose fault cannot be cleared."""
        self.garbage = False
        """Whether answers are damaged: too short, or with another motor's number."""
        self.violations: list[str] = []
        """What a driver should not have sent."""
        self._commanded_s = [time.monotonic()] * n
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake motors", daemon=True)

    def __enter__(self) -> FakeMotors:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()
        self.bus.close()

    def unplug(self) -> None:
        """Take the bus away: the driver's socket ends. May be called twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._bus.close()

    def send(self, frame_id: int, data: bytes) -> None:
        """Put a frame on the bus as another device would."""
        with self._lock:
            self._bus.send(frame_id, data)

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._stop.is_set():
            received = self._bus.receive(STEP_S)
            now_s = time.monotonic()
            while last_s < now_s:
                self._move(now_s, min(STEP_S, now_s - last_s))
                last_s = min(now_s, last_s + STEP_S)
            if received is not None:
                self._take(*received, now_s)

    def _move(self, now_s: float, dt_s: float) -> None:
        told = [
            command
            if state == frames.ENABLED
            else MotorCommand(0.0, 0.0, 0.0, LOST_DAMPING_NM_S_RAD * (state == LOST), 0)
            for command, state in zip(self.told, self.states, strict=True)
        ]
        pos, vel, kp, kd, torque = np.array(
            [(t.pos_rad, t.vel_rad_s, t.kp_nm_rad, t.kd_nm_s_rad, t.torque_nm) for t in told]
        ).T
        push = kp * (pos - self.pos_rad) + kd * vel + torque + self.load_nm
        share = dt_s / INERTIA_KG_M2
        self.vel_rad_s = (self.vel_rad_s + share * push) / (1.0 + share * (kd + FRICTION_NM_S_RAD + dt_s * kp))
        self.pos_rad = self.pos_rad + dt_s * self.vel_rad_s
        for i, state in enumerate(self.states):
            if state == frames.ENABLED and now_s - self._commanded_s[i] > self._timeout_s:
                self.states[i] = LOST

    def _take(self, frame_id: int, data: bytes, now_s: float) -> None:
        if len(data) != frames.FRAME_BYTES:
            self.violations.append(f"{len(data)} bytes to {frame_id:#x}")
            return
        asked = int.from_bytes(data[:2], "little") if frame_id == frames.QUERY_ID else frame_id
        places = [i for i, link in enumerate(self._links) if link.motor_id == asked]
        if not places:
            self.violations.append(f"a frame to {asked:#x}, which is no motor")
            return
        i = places[0]
        if frame_id == frames.QUERY_ID:
            if data[2:] != bytes([frames.REFRESH]) + bytes(5):
                self.violations.append(f"question {data.hex()}")
                return
        elif data == frames.ENABLE:
            self._switch(i, frames.ENABLED, now_s)
        elif data == frames.DISABLE:
            self._switch(i, frames.DISABLED, now_s)
        elif data == frames.CLEAR_ERROR:
            if i not in self.stuck:
                self.states[i] = frames.DISABLED
        else:
            self.told[i] = frames.read_command(data, self._links[i].limits)
            self._commanded_s[i] = now_s
            told = self.told[i]
            self.commands += bool(told.kp_nm_rad or told.kd_nm_s_rad or abs(told.torque_nm) > 0.01)
        self._answer(i)

    def _switch(self, place: int, state: int, now_s: float) -> None:
        if self.states[place] in (frames.DISABLED, frames.ENABLED) and self.states[place] != state:
            self.states[place], self.told[place], self._commanded_s[place] = state, LIMP, now_s

    def _answer(self, place: int) -> None:
        if place in self.silent:
            return
        link = self._links[place]
        number = link.motor_id + 1 if self.garbage else link.motor_id
        feedback = MotorFeedback(
            self.states[place], number & 0xF, float(self.pos_rad[place]), float(self.vel_rad_s[place]), 0.0, 30, 32
        )
        data = frames.feedback_data(feedback, link.limits)
        self.send(link.answers_as, data[:5] if self.garbage and place % 2 else data)
