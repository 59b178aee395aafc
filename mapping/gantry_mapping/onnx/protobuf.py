"""The fields of protobuf records, without their schema."""

from __future__ import annotations

from gantry_hardware.errors import GantryError

Record = dict[int, list["int | memoryview"]]
"""Field number to its values in order: whole numbers, or the bytes of texts, records, packed and fixed-size numbers."""

MAX_FIELDS = 500_000
"""Most fields of a file, as far as it is read: more are no network, and reading them takes seconds."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class RecordReader:
    """Splits the records of one file into their fields; nothing is copied, and records inside are left as bytes.

    Args:
        file: The file's name, for messages.
        error: Class of the errors to raise.
    """

    def __init__(self, file: str, error: type[GantryError]) -> None:
        self.file = file
        self.error = error
        self._fields = 0

    def read(self, data: memoryview) -> Record:
        """The fields of a record.

        Raises:
            GantryError: Of class ``error``, if the bytes are no record, or the file has too many fields.
        """
        record: Record = {}
        at, end = 0, len(data)
        while at < end:
            key, at = self._varint(data, at)
            kind = key & 7
            if kind == _VARINT:
                value, at = self._varint(data, at)
            else:
                size, at = self._size(kind, data, at)
                value = data[at : at + size]
                at += size
            record.setdefault(key >> 3, []).append(value)
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise self.error(f"{self.file} has more than {MAX_FIELDS} fields.")
        return record

    def _size(self, kind: int, data: memoryview, at: int) -> tuple[int, int]:
        """Length of a value in bytes, and its beginning."""
        if kind == _BYTES:
            size, at = self._varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise self.error(
                f"{self.file} is no ONNX model: a field of the unknown kind {kind} at byte {at} of a record."
            )
        if size > len(data) - at:
            raise self.error(f"{self.file} is no ONNX model: a field of {size} bytes where {len(data) - at} are left.")
        return size, at

    def _varint(self, data: memoryview, at: int) -> tuple[int, int]:
        """A whole number of 7 bits a byte, lowest first, and where it ends."""
        value = shift = 0
        for byte in data[at : at + _MAX_VARINT_BYTES]:
            value |= (byte & 0x7F) << shift
            at += 1
            shift += 7
            if byte < 0x80:
                return value & (2**64 - 1), at
        raise self.error(f"{self.file} is no ONNX model: a number does not end at byte {at} of a record.")
