"""Networks that plan a chunk of actions at once, over standardised numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.imitation.attention import DecoderLayer, EncoderLayer, learned_positions
from gantry_policies.imitation.config import NetworkCfg
from gantry_policies.imitation.image_encoder import ImageEncoder
from gantry_policies.off_policy.encoders import Summary


class ChunkMlp(nn.Module):
    """The whole chunk from one hidden state; of images, a few numbers.

    Args:
        obs_shapes: Shape of one observation, by key.
        action_size: n.
        steps: T.
        cfg: Sizes.
    """

    def __init__(
        self, obs_shapes: Mapping[str, tuple[int, ...]], action_size: int, steps: int, cfg: NetworkCfg
    ) -> None:
        super().__init__()
        self.image_encoder = ImageEncoder(obs_shapes, cfg.image_encoder)
        self.summary = (
            Summary(self.image_encoder.tokens, self.image_encoder.width, cfg.image_size)
            if self.image_encoder.keys
            else None
        )
        sizes = [obs_shapes[STATE][0] + (cfg.image_size if self.summary else 0), *cfg.hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.ReLU(), nn.Dropout(cfg.dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], steps * action_size))
        self.shape = (steps, action_size)

    def forward(self, obs: Observation) -> Tensor:
        """``(B, T, n)`` of observations ``(B, ...)`` whose state is standardised."""
        seen = obs[STATE]
        if self.summary is not None:
            seen = torch.cat((seen, self.summary(self.image_encoder(obs))), dim=1)
        return self.layers(seen).unflatten(1, self.shape)


class ChunkTransformer(nn.Module):
    """ACT (arXiv 2304.13705): state and image places attend to each other, then one query per step attends to them.

    Args:
        obs_shapes: Shape of one observation, by key.
        action_size: n.
        steps: T.
        cfg: Sizes.
    """

    def __init__(
        self, obs_shapes: Mapping[str, tuple[int, ...]], action_size: int, steps: int, cfg: NetworkCfg
    ) -> None:
        super().__init__()
        width, sizes = cfg.width, (cfg.width, cfg.heads, cfg.feedforward, cfg.dropout)
        self.image_encoder = ImageEncoder(obs_shapes, cfg.image_encoder)
        self.from_state = nn.Linear(obs_shapes[STATE][0], width)
        self.from_images = nn.Linear(self.image_encoder.width, width) if self.image_encoder.keys else None
        self.from_latent = nn.Linear(cfg.latent, width) if cfg.latent else None
        self.style = StyleEncoder(obs_shapes[STATE][0], action_size, steps, cfg) if cfg.latent else None
        self.latent = cfg.latent
        self.position = learned_positions(1 + self.image_encoder.tokens + (1 if cfg.latent else 0), width)
        self.query = learned_positions(steps, width)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(cfg.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(cfg.decoder_layers))
        self.memory_norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, action_size)

    def forward(self, obs: Observation, latent: Tensor | None = None) -> Tensor:
        """``(B, T, n)``.

        Args:
            obs: ``(B, ...)`` by key, the state standardised.
            latent: ``(B, latent)``: the style to act in; zero, the mean of all, if None.
        """
        tokens = [self.from_state(obs[STATE])[:, None]]
        if self.from_latent is not None:
            style = obs[STATE].new_zeros(obs[STATE].shape[0], self.latent) if latent is None else latent
            tokens.append(self.from_latent(style)[:, None])
        if self.from_images is not None:
            tokens.append(self.from_images(self.image_encoder(obs)))
        memory = torch.cat(tokens, dim=1)
        for layer in self.encoder:
            memory = layer(memory, self.position)
        memory = self.memory_norm(memory)
        # Beginning at zeros, as DETR does, steps that see one token alone could never be told apart.
        steps = self.query.expand(memory.shape[0], -1, -1)
        for layer in self.decoder:
            steps = layer(steps, self.query, memory, self.position)
        return self.head(self.last_norm(steps))


@dataclass(frozen=True)
class Style:
    """A normal distribution of styles with independent numbers."""

    mean: Tensor
    """``(B, latent)``."""
    log_variance: Tensor
    """``(B, latent)``."""

    def sample(self) -> Tensor:
        """``(B, latent)``: one draw each, from torch's global generator."""
        return self.mean + torch.exp(0.5 * self.log_variance) * torch.randn_like(self.mean)

    def divergence(self) -> Tensor:
        """``(B,)``: how far it is from the standard normal distribution (Kullback and Leibler), in nats."""
        return 0.5 * (self.mean.square() + self.log_variance.exp() - 1.0 - self.log_variance).sum(-1)


class StyleEncoder(nn.Module):
    """Recognises the style of a demonstrated chunk; used in training alone."""

    def __init__(self, state_size: int, action_size: int, steps: int, cfg: NetworkCfg) -> None:
        super().__init__()
        sizes = (cfg.width, cfg.heads, cfg.feedforward, cfg.dropout)
        self.from_state, self.from_action = nn.Linear(state_size, cfg.width), nn.Linear(action_size, cfg.width)
        self.summary = learned_positions(1, cfg.width)
        self.position = learned_positions(2 + steps, cfg.width)
        self.layers = nn.ModuleList(EncoderLayer(*sizes) for _ in range(cfg.encoder_layers))
        self.last_norm, self.head = nn.LayerNorm(cfg.width), nn.Linear(cfg.width, 2 * cfg.latent)

    def forward(self, state: Tensor, action: Tensor, real: Tensor) -> Style:
        """The style of chunks ``(B, T, n)`` whose steps ``(B, T)`` are ``real``, begun in states ``(B, s)``."""
        summary = self.summary.expand(state.shape[0], -1, -1)
        tokens = torch.cat((summary, self.from_state(state)[:, None], self.from_action(action)), dim=1)
        seen = torch.cat((real.new_ones(real.shape[0], 2), real), dim=1)
        for layer in self.layers:
            tokens = layer(tokens, self.position, seen)
        mean, log_variance = self.head(self.last_norm(tokens[:, 0])).chunk(2, dim=-1)
        return Style(mean, log_variance)


def make_network(
    obs_shapes: Mapping[str, tuple[int, ...]], action_size: int, steps: int, cfg: NetworkCfg
) -> ChunkMlp | ChunkTransformer:
    """A network of the configured kind with fresh weights, drawn from torch's global generator."""
    kinds = {"mlp": ChunkMlp, "transformer": ChunkTransformer}
    return kinds[cfg.kind](obs_shapes, action_size, steps, cfg)
