"""Metadata of an ONNX file, added without the ``onnx`` package, which is not on a robot."""

from __future__ import annotations

_MODEL_METADATA, _ENTRY_KEY, _ENTRY_VALUE = 14, 1, 2
_BYTES = 2


def with_metadata(model: bytes, key: str, text: str) -> bytes:
    """An ONNX file with one more entry of metadata; the graph is left as it is.

    Protobuf reads two messages that stand one behind the other as one, of which repeated fields have both's values.
    """
    entry = _field(_ENTRY_KEY, key.encode()) + _field(_ENTRY_VALUE, text.encode())
    return model + _field(_MODEL_METADATA, entry)


def _field(number: int, data: bytes) -> bytes:
    """A protobuf field of bytes."""
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """A whole number of 7 bits a byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
