"""Zips and arrays of unknown origin: no claim is believed, and memory is bounded before they are unpacked."""

import io
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib

import numpy as np
import pytest

from gantry_hardware.files.archive import ZIP_ERRORS, ArchiveError, read_archive
from gantry_hardware.files.npz import read_npz

LIMIT = 2**20


def zipped(members, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def claiming(data, size):
    """The same archive, whose headers say that each member has a size."""
    changed = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = changed.find(signature)
        while place >= 0:
            changed[place + offset : place + offset + 4] = struct.pack("<L", size)
            place = changed.find(signature, place + 4)
    return bytes(changed)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_goes_in_comes_out(method):
    members = {"a": b"", "b/c": bytes(200_000), "d/": b"", "é": b"x"}
    assert read_archive(zipped(members.items(), method), max_bytes=LIMIT, max_files=3) == members


def test_a_comment_and_bytes_before_it_do_no_harm():
    buffer = io.BytesIO(b"#!/bin/sh\n")
    buffer.seek(10)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("a", b"x")
        archive.comment = b"PK and other words"
    assert read_archive(buffer.getvalue(), max_bytes=LIMIT, max_files=1) == {"a": b"x"}


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_whose_output_has_no_bound_are_refused(method):
    with pytest.raises(ArchiveError, match="compressed by method"):
        read_archive(zipped([("a", b"x")], method), max_bytes=LIMIT, max_files=1)


@pytest.mark.parametrize(("size", "limit"), [(2 * LIMIT, LIMIT), (0, LIMIT), (1000, LIMIT), (2**32 - 2, 2**33)])
def test_a_size_that_lies_is_refused(size, limit):
    data = claiming(zipped([("zeros", bytes(2 * LIMIT))]), size)
    with pytest.raises(ZIP_ERRORS):
        read_archive(data, max_bytes=limit, max_files=1)


def test_members_together_count():
    with pytest.raises(ArchiveError, match=r"it unpacks to 1200000 bytes with 'b', allowed are 1048576"):
        read_archive(zipped([("a", bytes(600_000)), ("b", bytes(600_000))]), max_bytes=LIMIT, max_files=2)


@pytest.mark.parametrize("size", [0, 1000])
def test_unpacking_stops_at_the_limit_in_a_small_process(size, tmp_path):
    """0.6 MB that unpack to 640 MB, in a process that may have 200 MB more than it begins with."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    piece = bytes(2**24)
    packed = b"".join(packer.compress(piece) for _ in range(40)) + packer.flush()
    crc = zlib.crc32(bytes(size))
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 0, crc, len(packed), size, 1, 0) + b"a"
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, crc, len(packed), size, 1, *[0] * 4, 0, 0)
    entry += b"a"
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(entry), len(local) + len(packed), 0)
    (tmp_path / "bomb.zip").write_bytes(local + packed + entry + end)
    code = f"""
        import resource
        from gantry_hardware.files.archive import ZIP_ERRORS, read_archive

        data = open({str(tmp_path / "bomb.zip")!r}, "rb").read()
        has = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (has + 200 * 2**20,) * 2)
        try:
            print(len(read_archive(data, max_bytes=2**26, max_files=1)["a"]))
        except ZIP_ERRORS as error:
            print(type(error).__name__)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() in (["BadZipFile"], [str(size)])


def test_members_that_share_bytes_are_refused():
    """One member's bytes named twice in the directory."""
    data = zipped([("a", bytes(1000)), ("b", bytes(1000))])
    first, second = data.find(b"PK\x01\x02"), data.rfind(b"PK\x01\x02")
    changed = bytearray(data)
    changed[second + 42 : second + 46] = changed[first + 42 : first + 46]
    with pytest.raises(ArchiveError, match="overlaps the member before it"):
        read_archive(bytes(changed), max_bytes=LIMIT, max_files=2)


def test_many_members_are_refused_before_the_directory_is_read():
    data = zipped([(f"member-{i:06}", b"") for i in range(20_000)], zipfile.ZIP_STORED)
    with pytest.raises(ArchiveError, match=r"its directory has 1\d{6} bytes, allowed are 1048576"):
        read_archive(data, max_bytes=2**30, max_files=10**6)
    with pytest.raises(ArchiveError, match="more than 3 files"):
        read_archive(zipped([(str(i), b"") for i in range(4)]), max_bytes=LIMIT, max_files=3)


def test_the_format_for_large_archives_is_refused():
    data = zipped([("a", b"x")])
    end = data.rfind(b"PK\x05\x06")
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    with pytest.raises(ArchiveError, match="more than 65535 files"):
        read_archive(data[:end] + locator + data[end:], max_bytes=LIMIT, max_files=1)


