"""Encoder of numbers under an instruction: words scale and shift what the numbers say (FiLM, arXiv 1709.07871).

Which of several things an instruction asks for is a product of words and places; a plain network of both side by side
needs many more samples to learn it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_policies.networks.encoding import Encoding
from gantry_policies.networks.language.film import scale_and_shift
from gantry_policies.networks.language.words import WordEncoder
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.sizes import WordsNetCfg


class InstructedEncoder(nn.Module):
    """(N, size) -> latent: layers over the numbers, each scaled and shifted by the words' summary.

    Args:
        layout: Of the flat observation.
        cfg: Sizes.

    Raises:
        GantryError: If the observation holds no instruction.
    """

    def __init__(self, layout: ObservationLayout, cfg: WordsNetCfg) -> None:
        super().__init__()
        self.layout = layout
        words = layout.require_instruction()
        self.words = WordEncoder(layout.vocabulary, cfg.width, cfg.heads, 2 * cfg.width, cfg.layers, 0.0)
        sizes = (layout.size - words.size, *cfg.hidden)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in zip(sizes, cfg.hidden, strict=False))
        self.scales = nn.ModuleList(nn.Linear(cfg.width, 2 * width) for width in cfg.hidden)
        self.latent_size = cfg.hidden[-1] + cfg.width
        self.embedding_sizes = ()

    def forward(self, observation: Tensor) -> Encoding:
        """Encode observations (N, size); there is no embedding and no attention."""
        said = self.said(observation)
        return Encoding(torch.cat((self.numbers(observation, said), said), dim=1))

    def said(self, observation: Tensor) -> Tensor:
        """Summary (N, width) of the words in observations (N, size)."""
        words = self.layout.require_instruction()
        return self.words.summary(observation[:, words.start : words.stop].long())

    def numbers(self, observation: Tensor, said: Tensor) -> Tensor:
        """Features (N, last of ``hidden``) of everything in observations (N, size) beside the words.

        Args:
            observation: The observations.
            said: Summary of their words, (N, width).
        """
        words = self.layout.require_instruction()
        hidden = torch.cat((observation[:, : words.start], observation[:, words.stop :]), dim=1)
        for layer, film in zip(self.layers, self.scales, strict=True):
            hidden = nn.functional.elu(scale_and_shift(layer(hidden), film(said)))
        return hidden
