"""The few array operations that the Array API standard lacks, for numpy and torch; torch itself is never imported.

All of them give the same result in every run and, on equal inputs, the same numbers in numpy and torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array, is_torch_array

from gantry_mapping.errors import MappingError

Array = Any

_NAMESPACES: dict[type, Any] = {}
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - (1 << 32))
_STRIDES = (0x9E3779B1 - (1 << 32), 0x85EBCA77 - (1 << 32), 0xC2B2AE3D - (1 << 32))


def namespace(array: Array) -> Any:
    """The array's namespace, remembered by its type: asking anew takes a robot's single row as long as the work."""
    kind = type(array)
    return _NAMESPACES.get(kind) or _NAMESPACES.setdefault(kind, array_namespace(array))


def scatter_max(target: Array, index: Array, values: Array) -> Array:
    """Raise entries of ``target`` to the largest value that goes to each, in place.

    A maximum does not depend on the order of its operands, so duplicates need no care (a scatter that overwrites
    leaves whichever came last, on a GPU another one each time).

    Args:
        target: Shape (T,), changed.
        index: Shape (V,), int64 in [0, T), with any duplicates.
        values: Shape (V,).

    Returns:
        ``target``.

    Raises:
        MappingError: If the arrays are neither numpy's nor torch's.
    """
    if is_numpy_array(target):
        np.maximum.at(target, index, values)
        return target
    if is_torch_array(target):
        return target.scatter_reduce_(0, index, values, "amax")
    raise MappingError(f"scatter_max got a {type(target).__name__}, expected a numpy array or a torch tensor.")


def gather(source: Array, index: Array) -> Array:
    """Entries of ``source`` (T,) at ``index`` (int64, any shape, in [0, T)), in the shape of ``index``."""
    if is_torch_array(source):  # selecting rows of a flat tensor is the fastest of torch's ways on a CPU
        return source.index_select(0, index.reshape(-1)).reshape(index.shape)
    return source.take(index)  # several times faster than indexing


def solve(matrix: Array, right: Array) -> Array:
    """Solutions (N, n, k) of regular systems (N, n, n) with right sides (N, n, k). torch is not asked whether a matrix
    is singular, which would wait for a GPU.
    """
    linalg = namespace(matrix).linalg
    return linalg.solve_ex(matrix, right)[0] if is_torch_array(matrix) else linalg.solve(matrix, right)


def detached(values: Array) -> Array:
    """The same numbers without their history of operations, which a map would otherwise collect for ever."""
    return values.detach() if is_torch_array(values) else values


def hash_uniform(seed: int, stream: Array, count: Array, row: Array, col: Array) -> Array:
    """Uniform draws in [0, 1) that depend on what they are for, and on nothing else.

    Numpy and torch give the same numbers, on any device, for any subset of environments: a stream that is replayed
    through another runtime gives the same map. 24 bits each, from a 32-bit integer hash (two rounds of multiply and
    xor-shift).

    Args:
        seed: Of the whole sequence.
        stream: Shape (N,), integers: which environment.
        count: Shape (N,), integers: which frame of that environment.
        row: Shape (N, K), integers: the cell's row in the world's lattice.
        col: Shape (N, L), integers: the cell's column in the world's lattice.

    Returns:
        Shape (N, K, L), float32.
    """
    xp = namespace(row)
    key = _mix(_mix(_int32(xp, stream) * _STRIDES[0] + (seed & 0x7FFFFFFF)) + _int32(xp, count))
    rows = _mix(_int32(xp, row) * _STRIDES[1] + key[:, None])
    cols = _mix(_int32(xp, col) * _STRIDES[2] + key[:, None])
    bits = _mix(rows[:, :, None] + cols[:, None, :])
    return xp.astype((bits >> 8) & 0xFFFFFF, xp.float32) * (1.0 / (1 << 24))


def _int32(xp: Any, value: Array) -> Array:
    return xp.astype(value, xp.int32)


def _mix(bits: Array) -> Array:
    """One avalanche over int32 arrays, whose products wrap; shifts keep the sign, hence the masks."""
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    bits = bits * _MULTIPLIERS[0]
    bits = bits ^ ((bits >> 15) & 0x1FFFF)
    bits = bits * _MULTIPLIERS[1]
    return bits ^ ((bits >> 16) & 0xFFFF)
