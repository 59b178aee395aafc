"""State under an instruction, for networks that read one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_policies.networks.language.film import scale_and_shift
from gantry_policies.networks.language.words import WordEncoder, split_words

_WIDTH, _HEADS, _LAYERS = 32, 2, 1
"""Numbers of a word, heads and layers of the attention between words."""
_HIDDEN = 128
"""Features that words scale and shift."""


class ToldState(nn.Module):
    """Numbers of a state, features of them that words scale and shift, and a summary of the words.

    Args:
        state_size: Numbers of a state, the last of which are tokens of words.
        vocabulary: Words that are known.
    """

    def __init__(self, state_size: int, vocabulary: int) -> None:
        super().__init__()
        numbers = state_size - MAX_WORDS
        self.vocabulary = vocabulary
        self.words = WordEncoder(vocabulary, _WIDTH, _HEADS, 2 * _WIDTH, _LAYERS, 0.0)
        self.layer, self.scales = nn.Linear(numbers, _HIDDEN), nn.Linear(_WIDTH, 2 * _HIDDEN)
        self.size = numbers + _HIDDEN + _WIDTH
        """Numbers that come of it."""

    def forward(self, state: Tensor) -> Tensor:
        """``(B, size)``, dimensionless, of states ``(B, s)`` of standardised numbers and raw tokens."""
        numbers, words = split_words(state, self.vocabulary)
        assert words is not None
        said = self.words.summary(words)
        chosen = torch.relu(scale_and_shift(self.layer(numbers), self.scales(said)))
        return torch.cat((numbers, chosen, said), dim=1)
