"""Multi-head attention of one query over many tokens, computed without keys and values.

With a single query q the score of token t in head h is (W_q q)_h . (W_k t)_h = ((W_k)_h^T (W_q q)_h) . t, so the key
projection moves to the query's side, and by linearity the value projection moves behind the weighted sum, whose
weights add up to one. That is the same function as ``nn.MultiheadAttention`` with keys = values = tokens, at
2 H multiply-adds per token and feature instead of 2 D + 2, and with no tensor of keys or values. A bias of the keys
adds the same number to all scores of a head and cancels in the softmax, so there is none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class QueryAttention(nn.Module):
    """Attention of one query over tokens that are keys and values at once.

    Args:
        width: Width of query, tokens and result.
        heads: Heads; a divisor of ``width``.
        score_gain: Factor on the scores.
    """

    def __init__(self, width: int, heads: int, score_gain: float = 1.0) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self._score_scale = score_gain * self.head_width**-0.5
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        # As nn.MultiheadAttention begins: the three input projections as one matrix, biases at zero.
        bound = math.sqrt(6.0 / (4 * width))
        for layer in (self.query, self.key, self.value):
            nn.init.uniform_(layer.weight, -bound, bound)
        for layer in (self.query, self.value, self.out):
            nn.init.zeros_(layer.bias)

    def forward(self, query: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Attend.

        Args:
            query: Shape (N, width).
            tokens: Shape (N, L, width).

        Returns:
            Result (N, width) and weights (N, heads, L), which add up to 1 over L.
        """
        n, (heads, size) = query.shape[0], (self.heads, self.head_width)
        asked = self.query(query).reshape(n, heads, size) * self._score_scale
        wanted = torch.einsum("nhs,hsw->nhw", asked, self.key.weight.view(heads, size, -1))
        weights = torch.softmax(torch.bmm(wanted, tokens.transpose(1, 2)), dim=-1)
        seen = torch.bmm(weights, tokens)
        values = torch.einsum("nhw,hsw->nhs", seen, self.value.weight.view(heads, size, -1)).reshape(n, heads * size)
        return self.out(values + self.value.bias), weights
