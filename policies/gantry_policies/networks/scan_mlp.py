"""The baseline without attention: an MLP on the scan beside one on proprioception."""

from __future__ import annotations

import torch
from rsl_rl.modules import MLP
from torch import Tensor, nn

from gantry_policies.networks.encoding import Encoding
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.lsio import proprio_encoder
from gantry_policies.networks.sizes import AmeCfg


class ScanEncoder(nn.Module):
    """(N, size) -> latent [scan, proprioception].

    The scan's vector is as wide as AME-2's attention and global feature together; proprioception is encoded alike.

    Args:
        layout: Of the flat observation.
        cfg: Sizes.

    Raises:
        GantryError: If the observation holds no map or no proprioception.
    """

    def __init__(self, layout: ObservationLayout, cfg: AmeCfg) -> None:
        super().__init__()
        self.layout = layout
        window = layout.require_window()
        width = cfg.token_width + cfg.global_width
        self.scan = MLP(window.rows * window.cols * len(window.channels), width, cfg.hidden, "elu")
        self.proprio = proprio_encoder(layout, cfg)
        self.latent_size = width + cfg.proprio_width
        self.embedding_sizes = ()

    def forward(self, observation: Tensor) -> Encoding:
        """Encode observations (N, size); there is no embedding and no attention."""
        scan = self.scan(self.layout.grid(observation).flatten(1))
        return Encoding(torch.cat((scan, self.proprio(observation)), dim=-1))
