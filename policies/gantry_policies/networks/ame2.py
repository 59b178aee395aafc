"""The AME-2 map encoder (arXiv 2601.08485, Sec. IV): every cell a token, a global feature, and an informed query."""

from __future__ import annotations

from itertools import pairwise

import torch
from rsl_rl.modules import MLP
from torch import Tensor, nn
from torch.nn import functional

from gantry_policies.networks.attention import QueryAttention
from gantry_policies.networks.encoding import Encoding
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.lsio import proprio_encoder
from gantry_policies.networks.sizes import AmeCfg


class CellConvolutions(nn.Module):
    """Size-preserving convolutions over the window's channels, coordinates left out (step b).

    The outermost cells go on beyond the border: a zero there would be a step down to the nominal ground, and in a
    channel of deviations an uncertainty that only unseen cells have, so that everything would look at the border.
    """

    def __init__(self, channels: int, widths: tuple[int, ...], kernel: int) -> None:
        super().__init__()
        sizes = (channels, *widths)
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, kernel, padding=kernel // 2, padding_mode="replicate")
            for before, after in pairwise(sizes)
        )

    def forward(self, grid: Tensor) -> Tensor:
        """(N, rows, cols, channels) to features of each cell, (N, rows * cols, last width)."""
        features = grid.permute(0, 3, 1, 2).contiguous()
        for layer in self.layers:
            features = functional.elu(layer(features), inplace=True)
        return features.flatten(2).transpose(1, 2)


class CellTokens(nn.Module):
    """A token per cell from its place, its channels and its surroundings (steps a to c).

    x and y are raw metres in the base's yaw frame; they are the only positional encoding.
    """

    centers: Tensor

    def __init__(self, layout: ObservationLayout, cfg: AmeCfg) -> None:
        super().__init__()
        channels = len(layout.require_window().channels)
        self.register_buffer("centers", layout.cell_centers(), persistent=False)
        self.cell = nn.Linear(2 + channels, cfg.cell_width)
        self.surroundings = CellConvolutions(channels, cfg.conv_channels, cfg.kernel)
        self.mix = nn.Linear(cfg.cell_width + cfg.conv_channels[-1], cfg.token_width)

    def forward(self, grid: Tensor) -> Tensor:
        """(N, rows, cols, channels) to tokens (N, rows * cols, token_width)."""
        weight = self.cell.weight
        # The part of the coordinates is the same for every sample.
        place = functional.linear(self.centers, weight[:, :2], self.cell.bias)
        cell = functional.elu(place + functional.linear(grid.flatten(1, 2), weight[:, 2:]), inplace=True)
        return elu_of(self.mix, torch.cat((cell, self.surroundings(grid)), dim=-1))


class GlobalFeature(nn.Module):
    """The largest value of each channel over all tokens (step d)."""

    def __init__(self, token_width: int, width: int) -> None:
        super().__init__()
        self.token = nn.Linear(token_width, width)
        self.channel = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (N, L, token_width) to (N, width)."""
        return self._channels(tokens).max(dim=1)[0] + self.channel.bias

    def chosen(self, tokens: Tensor) -> Tensor:
        """Per token the share of channels that took their largest value from it, (N, L); adds up to 1."""
        chosen = self._channels(tokens).argmax(dim=1)
        counts = functional.one_hot(chosen, tokens.shape[1]).sum(dim=1)
        return counts / chosen.shape[1]

    def _channels(self, tokens: Tensor) -> Tensor:
        # The bias is the same for all tokens, so it may wait until after the maximum.
        return functional.linear(elu_of(self.token, tokens), self.channel.weight)


def elu_of(layer: nn.Linear, tokens: Tensor) -> Tensor:
    """ELU of a linear layer on (N, L, width), in place.

    On three dimensions a linear layer's result is a view, and backwards through an in-place function of a view
    copies whole tensors: a third of the time of an update.
    """
    flat = functional.elu(layer(tokens.flatten(0, 1)), inplace=True)
    return flat.unflatten(0, tokens.shape[:2])


class Ame2Encoder(nn.Module):
    """Steps a to g of AME-2: (N, size) -> latent [attention, proprioception, global feature].

    Args:
        layout: Of the flat observation.
        cfg: Sizes.

    Raises:
        GantryError: If the observation holds no map or no proprioception.
    """

    def __init__(self, layout: ObservationLayout, cfg: AmeCfg) -> None:
        super().__init__()
        self.layout = layout
        self.tokens = CellTokens(layout, cfg)
        self.overview = GlobalFeature(cfg.token_width, cfg.global_width)
        self.proprio = proprio_encoder(layout, cfg)
        self.query = MLP(cfg.proprio_width + cfg.global_width, cfg.token_width, cfg.hidden, "elu")
        self.attention = QueryAttention(cfg.token_width, cfg.heads, cfg.score_gain)
        self.latent_size = cfg.token_width + cfg.proprio_width + cfg.global_width
        self.embedding_sizes = (cfg.token_width, cfg.global_width)

    def forward(self, observation: Tensor) -> Encoding:
        """Encode observations (N, size); the embedding is (attention, global feature)."""
        tokens = self.tokens(self.layout.grid(observation))
        overview = self.overview(tokens)
        proprio = self.proprio(observation)
        query = self.query(torch.cat((proprio, overview), dim=-1))
        attended, weights = self.attention(query, tokens)
        return Encoding(torch.cat((attended, proprio, overview), dim=-1), (attended, overview), weights)

    def overview_cells(self, observation: Tensor) -> Tensor:
        """Attention of the global feature: share of its channels that each cell won, (N, rows, cols)."""
        window = self.layout.require_window()
        shares = self.overview.chosen(self.tokens(self.layout.grid(observation)))
        return shares.reshape(-1, window.rows, window.cols)
