"""Networks that plan a chunk of actions at once, over standardised numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.imitation.config import NetworkCfg
from gantry_policies.imitation.flow import ChunkFlow
from gantry_policies.imitation.image_encoder import ImageEncoder
from gantry_policies.imitation.sight import SceneEncoder, label_head, numbers_of
from gantry_policies.networks.language.film import scale_and_shift
from gantry_policies.networks.language.token_layers import DecoderLayer, EncoderLayer, learned_positions
from gantry_policies.networks.language.words import WordEncoder, split_words
from gantry_policies.off_policy.encoders import Summary


class ChunkMlp(nn.Module):
    """The whole chunk from one hidden state; of images, a few numbers.

    Words scale and shift every layer (FiLM, arXiv 1709.07871): which of several things they name is a product of words
    and places, and side by side with the places they need ten times the demonstrations.

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
        said = cfg.width if cfg.vocabulary else 0
        self.image_encoder = ImageEncoder(obs_shapes, cfg.image_encoder, said)
        seen = self.image_encoder.tokens * self.image_encoder.width
        self.summary: nn.Module | None = None
        if seen and cfg.image_encoder.kind == "keypoints":
            self.summary = nn.Flatten()
        elif seen:
            seen, self.summary = (
                cfg.image_size,
                Summary(self.image_encoder.tokens, seen // self.image_encoder.tokens, cfg.image_size),
            )
        self.vocabulary = cfg.vocabulary
        self.words = (
            WordEncoder(cfg.vocabulary, cfg.width, cfg.heads, cfg.feedforward, cfg.word_layers, cfg.dropout)
            if cfg.vocabulary
            else None
        )
        sizes = [numbers_of(obs_shapes, cfg) + seen, *cfg.hidden]
        self.layers, self.norms, self.scales = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for before, after in pairwise(sizes):
            self.layers.append(nn.Linear(before, after))
            self.norms.append(nn.LayerNorm(after))
            if self.words is not None:
                self.scales.append(nn.Linear(cfg.width, 2 * after))
        self.dropout = nn.Dropout(cfg.dropout)
        self.head = nn.Linear(sizes[-1], steps * action_size)
        self.label_head = label_head(seen + said if seen else sizes[-1], cfg)
        self.shape = (steps, action_size)

    def forward(self, obs: Observation) -> Tensor:
        """``(B, T, n)`` of observations ``(B, ...)`` whose state is standardised."""
        return self.planned(obs)[0]

    def planned(self, obs: Observation) -> tuple[Tensor, Tensor]:
        """The plan ``(B, T, n)``, and a summary ``(B, w)`` of images and words, or of numbers and words without
        images."""
        numbers, words = split_words(obs[STATE], self.vocabulary)
        said = None if self.words is None or words is None else self.words.summary(words)
        seen = None if self.summary is None else self.summary(self.image_encoder(obs, said))
        hidden = numbers if seen is None else torch.cat((numbers, seen), dim=1)
        for index, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            hidden = norm(layer(hidden))
            if said is not None:
                hidden = scale_and_shift(hidden, self.scales[index](said))
            hidden = self.dropout(torch.relu(hidden))
        summary = hidden if seen is None else seen if said is None else torch.cat((seen, said), dim=1)
        return self.head(hidden).unflatten(1, self.shape), summary


class ChunkTransformer(nn.Module):
    """ACT (arXiv 2304.13705): what is seen attends to itself, then one query per step attends to it.

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
        self.scene = SceneEncoder(obs_shapes, cfg)
        self.style = StyleEncoder(numbers_of(obs_shapes, cfg), action_size, steps, cfg) if cfg.latent else None
        self.query = learned_positions(steps, width)
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(cfg.decoder_layers))
        self.last_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, action_size)
        self.label_head = label_head(width, cfg)

    @property
    def image_encoder(self) -> nn.Module:
        """Encoder of the images, which has a learning rate of its own."""
        return self.scene.image_encoder

    def forward(self, obs: Observation, latent: Tensor | None = None) -> Tensor:
        """``(B, T, n)``.

        Args:
            obs: ``(B, ...)`` by key, the state standardised.
            latent: ``(B, latent)``: the style to act in; zero, the mean of all, if None.
        """
        return self.planned(obs, latent)[0]

    def planned(self, obs: Observation, latent: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The plan ``(B, T, n)``, and a summary of what is seen, ``(B, width)``; arguments as of :meth:`forward`."""
        scene = self.scene(obs, latent)
        # Beginning at zeros, as DETR does, steps that see one token alone could never be told apart.
        steps = self.query.expand(scene.tokens.shape[0], -1, -1)
        for layer in self.decoder:
            steps = layer(steps, self.query, scene.tokens, scene.position, scene.seen)
        return self.head(self.last_norm(steps)), scene.summary


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
) -> ChunkMlp | ChunkTransformer | ChunkFlow:
    """A network of the configured kind with fresh weights, drawn from torch's global generator."""
    kinds = {"mlp": ChunkMlp, "transformer": ChunkTransformer, "flow": ChunkFlow}
    return kinds[cfg.kind](obs_shapes, action_size, steps, cfg)
