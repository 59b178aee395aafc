"""Messages of openpi's protocol: msgpack with numpy arrays, judged before anything is allocated.

An array is a map with the binary keys ``__ndarray__``, ``data``, ``dtype`` and ``shape``, a numpy scalar one with
``__npgeneric__``, ``data`` and ``dtype``, as ``openpi-client`` 0.1 writes them. Objects, structures, complex
numbers and dates are refused, and so are extension types of msgpack: nothing in a message can run code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.errors import MalformedMessageError
from gantry_hardware.files.text import plain_text

ARRAY, SCALAR = b"__ndarray__", b"__npgeneric__"
"""Keys that mark the map of an array and of a numpy scalar."""
DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|[US]\d{1,6})")
"""Kinds of numbers and texts that an array may hold, as ``numpy.dtype.str`` writes them."""
MAX_DIMENSIONS = 8
"""Dimensions of an array."""
EXPECTED = "expected booleans, integers, real numbers of at most 64 bits, or texts"
"""Ending of messages about other arrays."""


@dataclass(frozen=True)
class MessageLimits:
    """Bounds of a message."""

    message_bytes: int = 64 * 2**20
    """Bytes of a message, and so of all its arrays."""
    items: int = 50_000
    """Values, keys and containers in it; an array counts as one."""
    depth: int = 16
    """Maps and lists inside of one another."""


MESSAGE_LIMITS = MessageLimits()
"""Bounds unless others are given."""


def encode(message: Mapping[str, Any], limits: MessageLimits = MESSAGE_LIMITS) -> bytes:
    """The bytes of a message.

    Args:
        message: Texts, numbers, bytes, None, lists, maps with keys of text, numpy arrays and numpy scalars.
        limits: Bounds.

    Raises:
        MalformedMessageError: If :func:`decode` would not take it.
    """
    room = limits.message_bytes

    def plain(value: Any) -> Any:
        nonlocal room
        if not isinstance(value, (np.ndarray, np.generic)):
            raise _malformed(f"it holds {plain_text(value)} ({type(value).__name__}), which it cannot carry")
        if not DTYPE.fullmatch(value.dtype.str):
            raise _malformed(f"it holds an array of {value.dtype}; {EXPECTED}")
        if isinstance(value, np.generic):
            return {SCALAR: True, b"data": value.item(), b"dtype": value.dtype.str}
        room -= value.nbytes
        if room < 0:
            raise _malformed(f"its arrays have more than {limits.message_bytes} bytes")
        return {ARRAY: True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}

    try:
        data: bytes = msgpack.Packer(default=plain, autoreset=True).pack(message)
    except MalformedMessageError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _malformed(str(error)) from error
    _scan(data, limits)
    return data


def decode(data: bytes, limits: MessageLimits = MESSAGE_LIMITS) -> dict[Any, Any]:
    """The map that :func:`encode`, or another program, has written; its arrays are read-only.

    Raises:
        MalformedMessageError: If the bytes are no map in msgpack, exceed a bound, or hold an
            array that makes no sense; with what was found.
    """
    _scan(data, limits)
    try:
        message = msgpack.unpackb(data, object_hook=_with_array)
    except MalformedMessageError:
        raise
    except Exception as error:  # msgpack raises several types without a common base
        raise _malformed(f"{type(error).__name__}: {error}") from error
    if not isinstance(message, dict):
        raise _malformed(f"it is a {type(message).__name__}, expected a map")
    return message


def _with_array(found: dict[Any, Any]) -> Any:
    """The array or scalar that a map stands for; the map itself if it is none."""
    if ARRAY in found:
        return _array(found)
    if SCALAR in found:
        return _scalar(found)
    return found


def _array(found: Mapping[Any, Any]) -> NDArray[Any]:
    dtype, data, shape = _dtype(found), found.get(b"data"), found.get(b"shape")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise _malformed(f"an array's shape is {plain_text(shape)}, expected at most {MAX_DIMENSIONS} whole numbers")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise _malformed(f"an array's shape is {plain_text(shape)}, expected whole numbers from 0")
    wanted = math.prod(shape) * dtype.itemsize
    if not isinstance(data, bytes) or len(data) != wanted:
        given = f"{len(data)} bytes" if isinstance(data, bytes) else f"a {type(data).__name__}"
        raise _malformed(f"an array of {dtype} with shape {plain_text(tuple(shape))} has {given}, expected {wanted}")
    if dtype.kind == "b" and data.strip(b"\x00\x01"):
        raise _malformed("an array of bool holds a byte other than 0 and 1")
    return np.frombuffer(data, dtype).reshape(shape) if wanted else np.zeros(shape, dtype)


def _scalar(found: Mapping[Any, Any]) -> np.generic:
    dtype, value = _dtype(found), found.get(b"data")
    fits = {"b": bool, "i": int, "u": int, "f": (int, float), "U": str, "S": bytes}[dtype.kind]
    if not isinstance(value, fits) or (isinstance(value, bool) and dtype.kind != "b"):
        raise _malformed(f"a number of {dtype} is {plain_text(value)}")
    try:
        return dtype.type(value)
    except (OverflowError, ValueError) as error:
        raise _malformed(f"a number of {dtype} is {plain_text(value)}") from error


def _dtype(found: Mapping[Any, Any]) -> np.dtype[Any]:
    text = found.get(b"dtype")
    if not isinstance(text, str) or not DTYPE.fullmatch(text):
        raise _malformed(f"an array's dtype is {plain_text(text)}; {EXPECTED}")
    return np.dtype(text)


_COUNTED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Binaries and texts: bytes of the length behind their first byte."""
_LISTS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_NUMBERS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SINGLE = frozenset({0xC0, 0xC2, 0xC3})


