"""Output of an encoder."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Encoding(NamedTuple):
    """An encoded observation."""

    latent: Tensor
    """Input of the action head, (N, latent_size)."""
    embedding: tuple[Tensor, ...] = ()
    """Parts of the map embedding, each (N, width): what a student's representation is compared with."""
    weights: Tensor | None = None
    """Attention weights, (N, heads, rows * cols), if the encoder attends."""
