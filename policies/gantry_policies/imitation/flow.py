"""Chunks of actions by flow matching (arXiv 2210.02747), as pi0 (arXiv 2410.24164) draws them.

The network learns the velocity of a straight way from noise to the demonstrated chunk. A plan is drawn by following it
in a few steps from one noise, which is drawn once with the weights and kept, so that the policy is a function of what
it sees.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gantry_policies.common.batched_env import Observation
from gantry_policies.imitation.config import NetworkCfg
from gantry_policies.imitation.sight import Scene, SceneEncoder, label_head
from gantry_policies.networks.language.token_layers import DecoderLayer, learned_positions

FREQUENCIES = 16
"""Sines by which the network is told how far along the way it is."""


class ChunkFlow(nn.Module):
    """Network from what is seen, and a chunk part of the way from noise to action, to the chunk's velocity.

    Args:
        obs_shapes: Shape of one observation, by key.
        action_size: n.
        steps: T.
        cfg: Sizes.
    """

    noise: Tensor

    def __init__(
        self, obs_shapes: Mapping[str, tuple[int, ...]], action_size: int, steps: int, cfg: NetworkCfg
    ) -> None:
        super().__init__()
        self.flow_steps = cfg.flow_steps
        self.scene = SceneEncoder(obs_shapes, cfg)
        self.from_action, self.head = nn.Linear(action_size, cfg.width), nn.Linear(cfg.width, action_size)
        self.from_time = nn.Sequential(
            nn.Linear(2 * FREQUENCIES, cfg.width), nn.SiLU(), nn.Linear(cfg.width, cfg.width)
        )
        self.query = learned_positions(steps, cfg.width)
        sizes = (cfg.width, cfg.heads, cfg.feedforward, cfg.dropout)
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(cfg.decoder_layers))
        self.last_norm = nn.LayerNorm(cfg.width)
        self.label_head = label_head(cfg.width, cfg)
        self.register_buffer("noise", torch.randn(1, steps, action_size))

    @property
    def image_encoder(self) -> nn.Module:
        """Encoder of the images, which has a learning rate of its own."""
        return self.scene.image_encoder

    def forward(self, obs: Observation) -> Tensor:
        """``(B, T, n)``: the plan that the kept noise leads to, of observations ``(B, ...)`` by key."""
        scene = self.scene(obs)
        chunk = self.noise.expand(scene.tokens.shape[0], -1, -1)
        for step in range(self.flow_steps):
            time = torch.full_like(chunk[:, 0, 0], step / self.flow_steps)
            chunk = chunk + self.velocity(scene, chunk, time) / self.flow_steps
        return chunk

    def error(self, obs: Observation, action: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Mean square of the velocity's error, over the real steps, at times and noises drawn anew, and a summary
        ``(B, d)`` of what is seen.

        Args:
            obs: ``(B, ...)`` by key, the state standardised.
            action: ``(B, T, n)``, standardised.
            real: ``(B, T)`` bool, which steps are of the episode.
        """
        noise = torch.randn_like(action)
        # More of the times near the noise, where it is decided which way a chunk goes (pi0, appendix B).
        time = 1.0 - torch.rand(len(action), device=action.device).pow(1.0 / 1.5)
        share = time[:, None, None]
        scene = self.scene(obs)
        velocity = self.velocity(scene, (1.0 - share) * noise + share * action, time)
        counted = real[..., None].expand_as(action)
        return ((velocity - (action - noise)).square() * counted).sum() / counted.sum(), scene.summary

    def velocity(self, scene: Scene, chunk: Tensor, time: Tensor) -> Tensor:
        """``(B, T, n)``, per unit of time.

        Args:
            scene: Tokens of what is seen.
            chunk: ``(B, T, n)``, on the way.
            time: ``(B,)``, 0 at the noise, 1 at the action.
        """
        steps = self.from_action(chunk) + self.from_time(_sines(time))[:, None]
        for layer in self.decoder:
            steps = layer(steps, self.query, scene.tokens, scene.position, scene.seen)
        return self.head(self.last_norm(steps))


def _sines(time: Tensor) -> Tensor:
    """``(B, 2 FREQUENCIES)`` of times ``(B,)`` from 0 to 1."""
    rates = torch.exp(torch.linspace(0.0, math.log(100.0), FREQUENCIES, device=time.device))
    angle = time[:, None] * rates
    return torch.cat((angle.sin(), angle.cos()), dim=1)
