"""Arrays from a file of unknown origin: without pickle, without evaluating text, without believing claimed sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gantry_hardware.files.archive import ZIP_ERRORS, ArchiveError, read_archive

__all__ = ["MAX_ARRAYS", "ZIP_ERRORS", "read_npz"]

MAX_ARRAYS = 4096
"""Largest number of arrays in a file."""
_MAX_DIMENSIONS = 8
_MAX_NAME = 100
_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {b"\x01\x00": 2, b"\x02\x00": 4}
"""Bytes of the header's length, by version of the format."""
_HEADER = re.compile(
    rb"\{ *'descr': *'([<>|=]?(?:b1|[iu][1248]|f[248]))', *'fortran_order': *(True|False), *"
    rb"'shape': *\(((?:\d{1,18}, *)*(?:\d{1,18})?)\),? *\}\s*"
)
"""The only form of a header: type, order and shape of numbers or truths, as numpy and others write it."""


def read_npz(data: bytes, max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` by name, of any shape and unit: numbers and truths of plain types.

    Args:
        data: The file.
        max_bytes: Largest size of all arrays together.

    Raises:
        ValueError: If it holds more than that, or an array does not fit its header or holds something else.
        OSError: Or another one of :data:`ZIP_ERRORS`, if the archive is damaged.
    """
    members = read_archive(data, max_bytes=max_bytes, max_files=MAX_ARRAYS)
    arrays: dict[str, np.ndarray] = {}
    for member in list(members):
        name = member.removesuffix(".npy")
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise ArchiveError(f"an array is called {name[:_MAX_NAME]!a}, expected a printable name")
        if name in arrays:
            raise ArchiveError(f"the array '{name}' is in the archive twice")
        arrays[name] = _read_array(name, members.pop(member))
    return arrays


def _read_array(name: str, data: bytes) -> np.ndarray:
    """One array; a header that claims more or less than the data holds is refused before anything is allocated."""
    version = data[len(_MAGIC) : len(_MAGIC) + 2]
    if not data.startswith(_MAGIC) or version not in _LENGTH_BYTES:
        raise ValueError(f"'{name}' is no array of the format 1.0 or 2.0")
    begin = len(_MAGIC) + 2 + _LENGTH_BYTES[version]
    stop = begin + int.from_bytes(data[len(_MAGIC) + 2 : begin], "little")
    header = _HEADER.fullmatch(data[begin:stop])
    if stop > len(data) or header is None:
        shown = data[begin : min(stop, begin + 80)].decode("ascii", "backslashreplace").strip()
        raise ValueError(f"'{name}' has the header {shown!a}, expected one of numbers or truths")
    descr, order, dimensions = (part.decode() for part in header.groups())
    shape = tuple(int(part) for part in dimensions.split(",") if part.strip())
    dtype = np.dtype(descr)
    if len(shape) > _MAX_DIMENSIONS or max(shape, default=0) > 2**48:
        raise ValueError(f"'{name}' has the shape {shape}, which no array has")
    if math.prod(shape) * dtype.itemsize != len(data) - stop:
        raise ValueError(f"an array of shape {shape} and type {dtype} does not fit its {len(data) - stop} bytes")
    flat = np.frombuffer(data, dtype, offset=stop)
    if dtype.kind == "b" and flat.view(np.uint8).max(initial=0) > 1:
        raise ValueError(f"'{name}' holds truths that are neither true nor false")
    return flat.reshape(shape, order="F" if order == "True" else "C").copy()


def plain_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays for :func:`numpy.savez`, which before numpy 2.1 cannot be told to leave out pickle.

    Raises:
        ValueError: If one holds objects, which would need it.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"Array '{name}' holds objects, expected numbers.")
    return dict(arrays)
