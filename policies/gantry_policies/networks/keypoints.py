"""Places in an image that convolutions answer to most (spatial softmax, arXiv 1504.00702), chosen by words."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gantry_policies.networks.language.film import scale_and_shift
from gantry_policies.networks.sizes import KeypointsCfg


class Keypoints(nn.Module):
    """Three convolutions, a heat map per key point, and its mean place.

    With instructions, words scale and shift what each convolution gives (FiLM, arXiv 1709.07871), so that the places
    are those of what is named.

    Args:
        channels: Of the image.
        cfg: Sizes.
        words: Numbers of the words' summary; 0 without instructions.
    """

    def __init__(self, channels: int, cfg: KeypointsCfg, words: int) -> None:
        super().__init__()
        sizes = (
            (cfg.stem_width, 2 * cfg.stem_stride, cfg.stem_stride, 2 if cfg.stem_stride == 4 else 1),
            (cfg.width, 3, 2, 1),
            (cfg.width, 3, 1, 1),
        )
        self.convolutions, self.norms, self.scales = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for width, kernel, stride, padding in sizes:
            self.convolutions.append(nn.Conv2d(channels, width, kernel, stride, padding, bias=False))
            self.norms.append(nn.GroupNorm(max(1, width // 8), width))
            if words:
                self.scales.append(nn.Linear(words, 2 * width))
            channels = width
        self.heat = nn.Conv2d(channels, cfg.keypoints, kernel_size=1)

    def forward(self, image: Tensor, said: Tensor | None = None) -> Tensor:
        """Numbers ``(B, 2 k)`` of an image ``(B, C, H, W)`` in [-0.5, 0.5]: k columns, then k rows, each from -1 to 1.

        Args:
            image: The image.
            said: ``(B, words)``, summary of the words; None without instructions.
        """
        # The order of memory that convolutions are fastest in on a CPU.
        hidden = image.contiguous(memory_format=torch.channels_last)
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            hidden = norm(convolution(hidden))
            if said is not None and len(self.scales):
                hidden = scale_and_shift(hidden, self.scales[index](said))
            hidden = nn.functional.silu(hidden)
        heat = self.heat(hidden)
        rows, columns = heat.shape[2:]
        share = heat.flatten(2).softmax(-1).unflatten(2, (rows, columns))
        x = (share.sum(2) * torch.linspace(-1.0, 1.0, columns, device=heat.device)).sum(-1)
        y = (share.sum(3) * torch.linspace(-1.0, 1.0, rows, device=heat.device)).sum(-1)
        return torch.cat((x, y), dim=1)
