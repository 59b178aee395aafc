"""Number of threads that torch computes with, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads inside, and as many as before afterwards, however that ends.

    The small tensors of an environment's step are slower on many threads, and sums over them come out in another order.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
