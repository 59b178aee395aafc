"""Frames of the VESC's serial protocol: start byte, length, payload, CRC-16, stop byte.

A payload of up to 255 bytes begins with 2 and one byte of length, a longer one with 3 and two bytes, most significant
first. The CRC is CRC-16/XMODEM (polynomial 0x1021, initial value 0) of the payload, most significant byte first; the
stop byte is 3.
"""

from __future__ import annotations

import binascii

from gantry_hardware.errors import RobotError

SHORT_START, LONG_START, STOP = 2, 3, 3
"""First byte of a frame with one and with two bytes of length, and last byte of both."""
MAX_PAYLOAD = 512
"""Largest payload of the firmware, bytes."""


def crc16(payload: bytes) -> int:
    """CRC-16/XMODEM of a payload."""
    return binascii.crc_hqx(payload, 0)


def frame(payload: bytes) -> bytes:
    """Frame around a payload.

    Raises:
        RobotError: If the payload is empty or longer than :data:`MAX_PAYLOAD`.
    """
    if not 0 < len(payload) <= MAX_PAYLOAD:
        raise RobotError(f"A VESC frame holds {len(payload)} bytes, expected 1 to {MAX_PAYLOAD}.")
    head = bytes([SHORT_START, len(payload)]) if len(payload) < 256 else bytes([LONG_START, *divmod(len(payload), 256)])
    return head + payload + crc16(payload).to_bytes(2, "big") + bytes([STOP])


class FrameReader:
    """Finds the frames in a stream of bytes, whatever lies between them.

    After a wrong CRC or stop byte it looks for the next start from the byte behind the refused one, so that noise costs
    no whole frame that follows it.

    Args:
        max_payload: Longest payload that is waited for, bytes; a length beyond it is noise.
    """

    def __init__(self, max_payload: int = MAX_PAYLOAD) -> None:
        self._max_payload = max_payload
        self._buffer = bytearray()
        self.refused = 0
        """Starts whose length, CRC or stop byte was wrong."""
        self.skipped = 0
        """Bytes that began no frame."""

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the frames that are complete with these bytes, oldest first."""
        self._buffer += data
        payloads = []
        while self._buffer:
            if self._buffer[0] not in (SHORT_START, LONG_START):
                self._drop()
                self.skipped += 1
                continue
            size = self._payload_size()
            if size is None:
                break
            head = self._buffer[0]
            end = head + size + 3
            if not 0 < size <= self._max_payload:
                self._refuse()
                continue
            if len(self._buffer) < end:
                break
            payload = bytes(self._buffer[head : head + size])
            told = int.from_bytes(self._buffer[head + size : end - 1], "big")
            if told != crc16(payload) or self._buffer[end - 1] != STOP:
                self._refuse()
                continue
            payloads.append(payload)
            del self._buffer[:end]
        return payloads

    def clear(self) -> None:
        """Forget an incomplete frame."""
        self._buffer.clear()

    def _payload_size(self) -> int | None:
        """Length of the payload that begins here; None before all of its bytes have come."""
        if len(self._buffer) < self._buffer[0]:
            return None
        return int.from_bytes(self._buffer[1 : self._buffer[0]], "big")

    def _refuse(self) -> None:
        self.refused += 1
        self._drop()

    def _drop(self) -> None:
        del self._buffer[:1]
