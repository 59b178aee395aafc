"""Small encoders of camera images, one per camera, and of words; trained by the critic's loss, and first by cloning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE, Observation
from gantry_policies.networks.language.instructed import InstructedEncoder
from gantry_policies.networks.layout import ObservationLayout, TermSlice
from gantry_policies.networks.sizes import WordsNetCfg
from gantry_policies.off_policy.config import EncoderCfg


@dataclass(frozen=True)
class Features:
    """Inputs of actor and critic."""

    state: Tensor
    """``(B, s)``: standardised numbers; under an instruction, features of them and of the words too."""
    tokens: Tensor | None = None
    """``(B, t, w)``: places of all cameras' images, w numbers each; None without cameras."""
    obs: Observation | None = None
    """Observations that they are of, ``(B, ...)`` by key, for an actor with its own scalers; None for others."""

    def detached(self) -> Features:
        """The same for a loss that must not train the encoder."""
        return replace(self, state=self.state.detach(), tokens=None if self.tokens is None else self.tokens.detach())


class Encoder(nn.Module):
    """All cameras of an observation, and the words of its state.

    Args:
        obs_shapes: Shape of one observation, by key.
        cfg: Kind and sizes.
    """

    def __init__(self, obs_shapes: Mapping[str, tuple[int, ...]], cfg: EncoderCfg) -> None:
        super().__init__()
        self.keys = sorted(key for key in obs_shapes if key.startswith(IMAGE_PREFIX))
        kinds = {"conv": ConvTokens, "vit": VitTokens}
        self.cameras = nn.ModuleDict({key: kinds[cfg.kind](obs_shapes[key], cfg) for key in self.keys})
        with torch.no_grad():
            sizes = [self.cameras[key](torch.zeros(1, *obs_shapes[key])).shape for key in self.keys]
        self.tokens: int = sum(size[1] for size in sizes)
        """t, 0 without cameras."""
        self.width: int = sizes[0][2] if sizes else 0
        """w."""
        size = obs_shapes[STATE][0] if STATE in obs_shapes else 0
        self.numbers = size - MAX_WORDS
        """Numbers of a state before the words, where there are words."""
        self.told = _instructed(self.numbers, cfg.vocabulary) if cfg.vocabulary else None
        self.state_size: int = size if self.told is None else self.numbers + self.told.latent_size
        """Numbers of :attr:`Features.state`."""
        self.learns = bool(self.keys) or self.told is not None
        """Whether there is anything to train."""

    def forward(self, obs: Observation) -> Tensor | None:
        """Tokens ``(B, t, w)`` of uint8 images ``(B, C, H, W)``; None without cameras."""
        if not self.keys:
            return None
        return torch.cat([self.cameras[key](obs[key].float().div_(255.0).sub_(0.5)) for key in self.keys], dim=1)

    def features(self, obs: Observation) -> Features:
        """Tokens, and the state as it is or under its instruction."""
        state = obs[STATE]
        if self.told is not None:
            state = torch.cat((state[:, : self.numbers], self.told(state).latent), dim=1)
        return Features(state, self(obs))


class ConvTokens(nn.Module):
    """Two convolutions; every place of the last one is a token."""

    def __init__(self, shape: tuple[int, ...], cfg: EncoderCfg) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_stem(shape[0], cfg), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        """Tokens ``(B, t, w)`` of an image ``(B, C, H, W)`` in [-0.5, 0.5]."""
        return self.layers(image).flatten(2).transpose(1, 2)


class VitTokens(nn.Module):
    """Two convolutions, learned positions and one transformer block (ResFiT's encoder, arXiv 2509.19301)."""

    def __init__(self, shape: tuple[int, ...], cfg: EncoderCfg) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_stem(shape[0], cfg))
        with torch.no_grad():
            places = self.stem(torch.zeros(1, *shape)).flatten(2).shape[2]
        self.position = nn.Parameter(torch.randn(1, places, cfg.width) * 0.02)
        self.before_attention, self.before_mlp, self.last = (nn.LayerNorm(cfg.width) for _ in range(3))
        self.attention = nn.MultiheadAttention(cfg.width, cfg.attention_heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(cfg.width, 4 * cfg.width), nn.GELU(), nn.Linear(4 * cfg.width, cfg.width))

    def forward(self, image: Tensor) -> Tensor:
        """Tokens ``(B, t, w)`` of an image ``(B, C, H, W)`` in [-0.5, 0.5]."""
        tokens = self.stem(image).flatten(2).transpose(1, 2) + self.position
        seen = self.before_attention(tokens)
        tokens = tokens + self.attention(seen, seen, seen, need_weights=False)[0]
        return self.last(tokens + self.mlp(self.before_mlp(tokens)))


class Summary(nn.Module):
    """All tokens in a few numbers: flattened, one layer, normalised."""

    def __init__(self, tokens: int, width: int, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(tokens * width, size), nn.LayerNorm(size), nn.ReLU())

    def forward(self, tokens: Tensor) -> Tensor:
        """``(B, size)`` of tokens ``(B, t, w)``."""
        return self.layers(tokens.flatten(1))


def _instructed(numbers: int, vocabulary: int) -> InstructedEncoder:
    """Encoder of a state of so many numbers and, last, the tokens of an instruction."""
    terms = (TermSlice(STATE, 0, numbers), TermSlice(INSTRUCTION_TERM, numbers, MAX_WORDS))
    return InstructedEncoder(ObservationLayout(terms, vocabulary=vocabulary), WordsNetCfg())


def _stem(channels: int, cfg: EncoderCfg) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, cfg.stem_width, kernel_size=8, stride=4),
        nn.ReLU(),
        nn.Conv2d(cfg.stem_width, cfg.width, kernel_size=3, stride=2),
    ]
