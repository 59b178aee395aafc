"""The AME-1 map encoder (arXiv 2506.09588): attention whose query knows proprioception only, no global feature.

Tokens are as there: convolved features beside the cell's own coordinates and channels. The encoder is not shared with
the critic here, and its sizes come from :class:`~gantry_policies.networks.sizes.AmeCfg`, so that a comparison with
AME-2 is one of structure.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_hardware.errors import GantryError
from gantry_policies.networks.ame2 import CellConvolutions
from gantry_policies.networks.attention import QueryAttention
from gantry_policies.networks.encoding import Encoding
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.lsio import proprio_encoder
from gantry_policies.networks.sizes import AmeCfg


class Ame1Encoder(nn.Module):
    """(N, size) -> latent [attention, proprioception].

    Args:
        layout: Of the flat observation.
        cfg: Sizes; the last convolution gets what the coordinates and channels leave of ``token_width``.

    Raises:
        GantryError: If the observation holds no map, or a token has no room for convolved features.
    """

    centers: Tensor

    def __init__(self, layout: ObservationLayout, cfg: AmeCfg) -> None:
        super().__init__()
        self.layout = layout
        channels = len(layout.require_window().channels)
        left = cfg.token_width - 2 - channels
        if left < 1:
            raise GantryError(f"ame.token_width is {cfg.token_width}, expected more than {2 + channels}.")
        self.register_buffer("centers", layout.cell_centers(), persistent=False)
        self.surroundings = CellConvolutions(channels, (*cfg.conv_channels[:-1], left), cfg.kernel)
        self.proprio = proprio_encoder(layout, cfg)
        self.query = nn.Linear(cfg.proprio_width, cfg.token_width)
        self.attention = QueryAttention(cfg.token_width, cfg.heads, cfg.score_gain)
        self.latent_size = cfg.token_width + cfg.proprio_width
        self.embedding_sizes = (cfg.token_width,)

    def forward(self, observation: Tensor) -> Encoding:
        """Encode observations (N, size); the embedding is (attention,)."""
        grid = self.layout.grid(observation)
        places = self.centers.expand(grid.shape[0], -1, -1)
        tokens = torch.cat((self.surroundings(grid), places, grid.flatten(1, 2)), dim=-1)
        proprio = self.proprio(observation)
        attended, weights = self.attention(self.query(proprio), tokens)
        return Encoding(torch.cat((attended, proprio), dim=-1), (attended,), weights)
