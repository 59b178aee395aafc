"""Encoder of numbers under an instruction: words scale and shift what the numbers say (FiLM, arXiv 1709.07871).

Which of several things an instruction asks for is a product of words and places; a plain network of both side by side
needs many more samples to learn it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_policies.networks.encoding import Encoding
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
        words = self.layout.require_instruction()
        said = self.words.summary(observation[:, words.start : words.stop].long())
        hidden = torch.cat((observation[:, : words.start], observation[:, words.stop :]), dim=1)
        for layer, film in zip(self.layers, self.scales, strict=True):
            scale, shift = film(said).chunk(2, dim=1)
            hidden = nn.functional.elu(layer(hidden) * (1.0 + scale) + shift)
        return Encoding(torch.cat((hidden, said), dim=1))
