"""Proprioception encoders to one vector: an MLP on the newest frame, or the long-short history encoder of a student.

AME-2 (arXiv 2601.08485) names "20 steps, LSIO, then an MLP with commands"; widths are those of its authors' code.
"""

from __future__ import annotations

import torch
from rsl_rl.modules import MLP
from torch import Tensor, nn
from torch.nn import functional

from gantry_hardware.errors import GantryError
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.sizes import AmeCfg


class ProprioEncoder(nn.Module):
    """An MLP on the current terms (step e of the AME-2 encoder): (N, size) -> (N, cfg.proprio_width).

    Raises:
        GantryError: If there is nothing to encode.
    """

    def __init__(self, layout: ObservationLayout, cfg: AmeCfg) -> None:
        super().__init__()
        if layout.current_size == 0:
            raise GantryError("The observation holds no proprioception: every term is the map or has history.")
        self.layout = layout
        self.embed = MLP(layout.current_size, cfg.proprio_width, cfg.hidden, "elu")

    def forward(self, observation: Tensor) -> Tensor:
        """Observations (N, size) to embeddings (N, proprio_width)."""
        return self.embed(self.layout.current_of(observation))


class HistoryEncoder(nn.Module):
    """Long-short history: a convolution over all frames, the newest frames in full, and the current terms.

    (N, size) -> (N, cfg.proprio_width). The histories are the layout's stacked terms; commands are its current ones.

    Raises:
        GantryError: If the history is shorter than what the encoder spans.
    """

    def __init__(self, layout: ObservationLayout, cfg: AmeCfg) -> None:
        super().__init__()
        needed = max(cfg.long_kernel, cfg.short_frames)
        if layout.history < needed:
            raise GantryError(f"The observation holds {layout.history} frames, this network spans {needed}.")
        self.layout = layout
        self.short_frames = cfg.short_frames
        self.over_time = nn.Conv1d(layout.frame_size, cfg.long_channels, cfg.long_kernel)
        steps = layout.history - cfg.long_kernel + 1
        self.long = nn.Linear(cfg.long_channels * steps, cfg.long_width)
        self.short = nn.Linear(layout.frame_size * cfg.short_frames, cfg.short_width)
        joined = cfg.long_width + cfg.short_width + layout.current_size
        self.embed = MLP(joined, cfg.proprio_width, cfg.hidden, "elu")

    def forward(self, observation: Tensor) -> Tensor:
        """Observations (N, size) to embeddings (N, proprio_width)."""
        frames = self.layout.frames_of(observation)
        waves = functional.elu(self.over_time(frames.transpose(1, 2)))
        long = functional.elu(self.long(waves.flatten(1)))
        short = functional.elu(self.short(frames[:, -self.short_frames :].flatten(1)))
        return self.embed(torch.cat((long, short, self.layout.current_of(observation)), dim=-1))


def proprio_encoder(layout: ObservationLayout, cfg: AmeCfg) -> nn.Module:
    """The encoder that the layout asks for: with history the student's, without it the teacher's."""
    return HistoryEncoder(layout, cfg) if layout.stacked else ProprioEncoder(layout, cfg)
