"""Transformer layers that know where a token is: positions are added to queries and keys, and not to what is passed on.

So does DETR (arXiv 2005.12872), which ACT builds upon; here every part is normalised before and not after it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention with several heads (arXiv 1706.03762)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None = None) -> Tensor:
        """``(B, q, d)``.

        Args:
            query: ``(B, q, d)``.
            key: ``(B, k, d)``.
            value: ``(B, k, d)``.
            seen: ``(B, k)`` bool: what may be attended to; everything if None.
        """
        parts = [self._split(layer(x)) for layer, x in ((self.query, query), (self.key, key), (self.value, value))]
        mask = None if seen is None else seen[:, None, None, :]
        rate = self.dropout if self.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=rate)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.unflatten(2, (self.heads, -1)).transpose(1, 2)


class EncoderLayer(nn.Module):
    """Tokens attend to each other."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = _mlp(width, feedforward, dropout)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, position: Tensor, seen: Tensor | None = None) -> Tensor:
        """``(B, t, d)`` of tokens ``(B, t, d)`` at positions ``(1, t, d)``; ``seen`` as in :class:`Attention`."""
        x = self.norm(tokens)
        tokens = tokens + self.drop(self.attention(x + position, x + position, x, seen))
        return tokens + self.drop(self.mlp(tokens))


class DecoderLayer(nn.Module):
    """Steps of a chunk attend to each other, then to what is seen."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.before_self, self.before_cross = nn.LayerNorm(width), nn.LayerNorm(width)
        self.among, self.across = Attention(width, heads, dropout), Attention(width, heads, dropout)
        self.mlp = _mlp(width, feedforward, dropout)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, steps: Tensor, query: Tensor, memory: Tensor, position: Tensor, seen: Tensor | None = None
    ) -> Tensor:
        """``(B, T, d)``.

        Args:
            steps: ``(B, T, d)``.
            query: ``(1, T, d)``: which step is which.
            memory: ``(B, t, d)``: what is seen.
            position: ``(1, t, d)``: where.
            seen: ``(B, t)`` bool: what may be attended to; everything if None.
        """
        x = self.before_self(steps)
        steps = steps + self.drop(self.among(x + query, x + query, x))
        x = self.before_cross(steps)
        steps = steps + self.drop(self.across(x + query, memory + position, memory, seen))
        return steps + self.drop(self.mlp(steps))


def learned_positions(count: int, width: int) -> nn.Parameter:
    """``(1, count, width)``: small random numbers, to be learned."""
    return nn.Parameter(torch.randn(1, count, width) * 0.02)


def _mlp(width: int, hidden: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width)
    )
