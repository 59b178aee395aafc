"""Instructions as tokens of a network: one per word, each of which has seen the others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.language.instructions import FIRST_WORD, PAD
from gantry_policies.networks.language.token_layers import EncoderLayer, learned_positions

FEW_ROWS = 64
"""Below this number of rows, sentences that are alike are not looked for."""


def split_words(state: Tensor, vocabulary: int) -> tuple[Tensor, Tensor | None]:
    """Numbers ``(B, s)`` and word tokens ``(B, MAX_WORDS)`` of a flat observation; its last numbers are tokens.

    Args:
        state: ``(B, s + MAX_WORDS)``; ``(B, s)`` without instructions.
        vocabulary: Words that are known; 0 for an observation without instructions.
    """
    if not vocabulary:
        return state, None
    return state[:, :-MAX_WORDS], state[:, -MAX_WORDS:].long()


class WordEncoder(nn.Module):
    """Embeddings of words and their places, which attend to each other.

    Args:
        vocabulary: Words that are known.
        width: Numbers of a token.
        heads: Of the attention.
        feedforward: Hidden numbers between attentions.
        layers: Number of layers.
        dropout: Share of words that are hidden while learning, so that a policy does not hang on one of them.
    """

    def __init__(self, vocabulary: int, width: int, heads: int, feedforward: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(FIRST_WORD + vocabulary, width, padding_idx=PAD)
        self.position = learned_positions(MAX_WORDS, width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, feedforward, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens ``(B, MAX_WORDS, width)`` of word tokens ``(B, MAX_WORDS)`` int64, and which of them are words, bool.

        The first place always counts, so that attention has something to attend to without an instruction.
        """
        seen = words != PAD
        seen = torch.cat((torch.ones_like(seen[:, :1]), seen[:, 1:]), dim=1)
        tokens = self.embedding(words)
        for layer in self.layers:
            tokens = layer(tokens, self.position, seen)
        return self.norm(tokens), seen

    def summary(self, words: Tensor) -> Tensor:
        """``(B, width)``: the mean over the words of ``(B, MAX_WORDS)``.

        Environments run under few sentences at a time, and each of them is read once for all rows that have it.
        """
        if words.shape[0] < FEW_ROWS or torch.compiler.is_exporting():
            return self._mean(words)
        sentences, place = torch.unique(words, dim=0, return_inverse=True)
        return self._mean(sentences)[place]

    def _mean(self, words: Tensor) -> Tensor:
        return mean_of_words(*self(words))


def mean_of_words(tokens: Tensor, seen: Tensor) -> Tensor:
    """``(B, width)``: mean of the tokens ``(B, MAX_WORDS, width)`` that are words by ``(B, MAX_WORDS)``."""
    counted = seen[..., None].to(tokens.dtype)
    return (tokens * counted).sum(1) / counted.sum(1)
