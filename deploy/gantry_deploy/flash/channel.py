"""Messages between a flash and the robot, over the standard streams of one SSH connection.

A message is one line of JSON with a ``kind``. After the robot has said what it has (``have``), the missing bytes of all
files follow in the order of the manifest, without any framing.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

from gantry_deploy.errors import FlashError
from gantry_hardware.files.json_file import parse_json_object

PROTOCOL = 1
"""Version of the messages."""
MAX_LINE = 4 * 2**20
"""Longest message, bytes."""
_PIECE = 2**16


class CutError(FlashError):
    """The connection ended in the middle, or nothing came for too long."""


class Channel:
    """Messages and bytes over a pair of file descriptors.

    Args:
        source: Descriptor to read from.
        sink: Descriptor to write to.
        patience_s: Longest time without a byte from the other side; None for any.
    """

    def __init__(self, source: int, sink: int, patience_s: float | None = None) -> None:
        self._source, self._sink, self._patience_s = source, sink, patience_s
        self._buffer = b""

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message.

        Raises:
            CutError: If the connection is gone.
        """
        self.send_bytes(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Send plain bytes.

        Raises:
            CutError: If the connection is gone.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._sink, view) :]
            except OSError as error:
                raise CutError(f"The connection was cut ({error.strerror}).") from error

    def receive(self, *kinds: str) -> dict[str, Any]:
        """Wait for a message of one of the kinds, or of any without kinds.

        Raises:
            CutError: If the connection ends before.
            FlashError: If something else comes.
        """
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE:
                raise FlashError(f"The other side sent more than {MAX_LINE} bytes without an end of line.")
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = parse_json_object(line, "a message", max_bytes=MAX_LINE, error=FlashError)
        kind = message.get("kind")
        if not isinstance(kind, str) or (kinds and kind not in kinds):
            raise FlashError(f"The other side sent {kind!a}, expected {' or '.join(kinds)}; are its versions older?")
        return message

    def read(self, most: int) -> bytes:
        """Plain bytes that follow the newest message, at least one and at most so many.

        Raises:
            CutError: If the connection ends before.
        """
        if not self._buffer:
            self._fill()
        data, self._buffer = self._buffer[:most], self._buffer[most:]
        return data

    def _fill(self) -> None:
        end_s = None if self._patience_s is None else time.monotonic() + self._patience_s
        while end_s is not None and not select.select([self._source], [], [], max(0.0, end_s - time.monotonic()))[0]:
            if time.monotonic() >= end_s:
                raise CutError(f"The other side has been silent for {self._patience_s:g} s.")
        try:
            data = os.read(self._source, _PIECE)
        except OSError as error:
            raise CutError(f"The connection was cut ({error.strerror}).") from error
        if not data:
            raise CutError("The connection was cut.")
        self._buffer += data
