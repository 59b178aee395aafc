"""Classic CAN frames over a socket in the layout of Linux (SocketCAN).

Any interface of Linux serves; an adapter with a serial port becomes one by ``slcand``. Tests speak the same frames over
a pair of local sockets, since an interface needs a module of the kernel.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct

from gantry_hardware.errors import RobotError

_FRAME = struct.Struct("=IB3x8s")
_ID_MASK, _FLAGS = 0x7FF, 0xE000_0000
MAX_BYTES = 8
"""Largest size of a frame's data."""


class CanSocket:
    """Sends and receives frames with ids of 11 bits.

    Args:
        sock: A raw CAN socket, or one end of a pair of sockets that keep messages apart.
        name: Of the interface, for messages.
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        self._socket, self.name = sock, name
        sock.setblocking(False)

    def send(self, frame_id: int, data: bytes) -> bool:
        """Send a frame; whether it was taken: not while the interface's queue is full.

        Raises:
            RobotError: If the interface is gone, down, or off the bus.
        """
        try:
            self._socket.send(_FRAME.pack(frame_id, len(data), data.ljust(MAX_BYTES, b"\0")))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return False
            raise RobotError(self._gone_text(error)) from error
        return True

    def receive(self, timeout_s: float) -> tuple[int, bytes] | None:
        """The next frame's id and data, after at most ``timeout_s``; None if there is none.

        Frames with ids of 29 bits, remote and error frames are left out.

        Raises:
            RobotError: If the interface is gone or down.
        """
        try:
            if not select.select([self._socket], [], [], max(0.0, timeout_s))[0]:
                return None
            message = self._socket.recv(_FRAME.size)
        except BlockingIOError:
            return None
        except (OSError, ValueError) as error:
            raise RobotError(self._gone_text(error)) from error
        if not message:
            raise RobotError(f"CAN interface {self.name} is gone: was its adapter unplugged?")
        if len(message) != _FRAME.size:
            return None
        frame_id, size, data = _FRAME.unpack(message)
        return None if frame_id & _FLAGS or size > MAX_BYTES else (frame_id & _ID_MASK, data[:size])

    def close(self) -> None:
        """Release the socket; may be called twice."""
        self._socket.close()

    def _gone_text(self, error: Exception) -> str:
        return (
            f"CAN interface {self.name} does not work any more ({error}): was its adapter unplugged, or is it down "
            f"(ip -details link show {self.name})?"
        )


def open_can(name: str) -> CanSocket:
    """Open an interface such as ``can0``.

    Raises:
        RobotError: If there is no such interface, or no CAN on this machine.
    """
    if not hasattr(socket, "AF_CAN"):
        raise RobotError(f"CAN interface {name}: this Python knows no SocketCAN, which is a part of Linux.")
    try:
        sock = socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW)
    except OSError as error:
        raise RobotError(
            f"CAN interface {name}: this machine has no SocketCAN ({error.strerror}). Expected the kernel modules can "
            "and can_raw: sudo modprobe can_raw"
        ) from error
    try:
        sock.bind((name,))
        if not _is_up(name):
            raise RobotError(
                f"CAN interface {name} is down. Start it: sudo ip link set {name} up type can bitrate 1000000"
            )
    except OSError as error:
        sock.close()
        raise RobotError(
            f"There is no CAN interface {name} ({error.strerror}). Expected one of {_interfaces()}."
        ) from error
    except RobotError:
        sock.close()
        raise
    return CanSocket(sock, name)


def _is_up(name: str) -> bool:
    with open(f"/sys/class/net/{name}/flags", encoding="ascii") as file:
        return bool(int(file.read(), 16) & 1)


def _interfaces() -> str:
    names = []
    for name in sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else []:
        try:
            with open(f"/sys/class/net/{name}/type", encoding="ascii") as file:
                if file.read().strip() == "280":  # ARPHRD_CAN
                    names.append(name)
        except OSError:
            continue
    return ", ".join(names) or "(this machine has none)"
