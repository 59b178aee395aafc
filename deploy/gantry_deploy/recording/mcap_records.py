"""Records of an MCAP file in their order, up to the first damage; every checksum in the file is compared.

Whatever lies behind a damaged record is left out, even where it is intact: the readers of a recording take the
difference of neighbouring rows and pair topics by their times, and a hole in the middle would make numbers that never
were. What lies before it is given in full.

Messages count only inside a chunk, since only a chunk has a checksum of its own. The rest of the file is covered by the
checksums of the data section and of the index, which a file has only if its writer finished it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

import zstandard
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, McapRecord, Message, Metadata, Schema
from mcap.writer import MCAP0_MAGIC

from gantry_hardware.files.text import plain_text

LARGEST_CHUNK_BYTES = 256 * 2**20
"""A chunk that says that it unpacks to more is damaged; those of a recording hold 256 KiB and one map."""
METADATA_NAME_BYTES = 200
"""A longer name of metadata is damaged."""
_PRIVATE_OPCODES = 0x80
"""From here on records belong to applications; in an index readers pass over them."""
_CONTENT = (Opcode.MESSAGE, Opcode.CHANNEL, Opcode.SCHEMA)
_HEAD = struct.Struct("<BQ")
_FOOTER = struct.Struct("<QQI")
_CHUNK = struct.Struct("<QQQII")


class _DamageError(Exception):
    """Damage at a place of the file."""


class McapRecords:
    """Walks through a file once.

    Args:
        stream: The file, at its beginning.
        chunks_only: Take messages outside of chunks, which have no checksums, for damage; other programs write such
            files on purpose.
    """

    def __init__(self, stream: BinaryIO, *, chunks_only: bool = True) -> None:
        self._chunks_only = chunks_only
        self.damage = ""
        """The first place where the file is not as it was written, and what was found there. Empty, after the last
        record, if it was finished and every checksum in it is right."""
        self.position = 0
        """Where the record begins that is being read, in bytes."""
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        self._length = 0
        self._crc = self._crc_before = 0

    def __iter__(self) -> Iterator[McapRecord]:
        """Schemas, channels and messages of the chunks, and metadata; ends at the first damage.

        Raises:
            OSError: If the file cannot be read.
        """
        try:
            yield from self._data_section()
            self._index()
        except _DamageError as damage:
            self.note(str(damage))
        except OSError:
            raise
        except Exception as error:  # Whatever a parser raises on bytes that it does not expect.
            self.note(f"{type(error).__name__}: {error}")

    def note(self, what: str) -> None:
        """Remember what is wrong with the record that is being read, unless an earlier one was wrong already."""
        self.damage = self.damage or f"at byte {self.position} of {self._size}: {what}"

    def _data_section(self) -> Iterator[McapRecord]:
        if self._read(len(MCAP0_MAGIC)) != MCAP0_MAGIC:
            raise _DamageError("it does not begin as an MCAP file does")
        while True:
            opcode, payload = self._head(), self._payload()
            if opcode == Opcode.DATA_END:
                self._end_of_data(payload)
                return
            if opcode == Opcode.CHUNK:
                yield from _chunk_records(payload)
            elif opcode in _CONTENT and not self._chunks_only:
                yield _record(opcode, payload)
            elif opcode == Opcode.METADATA:
                yield from self._metadata(payload)
            elif opcode == Opcode.ATTACHMENT:
                _require_checksum("attachment", struct.unpack("<I", payload[-4:])[0], zlib.crc32(payload[:-4]))
            elif opcode == Opcode.MESSAGE_INDEX:
                _require_message_index(payload)
            elif opcode != Opcode.HEADER or self.position != len(MCAP0_MAGIC):
                # A damaged type could make a chunk one that is passed over, and rows would be missing in the middle.
                raise _DamageError(f"a record of type {opcode:#04x}, which has no place there")

    def _metadata(self, payload: bytes) -> Iterator[McapRecord]:
        """A description; where it cannot be read, that is noted, and its length still says where the next record is."""
        length, name = int.from_bytes(payload[:4], "little"), payload[4:20]
        if length > METADATA_NAME_BYTES or not name[: min(length, 16)].isascii() or b"\0" in name[: min(length, 16)]:
            raise _DamageError("metadata without a readable name, which may have been something else")
        try:
            record = Metadata.read(ReadDataStream(BytesIO(payload)))
        except Exception as error:
            self.note(f"metadata that cannot be read ({type(error).__name__}: {error})")
        else:
            yield record

    def _end_of_data(self, payload: bytes) -> None:
        if len(payload) != 4:
            raise _DamageError(f"the end of the data has {len(payload)} bytes, expected 4")
        # Of all bytes before, most of which have passed a chunk's checksum.
        _require_checksum("whole data section", struct.unpack("<I", payload)[0], self._crc_before)

    def _index(self) -> None:
        begin, self._crc = self._stream.tell(), 0
        while True:
            opcode = self._head()
            if opcode == Opcode.FOOTER:
                break
            if not Opcode.HEADER <= opcode < Opcode.DATA_END and opcode < _PRIVATE_OPCODES:
                raise _DamageError(f"a record of type {opcode:#04x} in the index")
            self._payload()
        if self._length != _FOOTER.size:
            raise _DamageError(f"the footer has {self._length} bytes, expected {_FOOTER.size}")
        footer = self._payload()
        summary_start, _, crc = _FOOTER.unpack(footer)
        if self._read(len(MCAP0_MAGIC)) != MCAP0_MAGIC:
            raise _DamageError("it does not end as an MCAP file does")
        if summary_start == 0:
            raise _DamageError("it has no index: its writer ended it early, as on a full disk")
        if summary_start != begin:
            raise _DamageError(f"the footer says that the index is at byte {summary_start}, and it is at {begin}")
        checked = zlib.crc32(_HEAD.pack(Opcode.FOOTER, _FOOTER.size) + footer[:16], self._crc_before)
        _require_checksum("index", crc, checked)
        if rest := self._size - self._stream.tell():
            raise _DamageError(f"{rest} bytes follow its end")

    def _head(self) -> int:
        """The type of the next record, whose length is kept."""
        self.position = self._stream.tell()
        self._crc_before = self._crc
        head = self._read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise _DamageError("it ends there, without an index: its writer was killed, or it was cut")
        opcode, self._length = _HEAD.unpack(head)
        rest = self._size - self._stream.tell()
        if opcode == 0:
            raise _DamageError("no record but zeros, as after a power cut")
        if self._length > rest:
            raise _DamageError(
                f"a record of {self._length} bytes where {rest} are left: its writer was killed, or it was cut"
            )
        return opcode

    def _payload(self) -> bytes:
        data = self._read(self._length)
        if len(data) < self._length:
            raise _DamageError("it ends in the middle of a record")
        return data

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        self._crc = zlib.crc32(data, self._crc)
        return data


def _require_message_index(payload: bytes) -> None:
    """Refuse what is no index of a chunk's messages: a channel, a length in bytes, and 16 bytes per message."""
    length = int.from_bytes(payload[2:6], "little")
    if len(payload) != 6 + length or length % 16:
        raise _DamageError("an index of messages that does not add up to its length")


