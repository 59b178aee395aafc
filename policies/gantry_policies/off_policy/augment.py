"""Random shifts of images (DrQ, arXiv 2004.13649), the one augmentation that image-based critics cannot do without."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_policies.common.batched_env import IMAGE_PREFIX, Observation


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
    count, height, width = image.shape[0], *image.shape[-2:]
    down, right = torch.randint(0, 2 * pixels + 1, (2, count), generator=generator, device=image.device)
    # A view of every crop there is, of which one is copied for each image.
    crops = _padded(image, pixels).unfold(2, height, 1).unfold(3, width, 1)
    return crops[torch.arange(count, device=image.device), :, down, right]


def _padded(image: Tensor, pixels: int) -> Tensor:
    """``(B, C, H + 2 p, W + 2 p)``; torch's own padding does not take whole numbers."""
    count, channels, height, width = image.shape
    inner = slice(pixels, -pixels)
    padded = image.new_empty(count, channels, height + 2 * pixels, width + 2 * pixels)
    padded[..., inner, inner] = image
    padded[..., :pixels, inner] = image[..., :1, :]
    padded[..., -pixels:, inner] = image[..., -1:, :]
    padded[..., :pixels] = padded[..., pixels : pixels + 1]
    padded[..., -pixels:] = padded[..., -pixels - 1 : -pixels]
    return padded
