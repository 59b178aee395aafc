"""Zip archives of unknown origin, unpacked in memory without believing the sizes and names that they claim.

The one place that opens zips: bundles and the arrays of ``.npz`` files are read through it.
"""

from __future__ import annotations

import io
import lzma
import stat
import struct
import zipfile
import zlib

from gantry_hardware.files.text import printable

PIECE_BYTES = 2**16
"""Bytes of a member that are unpacked at a time, so that a limit holds whatever the member claims to hold."""
MAX_DIRECTORY_BYTES = 2**20
"""Largest directory of an archive; that of a bundle has some hundred bytes."""
ZIP_ERRORS = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(OSError, EOFError, RuntimeError, ValueError, NotImplementedError),
)
"""Everything that :mod:`zipfile` raises on damaged, encrypted or exotic archives."""
_END, _END_BYTES, _COMMENT_BYTES = b"PK\x05\x06", 22, 2**16
"""Signature and size of the record that ends an archive, and how long the comment after it may be."""
_LOCATOR_BYTES = 20
"""Size of the record that stands before it in archives of more than 4 GiB or 65,535 files."""
_LOCAL_HEADER_BYTES = 30
"""Smallest size of what stands before a member's data, its name left out."""


class ArchiveError(ValueError):
    """An archive holds what its reader does not take; the text continues 'the archive ...' or names the member."""


def read_archive(
    data: bytes,
    *,
    max_bytes: int,
    max_files: int,
) -> dict[str, bytes]:
    """Every member of a zip archive by name.

    Args:
        data: The archive.
        max_bytes: Largest size of all members together, unpacked.
        max_files: Largest number of members; a folder counts as none, and is given with a name that ends in ``/``.

    Raises:
        ArchiveError: If it holds more than that, a link, a name twice, members that overlap, or members that are
            compressed by another method than Deflate.
        Exception: One of :data:`ZIP_ERRORS`, if the archive is damaged.
    """
    entries = _check_directory(data)
    files: dict[str, bytes] = {}
    total = claimed = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if len(members) != entries:
            raise zipfile.BadZipFile(f"its directory lists {len(members)} files, its end says {entries}")
        if not all(info.filename for info in members):
            raise ArchiveError("'' is no plain file name")
        if sum(not info.filename.endswith("/") for info in members) > max_files:
            raise ArchiveError(f"it holds more than {max_files} files")
        _check_overlaps(archive)
        for info in members:
            claimed += info.file_size
            if claimed > max_bytes:
                raise ArchiveError(
                    f"it unpacks to {claimed} bytes with '{printable(info.filename)}', allowed are {max_bytes}"
                )
        for info in members:
            _check_member(info, files)
            files[info.filename] = _unpacked(archive, info, max_bytes - total)
            total += len(files[info.filename])
    return files


def _check_directory(data: bytes) -> int:
    """Refuse a directory that would fill the memory when it is read; returns how many entries it should have."""
    # As zipfile looks for it: at the very end, or before a comment.
    place = len(data) - _END_BYTES
    if place < 0 or data[place : place + 4] != _END or data[-2:] != b"\0\0":
        place = data.rfind(_END, max(0, len(data) - _COMMENT_BYTES - _END_BYTES))
    if place < 0 or len(data) < place + _END_BYTES:
        raise zipfile.BadZipFile("File is not a zip file")
    if data[max(0, place - _LOCATOR_BYTES) : place].startswith(b"PK\x06\x07"):
        raise ArchiveError("it is of the format for more than 65535 files")
    entries, size = struct.unpack("<HL", data[place + 10 : place + 16])
    if size > MAX_DIRECTORY_BYTES:
        raise ArchiveError(f"its directory has {size} bytes, allowed are {MAX_DIRECTORY_BYTES}")
    return entries


def _check_member(info: zipfile.ZipInfo, files: dict[str, bytes]) -> None:
    name = info.filename
    if stat.S_ISLNK(info.external_attr >> 16):
        raise ArchiveError(f"'{printable(name)}' is a link; only plain files are taken")
    if name in files:
        raise ArchiveError(f"'{printable(name)}' is in the archive twice")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError(
            f"'{printable(name)}' is compressed by method {info.compress_type}, expected Deflate or none"
        )


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, room: int) -> bytes:
    """A member's content, read in pieces."""
    pieces, size = [], 0
    with archive.open(info) as member:
        while piece := member.read(PIECE_BYTES):
            size += len(piece)
            if size > room:
                raise ArchiveError(
                    f"'{printable(info.filename)}' unpacks to more than the {room} bytes that are left for it"
                )
            pieces.append(piece)
    if size != info.file_size:
        raise zipfile.BadZipFile(f"'{printable(info.filename)}' has {size} bytes, its header says {info.file_size}")
    return b"".join(pieces)


def _check_overlaps(archive: zipfile.ZipFile) -> None:
    """Refuse members that share bytes of the archive, as small files with a huge content do."""
    end = 0
    for info in sorted(archive.infolist(), key=lambda item: item.header_offset):
        if info.header_offset < end:
            raise ArchiveError(f"'{printable(info.filename)}' overlaps the member before it")
        end = info.header_offset + _LOCAL_HEADER_BYTES + len(info.orig_filename) + info.compress_size
    if end > archive.start_dir:
        raise ArchiveError("its last member overlaps the directory")
