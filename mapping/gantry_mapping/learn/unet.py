"""The mapping network: a shallow U-Net with a gated residual (paper section V, figure 8; ame2.md 3.2)."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 16
"""Channels of every hidden layer."""
POOL = 3
"""Factor between the two scales."""
MIN_LOG_VARIANCE, MAX_LOG_VARIANCE = -9.2, 2.0
"""Bounds of the log variance, ln m^2: a deviation of 1 cm, and of 2.7 m, which is that of an empty cell."""

INPUT_SCALE, INPUT_SHIFT_M = 2.0, 0.4
"""Heights go into the convolutions as scale * (z + shift): flat ground under a standing robot near 0, where the zeros
beyond the border are then, and a step of a leg's height near 1."""


class MapNet(nn.Module):
    """Estimates ground heights and how sure they are from one local grid; 9,475 parameters.

    Two 3x3 convolutions, a scale that is three times coarser, and two more over both scales give a raw estimate, a gate
    and a log variance per cell; the estimate is gate * raw + (1 - gate) * input, so that cells that were measured
    well pass through and others are overwritten.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(_conv(1, WIDTH), nn.ReLU(), _conv(WIDTH, WIDTH), nn.ReLU())
        # The last window may hang over the edge; the finer grid is cut back to its size afterwards.
        self.coarse = nn.Sequential(nn.MaxPool2d(POOL, ceil_mode=True), nn.Upsample(scale_factor=POOL, mode="nearest"))
        self.merge = nn.Sequential(_conv(2 * WIDTH, WIDTH), nn.ReLU(), _conv(WIDTH, WIDTH), nn.ReLU())
        self.raw = nn.Conv2d(WIDTH, 1, 1)
        self.log_variance = nn.Conv2d(WIDTH, 1, 1)
        self.gate = nn.Conv2d(WIDTH, 1, 1)

    def forward(self, z_base_yaw_m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Estimate.

        Args:
            z_base_yaw_m: (N, 1, rows, cols) highest measured point per cell relative to the base, m; empty cells hold
                :data:`gantry_mapping.rasterize.EMPTY_Z_M`.

        Returns:
            (N, 1, rows, cols) heights relative to the base, m, and (N, 1, rows, cols) log variances, ln m^2.
        """
        rows, columns = z_base_yaw_m.shape[-2:]
        fine = self.fine(INPUT_SCALE * (z_base_yaw_m + INPUT_SHIFT_M))
        coarse = self.coarse(fine)[..., :rows, :columns]
        features = self.merge(torch.cat((fine, coarse), dim=1))
        gate = torch.sigmoid(self.gate(features))
        mean = gate * self.raw(features) + (1.0 - gate) * z_base_yaw_m
        return mean, self.log_variance(features).clamp(MIN_LOG_VARIANCE, MAX_LOG_VARIANCE)


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)
