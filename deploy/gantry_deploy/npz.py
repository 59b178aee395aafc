"""Arrays from a file that nobody vouches for: without pickle, and without trusting the sizes that it claims."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

ZIP_ERRORS = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError),
    *(OSError, EOFError, RuntimeError, ValueError),
)
"""Everything that :mod:`zipfile` raises on damaged, encrypted or exotic archives, and :func:`read_npz` with it."""


def read_npz(data: bytes, max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` by name.

    Args:
        data: The file.
        max_bytes: Largest size of all arrays together.

    Raises:
        ValueError: If it claims to hold more than that, or an array does not fit its header or holds objects.
        OSError: Or another one of :data:`ZIP_ERRORS`, if the archive is damaged.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        total = sum(info.file_size for info in archive.infolist())
        if total > max_bytes:
            raise ValueError(f"it unpacks to {total} bytes, allowed are {max_bytes}")
        return {info.filename.removesuffix(".npy"): _read_array(archive.read(info)) for info in archive.infolist()}


def plain_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays for :func:`numpy.savez`, which before numpy 2.1 cannot be told to leave out pickle.

    Raises:
        ValueError: If one holds objects, which would need it.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"Array '{name}' holds objects, expected numbers.")
    return dict(arrays)


def _read_array(data: bytes) -> np.ndarray:
    """One array; a header that claims more than the data holds is refused before anything is allocated."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"array format {version} is not one of {sorted(readers)}")
    shape, _, dtype = readers[version](stream)
    needed = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if dtype.hasobject or needed != len(data) - stream.tell():
        raise ValueError(f"an array of shape {shape} and type {dtype} does not fit its {len(data)} bytes")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
