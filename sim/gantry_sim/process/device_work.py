"""Work that a GPU need not be waited for: what a CPU saves by looking first, a GPU does for all.

To look at a number costs a CPU nothing, and spares it the work where there is none. A GPU has to be waited for before
the number is known, which costs more than small work that is done for nothing.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def worth_doing(mask: Tensor) -> bool:
    """Whether to do what concerns the true entries of a mask of any shape: on a CPU whether there is any."""
    return not mask.is_cpu or bool(mask.any())


def entries(mask: Tensor) -> tuple[Tensor, ...]:
    """Indices (k,) along each axis of the entries to work on: on a CPU the true ones, else all. What is written there
    must leave the entries as they are where the mask is false."""
    if mask.is_cpu:
        return mask.nonzero(as_tuple=True)
    grids = torch.meshgrid(*(torch.arange(size, device=mask.device) for size in mask.shape), indexing="ij")
    return tuple(grid.flatten() for grid in grids)


def numbers_like(numbers: tuple[float, ...], like: Tensor) -> Tensor:
    """Constants (k,) of a tensor's type and device, in any unit; made once and kept, so not to be written to."""
    return _kept(numbers, like.dtype, like.device)


@functools.lru_cache(maxsize=1024)
def _kept(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)
