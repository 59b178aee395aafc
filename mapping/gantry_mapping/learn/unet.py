"""Mapping networks: the paper's shallow U-Net with a gated residual, and one that is told what was measured.

Both take (N, 1, rows, cols) heights and give a mean and a log variance per cell (paper section V, figure 8; ame2.md
3.2), so that an exported mapper has one interface.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from gantry_hardware.errors import UnknownNameError
from gantry_mapping.elevation.rasterize import EMPTY_Z_M

WIDTH = 16
"""Channels of every hidden layer."""
POOL = 3
"""Factor between the two scales."""
MIN_LOG_VARIANCE, MAX_LOG_VARIANCE = -11.5, 2.0
"""Bounds of the log variance, ln m^2: a deviation of 3 mm, as a near depth has, and of 2.7 m, which is that of an empty
cell."""

INPUT_SCALE, INPUT_SHIFT_M = 2.0, 0.4
"""Heights go into the convolutions as scale * (z + shift): flat ground under a standing robot near 0, where the zeros
beyond the border are then, and a step of a leg's height near 1."""
FILL_WINDOWS = (3, 7, 15, 31)
"""Edges of the windows, in cells, that empty cells take a mean from."""
LOW_WINDOW = 7
"""Edge of the window, in cells, whose lowest height a cell is told."""
CLOSED_GATE = -2.0
"""Bias that a guided network's gate begins with: 0.12 open."""
_HIGH_M = 100.0


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
        """Estimate heights in the ``base_yaw`` frame.

        Args:
            z_base_yaw_m: (N, 1, rows, cols) highest measured point per cell relative to the base, m; empty cells hold
                :data:`gantry_mapping.elevation.rasterize.EMPTY_Z_M`.

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


class GuidedMapNet(nn.Module):
    """:class:`MapNet` that knows which cells hold a point, where they are, and what lies around the empty ones.

    It differs from the paper's network because that one, with the few hundred thousand frames that a CPU can make,
    learns late that -2 m means empty, so that its gate spoils what was measured; and it sees 0.4 m around a cell, while
    the camera leaves the half metre before the robot's feet empty. Here

    * the gate mixes into the measured height or, where there is none, into the mean of the nearest measured cells, and
      begins nearly closed, so that training starts at what classical mapping with infilling does;
    * six channels go in: that height, emptiness, the lowest height nearby (what lies behind an edge is seldom as high
      as the edge), the mean height of the wider surroundings, the distance ahead and to the side (noise grows with it);
    * the coarse scale has two convolutions of its own, which see 1 m around a cell.

    Otherwise as the paper's: estimate = gate * raw + (1 - gate) * input, a log variance per cell.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(_conv(6, WIDTH), nn.ReLU(), _conv(WIDTH, WIDTH), nn.ReLU())
        self.pool = nn.MaxPool2d(POOL, ceil_mode=True)
        self.coarse = nn.Sequential(_conv(WIDTH, 2 * WIDTH), nn.ReLU(), _conv(2 * WIDTH, WIDTH), nn.ReLU())
        self.spread = nn.Upsample(scale_factor=POOL, mode="nearest")
        self.merge = nn.Sequential(_conv(2 * WIDTH, WIDTH), nn.ReLU(), _conv(WIDTH, WIDTH), nn.ReLU())
        self.raw = nn.Conv2d(WIDTH, 1, 1)
        self.log_variance = nn.Conv2d(WIDTH, 1, 1)
        self.gate = nn.Conv2d(WIDTH, 1, 1)
        nn.init.constant_(self.gate.bias, CLOSED_GATE)  # type: ignore[arg-type]
        nn.init.constant_(self.log_variance.bias, -4.0)  # type: ignore[arg-type]

    def forward(self, z_base_yaw_m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`MapNet.forward`: the same arguments and result."""
        rows, columns = z_base_yaw_m.shape[-2:]
        base, channels = guide(z_base_yaw_m)
        fine = self.fine(channels)
        coarse = self.spread(self.coarse(self.pool(fine)))[..., :rows, :columns]
        features = self.merge(torch.cat((fine, coarse), dim=1))
        # The raw estimate is the input plus what is learned: gate * raw + (1 - gate) * input.
        mean = base + torch.sigmoid(self.gate(features)) * self.raw(features)
        return mean, self.log_variance(features).clamp(MIN_LOG_VARIANCE, MAX_LOG_VARIANCE)


def guide(z_base_yaw_m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Channels that :class:`GuidedMapNet` is told about a grid in the ``base_yaw`` frame, without parameters.

    Args:
        z_base_yaw_m: (N, 1, rows, cols) m; empty cells hold :data:`gantry_mapping.elevation.rasterize.EMPTY_Z_M`.

    Returns:
        (N, 1, rows, cols) heights without empty cells, m: measured ones, else the mean over the smallest window of
        :data:`FILL_WINDOWS` that holds a measured cell, else flat ground; and (N, 6, rows, cols) channels.
    """
    rows, columns = z_base_yaw_m.shape[-2:]
    known = (z_base_yaw_m > EMPTY_Z_M + 1e-3).to(z_base_yaw_m.dtype)
    heights = z_base_yaw_m * known
    mean = torch.full_like(heights, -INPUT_SHIFT_M)
    wide = mean
    for window in reversed(FILL_WINDOWS):
        weight, total = _window_mean(known, window), _window_mean(heights, window)
        mean = torch.where(weight > 1e-6, total / weight.clamp(min=1e-6), mean)
        wide = mean if window == FILL_WINDOWS[-2] else wide
    base = torch.where(known > 0, z_base_yaw_m, mean)
    lowest = -functional.max_pool2d(torch.where(known > 0, -z_base_yaw_m, -_HIGH_M), LOW_WINDOW, 1, LOW_WINDOW // 2)
    lowest = torch.where(lowest < 0.5 * _HIGH_M, lowest, base)
    ahead = torch.linspace(0.0, 1.0, rows, device=base.device, dtype=base.dtype).view(1, 1, -1, 1).expand_as(base)
    aside = torch.linspace(-1.0, 1.0, columns, device=base.device, dtype=base.dtype).abs().expand_as(base)
    scaled = [INPUT_SCALE * (part + INPUT_SHIFT_M) for part in (base, lowest, wide)]
    return base, torch.cat((*scaled, 1.0 - known, ahead, aside), dim=1)


def _window_mean(values: torch.Tensor, edge: int) -> torch.Tensor:
    """Means over odd squares around each cell, zeros beyond the border; along one axis, then along the other."""
    along = functional.avg_pool2d(values, (edge, 1), 1, (edge // 2, 0))
    return functional.avg_pool2d(along, (1, edge), 1, (0, edge // 2))


NETWORKS: dict[str, type[MapNet] | type[GuidedMapNet]] = {"paper": MapNet, "guided": GuidedMapNet}
"""Mapping networks by name."""


def make_net(name: str) -> MapNet | GuidedMapNet:
    """A new network.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in NETWORKS:
        raise UnknownNameError("mapping network", name, NETWORKS)
    return NETWORKS[name]()


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)
