"""Everything that is seen as tokens: state, style, places of images and words attend to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.imitation.config import NetworkCfg
from gantry_policies.imitation.image_encoder import ImageEncoder
from gantry_policies.networks.language.token_layers import EncoderLayer, learned_positions
from gantry_policies.networks.language.words import WordEncoder, mean_of_words, split_words


@dataclass(frozen=True)
class Scene:
    """Tokens of everything that is seen."""

    tokens: Tensor
    """``(B, t, d)``."""
    position: Tensor
    """``(1, t, d)``, learned places of the tokens."""
    seen: Tensor | None
    """``(B, t)`` bool, tokens that may be attended to; None for all."""

    @property
    def summary(self) -> Tensor:
        """``(B, d)``, the mean of the tokens."""
        return self.tokens.mean(dim=1)


class SceneEncoder(nn.Module):
    """Encoder of ACT (arXiv 2304.13705), with the words of an instruction beside the images.

    Args:
        obs_shapes: Shape of one observation, by key.
        cfg: Sizes.
    """

    def __init__(self, obs_shapes: Mapping[str, tuple[int, ...]], cfg: NetworkCfg) -> None:
        super().__init__()
        width, sizes = cfg.width, (cfg.width, cfg.heads, cfg.feedforward, cfg.dropout)
        self.vocabulary, self.latent = cfg.vocabulary, cfg.latent
        self.image_encoder = ImageEncoder(obs_shapes, cfg.image_encoder, width if cfg.vocabulary else 0)
        self.words = (
            WordEncoder(cfg.vocabulary, width, cfg.heads, cfg.feedforward, cfg.word_layers, cfg.dropout)
            if cfg.vocabulary
            else None
        )
        self.from_state = nn.Linear(numbers_of(obs_shapes, cfg), width)
        self.from_images = nn.Linear(self.image_encoder.width, width) if self.image_encoder.keys else None
        self.from_latent = nn.Linear(cfg.latent, width) if cfg.latent else None
        self.others = 1 + self.image_encoder.tokens + (1 if cfg.latent else 0)
        """Tokens beside the words."""
        words = MAX_WORDS if cfg.vocabulary else 0
        self.position = learned_positions(self.others + words, width)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(cfg.encoder_layers))
        self.memory_norm = nn.LayerNorm(width)

    def forward(self, obs: Observation, latent: Tensor | None = None) -> Scene:
        """Encode observations.

        Args:
            obs: ``(B, ...)`` by key, the state standardised.
            latent: ``(B, latent)``: the style to act in; zero, the mean of all, if None.
        """
        numbers, words = split_words(obs[STATE], self.vocabulary)
        tokens = [self.from_state(numbers)[:, None]]
        if self.from_latent is not None:
            style = numbers.new_zeros(numbers.shape[0], self.latent) if latent is None else latent
            tokens.append(self.from_latent(style)[:, None])
        said, seen, spoken = None, None, None
        if self.words is not None:
            assert words is not None
            said, spoken = self.words(words)
        if self.from_images is not None:
            mean = None if said is None or spoken is None else mean_of_words(said, spoken)
            tokens.append(self.from_images(self.image_encoder(obs, mean)))
        if said is not None and spoken is not None:
            tokens.append(said)
            seen = torch.cat((spoken.new_ones(spoken.shape[0], self.others), spoken), dim=1)
        memory = torch.cat(tokens, dim=1)
        for layer in self.encoder:
            memory = layer(memory, self.position, seen)
        return Scene(self.memory_norm(memory), self.position, seen)


def label_head(width: int, cfg: NetworkCfg) -> nn.Linear | None:
    """Head that predicts the labels of demonstrations from ``(B, width)``, while learning alone; None without any."""
    return nn.Linear(width, cfg.labels) if cfg.labels else None


def numbers_of(obs_shapes: Mapping[str, tuple[int, ...]], cfg: NetworkCfg) -> int:
    """Numbers of the flat observation that are no word tokens."""
    return obs_shapes[STATE][0] - (MAX_WORDS if cfg.vocabulary else 0)
