"""Remote controller of a Unitree robot, as its state carries it: 40 bytes."""

from __future__ import annotations

import struct

import numpy as np

from gantry_hardware.unitree.codec import FloatArray

BUTTONS = ("R1", "L1", "start", "select", "R2", "L2", "F1", "F2", "A", "B", "X", "Y", "up", "right", "down", "left")
"""Buttons in the order of their bits, beginning with bit 0 of byte 2."""
STOP = ("L2", "B")
"""Buttons that damp the robot."""
REQUESTS = {
    ("L2", "A"): "stand",
    ("start",): "start",
    ("select",): "stop",
    ("L2", "select"): "reset",
}
"""Buttons to requests of the safety machine."""
_AXES = struct.Struct("<fff4xf")
_AXES_AT = 4
DEAD_ZONE = 0.1
"""Deflection of a stick that counts as none."""


def pressed(remote: bytes) -> frozenset[str]:
    """Names of the buttons that are pressed."""
    bits = remote[2] | remote[3] << 8
    return frozenset(name for i, name in enumerate(BUTTONS) if bits >> i & 1)


def sticks(remote: bytes) -> FloatArray:
    """Deflection (3,) in [-1, 1]: forward and left of the left stick, turning left of the right one."""
    left_x, right_x, _, left_y = _AXES.unpack_from(remote, _AXES_AT)
    axes = np.array([left_y, -left_x, -right_x])
    axes = np.clip(np.where(np.isfinite(axes), axes, 0.0), -1.0, 1.0)
    return np.where(np.abs(axes) < DEAD_ZONE, 0.0, axes)


def remote_bytes(buttons: tuple[str, ...] = (), axes: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> bytes:
    """Bytes that a remote sends: the inverse of :func:`pressed` and :func:`sticks`."""
    data = bytearray(40)
    bits = sum(1 << BUTTONS.index(name) for name in buttons)
    data[2:4] = bits.to_bytes(2, "little")
    _AXES.pack_into(data, _AXES_AT, -axes[1], -axes[2], 0.0, axes[0])
    return bytes(data)


class RemoteButtons:
    """Turns pressed buttons into requests, once per press; of several that fit the one with the most buttons counts."""

    def __init__(self) -> None:
        self._before: str | None = None
        self.stop = False
        """Whether the buttons that damp are pressed now."""

    def update(self, remote: bytes) -> str | None:
        """A request that has just been made, or None."""
        if not (remote[2] or remote[3]):
            self._before, self.stop = None, False
            return None
        down = pressed(remote)
        self.stop = down.issuperset(STOP)
        fitting = [keys for keys in REQUESTS if down == set(keys)]
        now = REQUESTS[max(fitting, key=len)] if fitting else None
        new, self._before = now != self._before, now
        return now if new else None
