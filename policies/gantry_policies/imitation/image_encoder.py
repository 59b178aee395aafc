"""Camera images as tokens: the small encoders of the off-policy learner, and a residual network for large images."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gantry_policies.common.batched_env import IMAGE_PREFIX, Observation
from gantry_policies.imitation.config import ImageEncoderCfg
from gantry_policies.networks.keypoints import Keypoints
from gantry_policies.networks.sizes import KeypointsCfg
from gantry_policies.off_policy.config import EncoderCfg
from gantry_policies.off_policy.encoders import ConvTokens, VitTokens

_STAGES = (64, 128, 256, 512)
"""Channels of the four stages of a residual network of 18 layers."""
_GROUPS = 16
"""Channels are normalised in so many groups, since batches of a policy are small."""


class ImageEncoder(nn.Module):
    """All cameras of an observation, each with an encoder of its own.

    Args:
        obs_shapes: Shape of one observation, by key.
        cfg: Kind and sizes.
        words: Numbers of the words' summary; 0 without instructions.
    """

    def __init__(self, obs_shapes: Mapping[str, tuple[int, ...]], cfg: ImageEncoderCfg, words: int = 0) -> None:
        super().__init__()
        self.reads = words > 0 and cfg.kind == "keypoints"
        """Whether words change what is seen."""
        self.keys = sorted(key for key in obs_shapes if key.startswith(IMAGE_PREFIX))
        self.cameras = nn.ModuleList(_encoder(obs_shapes[key], cfg, words) for key in self.keys)
        with torch.no_grad():
            sizes = [
                self._look(i, torch.zeros(1, *obs_shapes[key]), torch.zeros(1, words)).shape
                for i, key in enumerate(self.keys)
            ]
        self.tokens: int = sum(size[1] for size in sizes)
        """t, 0 without cameras."""
        self.width: int = sizes[0][2] if sizes else 0
        """w."""

    def forward(self, obs: Observation, said: Tensor | None = None) -> Tensor:
        """Tokens ``(B, t, w)`` of uint8 images ``(B, C, H, W)``; there must be a camera.

        Args:
            obs: By key.
            said: ``(B, words)``, summary of the words; None without instructions.
        """
        return torch.cat([self._look(i, obs[key], said) for i, key in enumerate(self.keys)], dim=1)

    def _look(self, camera: int, image: Tensor, said: Tensor | None) -> Tensor:
        scaled = image.float() / 255.0 - 0.5
        return self.cameras[camera](scaled, said) if self.reads else self.cameras[camera](scaled)


class DeepTokens(nn.Module):
    """Four convolutions, each of which halves the image; every place of the last one is a token.

    An image of 84 x 84 becomes 25 tokens, a third of those of two convolutions, and each of them sees a third of it.
    """

    def __init__(self, channels: int, cfg: ImageEncoderCfg) -> None:
        super().__init__()
        widths = (cfg.stem_width, 2 * cfg.stem_width, cfg.width, cfg.width)
        layers: list[nn.Module] = []
        for index, width in enumerate(widths):
            kernel = 5 if index == 0 else 3
            layers += [
                nn.Conv2d(channels, width, kernel, stride=2, padding=kernel // 2, bias=False),
                nn.GroupNorm(max(1, width // 8), width),
                nn.SiLU(),
            ]
            channels = width
        self.layers = nn.Sequential(*layers, nn.AvgPool2d(2, stride=1))

    def forward(self, image: Tensor) -> Tensor:
        """Tokens ``(B, t, w)`` of an image ``(B, C, H, W)`` in [-0.5, 0.5]."""
        return self.layers(image).flatten(2).transpose(1, 2)


class _KeypointTokens(Keypoints):
    """One token for all key points of an image."""

    def forward(self, image: Tensor, said: Tensor | None = None) -> Tensor:
        """Token ``(B, 1, 2 k)`` of an image ``(B, C, H, W)`` in [-0.5, 0.5]; words as :class:`Keypoints` takes them."""
        return super().forward(image, said)[:, None]


class ResNetTokens(nn.Module):
    """A residual network of 18 layers (arXiv 1512.03385) up to its last convolution; every place is a token.

    Groups of channels are normalised (arXiv 1803.08494) instead of batches.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(channels, _STAGES[0], kernel_size=7, stride=2, padding=3, bias=False),
            nn.GroupNorm(_GROUPS, _STAGES[0]),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        ]
        for index, width in enumerate(_STAGES):
            layers += [_Block(_STAGES[max(index - 1, 0)], width, 2 if index else 1), _Block(width, width, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Tensor:
        """Tokens ``(B, t, 512)`` of an image ``(B, C, H, W)`` in [-0.5, 0.5]."""
        return self.layers(image).flatten(2).transpose(1, 2)


class _Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(before, width, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, width),
            nn.ReLU(),
            nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, width),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or before != width:
            shortcut = nn.Conv2d(before, width, kernel_size=1, stride=stride, bias=False)
            self.around = nn.Sequential(shortcut, nn.GroupNorm(_GROUPS, width))

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.layers(image) + self.around(image))


def _encoder(shape: tuple[int, ...], cfg: ImageEncoderCfg, words: int) -> nn.Module:
    if cfg.kind == "keypoints":
        return _KeypointTokens(shape[0], KeypointsCfg(cfg.stem_width, 4, cfg.width, cfg.keypoints), words)
    if cfg.kind == "resnet18":
        return ResNetTokens(shape[0])
    if cfg.kind == "deep":
        return DeepTokens(shape[0], cfg)
    sizes = EncoderCfg(kind=cfg.kind, stem_width=cfg.stem_width, width=cfg.width, attention_heads=cfg.attention_heads)
    return VitTokens(shape, sizes) if cfg.kind == "vit" else ConvTokens(shape, sizes)