def _scan(data: bytes, limits: MessageLimits) -> None:
    """Walk over a message without making anything of it; refuse what is cut, too deep, or claims more than it has."""
    if len(data) > limits.message_bytes:
        raise _malformed(f"it has {len(data)} bytes, at most {limits.message_bytes} are taken")
    place, items, open_items = 0, 0, [1]
    while open_items:
        if open_items[-1] == 0:
            open_items.pop()
            continue
        open_items[-1] -= 1
        items += 1
        if place >= len(data):
            raise _malformed(f"it ends after {len(data)} bytes, in the middle of a value")
        place, inside = _step(data, place)
        if inside is not None:
            # Each value takes a byte at least, so that a list cannot hold more values than bytes follow.
            if items + inside > limits.items or inside > len(data) - place:
                raise _malformed(
                    f"it claims {inside} values in {len(data) - place} bytes, at most {limits.items} are taken"
                )
            if len(open_items) > limits.depth:
                raise _malformed(f"its maps and lists are deeper than {limits.depth}")
            open_items.append(inside)
    if place != len(data):
        raise _malformed(f"{len(data) - place} bytes follow it")


def _step(data: bytes, place: int) -> tuple[int, int | None]:
    """Place behind a value's head and its bytes, and the number of values inside of a list or map; None for others."""
    first = data[place]
    place += 1
    if first < 0x80 or first >= 0xE0 or first in _SINGLE:
        return place, None
    if first < 0xA0:
        return place, (first & 0x0F) * (1 if first >= 0x90 else 2)
    if first < 0xC0:
        return _within(data, place + (first & 0x1F)), None
    if (width := _NUMBERS.get(first)) is not None:
        return _within(data, place + width), None
    for widths, factor in ((_COUNTED, 0), (_LISTS, 1), (_MAPS, 2)):
        if (width := widths.get(first)) is not None:
            end = _within(data, place + width)
            count = int.from_bytes(data[place:end], "big")
            return (end, count * factor) if factor else (_within(data, end + count), None)
    raise _malformed(f"it holds the type 0x{first:02x} of msgpack, which has no place in this protocol")


def _within(data: bytes, end: int) -> int:
    if end > len(data):
        raise _malformed(f"a value claims {end - len(data)} bytes more than there are")
    return end


def _malformed(text: str) -> MalformedMessageError:
    return MalformedMessageError(f"A message of the policy protocol is refused: {text}.")
