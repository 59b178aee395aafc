"""An encoder of a bird's-eye-view raster beside the other terms: CaRL's, scaled to the raster (arXiv 2504.17838)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_policies.networks.encoding import Encoding
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.sizes import BevNetCfg

WIDE, NARROW = 5, 3
"""Edges of the convolutions' kernels: while many pixels are left, and then."""


class BevEncoder(nn.Module):
    """(N, size) -> latent: convolutions over the raster, layers over the other terms, layers over both.

    Every layer is followed by a normalisation over all of its outputs and a ReLU. At 256 pixels the convolutions have
    CaRL's kernels and strides.

    Args:
        layout: Of the flat observation.
        cfg: Sizes.

    Raises:
        GantryError: If the observation holds no raster, or nothing else.
    """

    def __init__(self, layout: ObservationLayout, cfg: BevNetCfg) -> None:
        super().__init__()
        self.layout = layout
        channels, pixels, _ = layout.require_raster().shape
        parts: list[nn.Module] = []
        for i, (kernel, stride) in enumerate(strides(pixels)):
            width = min(cfg.first_channels << i, cfg.most_channels)
            pixels = (pixels - kernel) // stride + 1
            parts += [nn.Conv2d(channels, width, kernel, stride), nn.LayerNorm([width, pixels, pixels]), nn.ReLU()]
            channels = width
        self.picture = nn.Sequential(*parts, nn.Flatten())
        self.rest = _layers(layout.size - layout.require_raster().size, cfg.rest)
        self.both = _layers(channels * pixels**2 + cfg.rest[-1], cfg.both)
        self.latent_size = cfg.both[-1]
        self.embedding_sizes = ()

    def forward(self, observation: Tensor) -> Encoding:
        """Encode observations (N, size); there is no embedding and no attention."""
        picture = self.picture(self.layout.raster(observation))
        return Encoding(self.both(torch.cat((picture, self.rest(self.layout.all_but_raster(observation))), dim=-1)))


def strides(pixels: int) -> list[tuple[int, int]]:
    """Kernel and stride of each convolution, until 2 pixels are left, or 3 of an odd number."""
    found: list[tuple[int, int]] = []
    while pixels > 3:
        kernel, stride = (WIDE, 2) if pixels >= 14 else (NARROW, 2 if pixels >= 7 else 1)
        found.append((kernel, stride))
        pixels = (pixels - kernel) // stride + 1
    return found


def _layers(inputs: int, widths: tuple[int, ...]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for before, after in zip((inputs, *widths), widths, strict=False):
        parts += [nn.Linear(before, after), nn.LayerNorm(after), nn.ReLU()]
    return nn.Sequential(*parts)