def test_a_name_twice_an_empty_one_and_a_link_are_refused():
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = zipped([("a", b"x"), ("a", b"y")])
    with pytest.raises(ArchiveError, match="'a' is in the archive twice"):
        read_archive(data, max_bytes=LIMIT, max_files=2)
    with pytest.raises(ArchiveError, match="no plain file name"):
        read_archive(zipped([(zipfile.ZipInfo(""), b"x")]), max_bytes=LIMIT, max_files=2)
    link = zipfile.ZipInfo("a")
    link.external_attr = 0o120777 << 16
    with pytest.raises(ArchiveError, match="'a' is a link"):
        read_archive(zipped([(link, b"/etc/passwd")]), max_bytes=LIMIT, max_files=2)


def test_any_changed_byte_is_refused_or_harmless():
    """Every byte of a small archive, changed in three ways: no other error than the listed ones, no other content."""
    members = {"a": b"alpha" * 9, "b": bytes(range(99))}
    data = zipped(members.items())
    refused = 0
    for place in range(len(data)):
        for mask in (1, 128, 255):
            changed = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
            try:
                found = read_archive(changed, max_bytes=LIMIT, max_files=2)
                assert sorted(found.values()) == sorted(members.values())
            except ZIP_ERRORS:
                refused += 1
    assert refused > len(data)


def npz_of(**members):
    return zipped([(f"{name}.npy", data) for name, data in members.items()])


def npy(header, body=b"", version=b"\x01\x00"):
    text = header.encode() if isinstance(header, str) else header
    length = struct.pack("<H" if version == b"\x01\x00" else "<L", len(text))
    return b"\x93NUMPY" + version + length + text + body


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back(save):
    arrays = {
        "scalar": np.array(3.5),
        "none": np.zeros((0, 4), np.float32),
        "truths": np.array([True, False]),
        "image/wrist": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big endian": np.arange(3, dtype=">i4"),
        "half": np.arange(3, dtype=np.float16),
    }
    buffer = io.BytesIO()
    save(buffer, **arrays)
    found = read_npz(buffer.getvalue(), LIMIT)
    assert set(found) == set(arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == values.dtype
        assert found[name].flags.writeable


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"
HEADERS = {
    "a huge shape": (GOOD.replace("(2,)", "(1000000000000,)"), "does not fit its 16 bytes"),
    "a shape beyond 64 bits": (GOOD.replace("(2,)", "(99999999999999999999,)"), "has the header"),
    "a product of zero": (GOOD.replace("(2,)", "(0, 999999999999999999)"), "which no array has"),
    "a negative shape": (GOOD.replace("(2,)", "(-1, -2)"), "has the header"),
    "many dimensions": (GOOD.replace("(2,)", "(" + "1, " * 40 + ")"), "which no array has"),
    "less than it holds": (GOOD.replace("(2,)", "(1,)"), "does not fit"),
    "objects": (GOOD.replace("<f8", "|O"), "has the header"),
    "nothing each": (GOOD.replace("<f8", "|V0"), "has the header"),
    "texts": (GOOD.replace("<f8", "<U2"), "has the header"),
    "times": (GOOD.replace("<f8", "<M8[s]"), "has the header"),
    "fields": (GOOD.replace("'<f8'", "[('a', '<f8')]"), "has the header"),
    "code": (GOOD.replace("(2,)", "__import__('os').system('false')"), "has the header"),
    "deep": ("(" * 5000 + ")" * 5000, "has the header"),
    "open": ("{'descr': '<f8'", "has the header"),
    "escapes": ("{'descr': '\x1b[2J'}", r"has the header .*x1b"),
    "nothing": ("", "has the header"),
}


@pytest.mark.parametrize(("header", "text"), HEADERS.values(), ids=HEADERS)
def test_a_header_that_is_none_of_numbers_is_refused(header, text):
    for version in (b"\x01\x00", b"\x02\x00"):
        with pytest.raises(ValueError, match=text) as caught:
            read_npz(npz_of(a=npy(header, bytes(16), version)), LIMIT)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no array"),
        (b"\x93NUMPY", "no array"),
        (b"\x93NUMPY\x03\x00" + bytes(100), "no array of the format"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "has the header"),
        (npy(GOOD.replace("<f8", "|b1"), b"\x02\x01"), "neither true nor false"),
    ],
)
def test_other_files_are_no_arrays(data, text):
    with pytest.raises(ValueError, match=text):
        read_npz(npz_of(a=data), LIMIT)


def test_names_of_arrays():
    good = npy(GOOD, bytes(16))
    with pytest.raises(ArchiveError, match="'a' is in the archive twice"):
        read_npz(zipped([("a.npy", good), ("a", good)]), LIMIT)
    for name in ("a\x1b[2J.npy", "x" * 200, ".npy"):
        with pytest.raises(ArchiveError, match="expected a printable name"):
            read_npz(zipped([(name, good)]), LIMIT)