def _chunk_records(chunk: bytes) -> Iterator[McapRecord]:
    """Schemas, channels and messages of one chunk."""
    data, position = _unpacked(chunk), 0
    while position < len(data):
        if position + _HEAD.size > len(data):
            raise _DamageError("a chunk ends in the middle of a record")
        opcode, length = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        if length > len(data) - position:
            raise _DamageError("a chunk ends in the middle of a record")
        payload = data[position : position + length]
        position += length
        if opcode in _CONTENT:
            yield _record(opcode, payload)


def _record(opcode: int, payload: bytes) -> McapRecord:
    """A message, channel or schema."""
    stream = ReadDataStream(BytesIO(payload))
    if opcode == Opcode.MESSAGE:
        return Message.read(stream, len(payload))
    return Channel.read(stream) if opcode == Opcode.CHANNEL else Schema.read(stream)


def _unpacked(payload: bytes) -> bytes:
    """The records of a chunk, whose size and checksum are right."""
    _, _, size, crc, name_length = _CHUNK.unpack_from(payload)
    begin = _CHUNK.size + name_length + 8
    if begin > len(payload) or struct.unpack_from("<Q", payload, begin - 8)[0] != len(payload) - begin:
        raise _DamageError("the parts of a chunk do not add up to its length")
    compression, packed = payload[_CHUNK.size : begin - 8], payload[begin:]
    if size > LARGEST_CHUNK_BYTES:
        raise _DamageError(f"a chunk that says that it holds {size} bytes, expected {LARGEST_CHUNK_BYTES} at most")
    data = _decompressed(compression, packed, size)
    if len(data) != size:
        raise _DamageError(f"a chunk holds {len(data)} bytes, expected {size}")
    _require_checksum("chunk", crc, zlib.crc32(data))
    return data


def _decompressed(compression: bytes, packed: bytes, size: int) -> bytes:
    if compression == b"":
        return packed
    if compression == b"lz4":
        import lz4.frame  # type: ignore[import-untyped]  # Never written here; other tools convert to it.

        return lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=size + 1)
    if compression != b"zstd":
        raise _DamageError(f"a chunk is compressed by {plain_text(compression)}, which is not known")
    # Its own word for its size would be believed otherwise, whatever it is.
    if (told := zstandard.frame_content_size(packed)) not in (-1, size):
        raise _DamageError(f"a chunk unpacks to {told} bytes, expected {size}")
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)


def _require_checksum(what: str, told: int, found: int) -> None:
    """Refuse what differs from its checksum; 0 stands for none."""
    if told not in (0, found):
        raise _DamageError(f"the checksum of its {what} is {found:#010x}, expected {told:#010x}")
