"""Checksum of low-level messages: CRC-32/MPEG-2 over little-endian 32-bit words, most significant byte first.

Polynomial 0x04C11DB7, first value 0xFFFFFFFF, nothing reflected, no final inversion. The CRC of :mod:`zlib` has the
same polynomial with every bit order reversed and is inverted at the end; on bytes whose bits are reversed it therefore
gives the reversed, inverted result, at the speed of C.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from typing import Any

from gantry_hardware.unitree.layout import Layout

_REVERSED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))
_WORD = 4


def crc32_words(data: bytes) -> int:
    """CRC of bytes whose length is a multiple of four.

    Raises:
        ValueError: If it is not.
    """
    if len(data) % _WORD:
        raise ValueError(f"{len(data)} bytes, expected a multiple of {_WORD}")
    words = array("I", data)
    if sys.byteorder == "little":
        words.byteswap()
    mirrored = zlib.crc32(words.tobytes().translate(_REVERSED)) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_REVERSED), "big")


def message_crc(layout: Layout, values: tuple[Any, ...] | list[Any]) -> int:
    """CRC of a message: all words in memory but the last, which holds the CRC itself."""
    return crc32_words(layout.memory.pack(*values)[:-_WORD])
