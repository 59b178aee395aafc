"""Guard process of the driver: it damps the robot when the process that drives it is killed or stopped.

``python -m gantry_hardware.unitree.guard`` is started by :class:`Guard` and not by hand. It joins the DDS domain at
once and announces commands only when it damps, so that there is one program with commands until then. Driver and
guard share a socket: while the driver sends commands it repeats on it the message that damps the robot.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.files.bounds import finite
from gantry_hardware.unitree.idl import CLASSES
from gantry_hardware.unitree.link import Link, send

TIMEOUT_S = 0.06
"""Silence of the driver after which the guard damps, unless set."""
SHORTEST_S, LONGEST_S = 0.02, 1.0
"""Range of that silence."""
DAMPING_S = 1.0
"""Time for which the guard sends damping."""
PERIOD_S = 0.002
"""Time between two of its commands."""
HELD_UP_S = 0.01
"""A guard that wakes later than this was held up itself, by a machine that may have held up the driver as well."""
GRACE_S = 0.02
"""Time that the driver then gets in addition, once."""
READY_S = 30.0
"""Longest time in which the guard is ready, on a machine with other work to do."""
ENDING_S = 5.0
"""Longest time in which it ends when it is told to."""
_READY, _QUIT, _NOTHING = b"ready", b"quit", b"-"
_LONGEST = 1 << 16
_POLL_S = 0.005

_LOG = logging.getLogger("gantry.unitree")


def require_timeout(timeout_s: float) -> None:
    """Refuse a silence that is out of range; 0 stands for no guard.

    Raises:
        RobotError: If it is.
    """
    if timeout_s != 0:
        finite("Option 'guard_timeout_s' (0 for no guard)", timeout_s, SHORTEST_S, LONGEST_S, RobotError)


class Guard:
    """Starts the process, and is the driver's side of it.

    The process has a session of its own, so that Ctrl-C in a terminal does not end it, and ends with the driver.

    Args:
        place: Network interface and DDS domain.
        topic: Topic of the commands.
        family: Name of the family of messages.
        driver: Participant of the driver, by its key (:attr:`gantry_hardware.unitree.link.Link.key`).
        timeout_s: Silence of the driver after which the guard damps.
    """

    def __init__(self, place: tuple[str, int], topic: str, family: str, driver: str, timeout_s: float) -> None:
        self._topic, self.has_ended = topic, False
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        words = (place[0], str(place[1]), topic, family, driver, str(timeout_s))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *words],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            other.close()
        self.pid = self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the guard has found the robot.

        Raises:
            RobotError: If it does not in time, or ends.
        """
        end_s, told = time.monotonic() + READY_S, b""
        while not told and not self.has_ended and time.monotonic() < end_s:
            told = self._told()
            time.sleep(_POLL_S)
        if told != _READY:
            unknown = "it has ended" if self.has_ended else f"no reader of '{self._topic}' came within {READY_S:g} s"
            why = told.decode() or unknown
            self.close()
            raise RobotError(f"The guard process does not work: {why}. guard_timeout_s=0 does without it.")

    def beat(self, damping: bytes) -> str:
        """Say that the driver is alive.

        Args:
            damping: Message that damps the robot; empty while the robot is left to another program.

        Returns:
            The reason for which the guard has damped the robot; else empty. The guard is told to end then.
        """
        if self.has_ended:
            return ""
        told = self._told()
        if told:
            self.leave()
            return told.decode()
        # A guard that is stopped or held up reads what it has not read yet.
        with contextlib.suppress(OSError):
            self._socket.send(damping or _NOTHING)
        if self.has_ended:
            _LOG.error("The guard process has ended; if this program is killed, the robot must damp by itself")
        return ""

    def close(self) -> None:
        """Tell it to end, and wait until it has; may be called twice."""
        self.leave()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def leave(self) -> None:
        """Tell it to end."""
        self.has_ended = True
        with contextlib.suppress(OSError):
            self._socket.send(_QUIT)

    def _told(self) -> bytes:
        """The guard's next message; empty if there is none, or if it has ended."""
        for _ in range(2):  # A reset, which is told once, comes before the last message.
            try:
                told = self._socket.recv(_LONGEST)
            except BlockingIOError:
                return b""
            except OSError:
                continue
            self.has_ended = not told
            return told
        self.has_ended = True
        return b""


def main(words: list[str]) -> int:
    """Be the guard; the socket is standard input. Returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # A service's SIGTERM comes to all its processes; the driver tells.
    interface, domain, topic, family, driver, timeout_s = words
    driver_side = socket.socket(fileno=sys.stdin.fileno())
    try:
        link = Link(interface, int(domain))
    except GantryError as error:
        driver_side.send(str(error).encode())
        return 1
    try:
        kind = CLASSES[family][1]
        link.prepare(topic, kind)
        gc.disable()
        if _wait_for_reader(driver_side, link, topic, driver):
            driver_side.send(_READY)
            damping, reason = _watch(driver_side, float(timeout_s))
            if damping:
                with contextlib.suppress(OSError):
                    driver_side.send(reason.encode())
                _damp(driver_side, link.writer(topic, kind), kind, damping)
                with contextlib.suppress(OSError):
                    print(reason, file=sys.stderr, flush=True)
    finally:
        signal.alarm(int(ENDING_S))  # Should Cyclone hang, SIGALRM ends the process.
        link.close()
    return 0


def _wait_for_reader(driver_side: socket.socket, link: Link, topic: str, driver: str) -> bool:
    """Wait until the robot is known; false if the driver ends before."""
    driver_side.settimeout(_POLL_S)
    while not [key for key in link.reader_keys(topic) if key != driver]:
        try:
            driver_side.recv(_LONGEST)
        except TimeoutError:
            continue
        except OSError:
            pass
        return False
    return True


def _watch(driver_side: socket.socket, timeout_s: float) -> tuple[bytes, str]:
    """Wait until the driver falls silent or ends: what to send then, and why. Empty if it was told to end."""
    damping, was_held_up = b"", False
    heard_s = due_s = time.monotonic()
    while True:
        driver_side.settimeout(max(0.001, due_s - time.monotonic()) if damping else None)
        try:
            told = driver_side.recv(_LONGEST)
        except TimeoutError:
            now_s = time.monotonic()
            if was_held_up or now_s - due_s < HELD_UP_S:
                return damping, (
                    f"The guard process damped the robot: the driver was silent for {1e3 * (now_s - heard_s):.0f} ms, "
                    f"allowed are {1e3 * timeout_s:g} ms (guard_timeout_s). This program was stopped, or its computer "
                    "is too busy."
                )
            was_held_up, due_s = True, now_s + GRACE_S
            continue
        except OSError:
            told = b""
        if not told:
            return damping, "The guard process damped the robot: the driver has ended."
        if told == _QUIT:
            return b"", ""
        damping, was_held_up, heard_s = b"" if told == _NOTHING else told, False, time.monotonic()
        due_s = heard_s + timeout_s


def _damp(driver_side: socket.socket, writer: Any, kind: Any, damping: bytes) -> None:
    """Send damping for a while; less long if the driver is there again and says that it damps."""
    driver_side.setblocking(False)
    due_s = time.monotonic()
    end_s = due_s + DAMPING_S
    while due_s < end_s:
        with contextlib.suppress(RobotError):
            send(writer, kind, damping)
        with contextlib.suppress(OSError):
            if driver_side.recv(_LONGEST) == _QUIT:
                return
        due_s = max(due_s + PERIOD_S, time.monotonic() - PERIOD_S)
        time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # Leaving the domain at the interpreter's end, Cyclone hangs now and then.
