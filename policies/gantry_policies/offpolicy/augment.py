"""Random shifts of images (DrQ, arXiv 2004.13649), the one augmentation that image-based critics cannot do without."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_policies.offpolicy.env import IMAGE_PREFIX, Observation


def shifted(obs: Observation, pixels: int, generator: torch.Generator) -> Observation:
    """An observation whose images are each moved by up to ``pixels`` in both directions, every one by its own draw.

    Args:
        obs: ``(B, ...)`` by key; what is not an image stays as it is.
        pixels: Largest shift; 0 for none.
        generator: Of the draws, on the images' device.
    """
    if not pixels:
        return obs
    return {
        key: random_shift(value, pixels, generator) if key.startswith(IMAGE_PREFIX) else value
        for key, value in obs.items()
    }


def random_shift(image: Tensor, pixels: int, generator: torch.Generator) -> Tensor:
    """Images padded by their edges and cropped back to their size at a random place.

    Args:
        image: ``(B, C, H, W)``, any type.
        pixels: Padding on each side.
        generator: Of the draws, on the images' device.
    """
    count, channels, height, width = image.shape
    device = image.device
    offset = torch.randint(-pixels, pixels + 1, (2, count, 1), generator=generator, device=device)
    rows = (torch.arange(height, device=device) + offset[0]).clamp_(0, height - 1)
    columns = (torch.arange(width, device=device) + offset[1]).clamp_(0, width - 1)
    which = torch.arange(count, device=device).view(-1, 1, 1, 1)
    channel = torch.arange(channels, device=device).view(1, -1, 1, 1)
    return image[which, channel, rows[:, None, :, None], columns[:, None, None, :]]
