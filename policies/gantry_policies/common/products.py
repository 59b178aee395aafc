"""Products of matrices as fast as this machine's CPU has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


def rounds_products() -> bool:
    """Whether :func:`fast_products` rounds on this machine's CPU, so that a seed comes out otherwise than elsewhere."""
    return getattr(torch.backends.mkldnn, "matmul", None) is not None and bool(torch.cpu._is_amx_tile_supported())


@contextlib.contextmanager
def fast_products() -> Iterator[None]:
    """Let oneDNN multiply float32 matrices, which is two to three times as fast as MKL on CPUs that are not Intel's.

    On CPUs with matrix units (AMX) it rounds the factors to bfloat16 and sums in float32.
    """
    backend = getattr(torch.backends.mkldnn, "matmul", None)
    if backend is None:  # an older torch
        yield
        return
    before = backend.fp32_precision
    backend.fp32_precision = "bf16"
    try:
        yield
    finally:
        backend.fp32_precision = before
