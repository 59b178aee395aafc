"""Action values: K networks as batched weights, so that an ensemble is a few large products and not many small ones."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from gantry_policies.off_policy.config import CriticCfg, GripperCfg
from gantry_policies.off_policy.encoders import Features, Summary


class EnsembleLinear(nn.Module):
    """K layers with weights of their own.

    Args:
        heads: K.
        inputs: Numbers in.
        outputs: Numbers out.
    """

    def __init__(self, heads: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(heads, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor, heads: Tensor | None = None) -> Tensor:
        """``(M, B, outputs)`` of ``(M, B, inputs)`` by the M given heads, or by all."""
        weight, bias = (self.weight, self.bias) if heads is None else (self.weight[heads], self.bias[heads])
        return torch.baddbmm(bias, x, weight)


class EnsembleNorm(nn.Module):
    """LayerNorm with a bias of its own for each of K heads.

    There is no gain: before ReLU the next layer's weights can take its part, and it would cost a tenth of the time.
    """

    ones: Tensor
    zeros: Tensor

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(heads, 1, size))
        # torch's kernel is twice as fast with a gain and a bias as without.
        self.register_buffer("ones", torch.ones(size), persistent=False)
        self.register_buffer("zeros", torch.zeros(size), persistent=False)

    def forward(self, x: Tensor, heads: Tensor | None = None) -> Tensor:
        """``(M, B, size)`` of the same."""
        bias = self.bias if heads is None else self.bias[heads]
        return functional.layer_norm(x, x.shape[-1:], self.ones, self.zeros).add_(bias)


class EnsembleMlp(nn.Module):
    """K networks from the same input to one number each.

    Args:
        heads: K.
        inputs: Numbers in.
        hidden: Hidden layers.
        layer_norm: Whether they are normalised, before ReLU.
    """

    def __init__(self, heads: int, inputs: int, hidden: tuple[int, ...], layer_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        sizes = (inputs, *hidden)
        self.layers = nn.ModuleList(EnsembleLinear(heads, a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(EnsembleNorm(heads, size) for size in hidden) if layer_norm else None
        self.last = EnsembleLinear(heads, hidden[-1], 1)

    def forward(self, x: Tensor, heads: Tensor | None = None) -> Tensor:
        """``(M, B)`` of ``(B, inputs)`` by the M given heads (int64 indices), or by all K."""
        x = x.expand(self.heads if heads is None else heads.numel(), *x.shape)
        for index, layer in enumerate(self.layers):
            x = layer(x, heads)
            if self.norms is not None:
                x = self.norms[index](x, heads)
            x = functional.relu_(x)
        return self.last(x, heads).squeeze(-1)


class SpatialTrunk(nn.Module):
    """Reads every channel of the tokens along with state and action, and weighs the channels (ResFiT, 2509.19301)."""

    def __init__(self, tokens: int, width: int, others: int, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(tokens + others, size), nn.LayerNorm(size), nn.ReLU())
        self.channels = nn.Parameter(torch.randn(1, width, size))

    def forward(self, tokens: Tensor, others: Tensor) -> Tensor:
        """``(B, size)`` of tokens ``(B, t, w)`` and the other numbers ``(B, o)``."""
        channels = tokens.transpose(1, 2)
        seen = torch.cat((channels, others[:, None].expand(-1, channels.shape[1], -1)), dim=-1)
        return (self.layers(seen) * self.channels).sum(1)


class Critic(nn.Module):
    """The ensemble, behind a trunk that all heads share where there are images.

    Args:
        cfg: Sizes.
        state_size: Numbers of the state.
        action_size: Numbers of the executed action; what a base wanted of it is no input.
        tokens: Image tokens, 0 without cameras.
        width: Numbers of a token.
    """

    def __init__(self, cfg: CriticCfg, state_size: int, action_size: int, tokens: int = 0, width: int = 0) -> None:
        super().__init__()
        others = state_size + action_size
        self.summary = Summary(tokens, width, cfg.trunk_size) if tokens and cfg.trunk == "summary" else None
        self.spatial = (
            SpatialTrunk(tokens, width, others, cfg.trunk_size) if tokens and cfg.trunk == "spatial" else None
        )
        self.ensemble = EnsembleMlp(cfg.heads, others + (cfg.trunk_size if tokens else 0), cfg.hidden, cfg.layer_norm)

    def forward(self, features: Features, action: Tensor, heads: Tensor | None = None) -> Tensor:
        """Values ``(M, B)`` of executed actions ``(B, n)`` by the M given heads, or by all."""
        x = torch.cat((features.state, action), dim=-1)
        if features.tokens is not None:
            if self.summary is not None:
                x = torch.cat((self.summary(features.tokens), x), dim=-1)
            elif self.spatial is not None:
                x = torch.cat((self.spatial(features.tokens, x), x), dim=-1)
        return self.ensemble(x, heads)


class GripperCritic(nn.Module):
    """Values of the gripper's places, of which it takes the best: a double DQN (arXiv 1509.06461), as in HIL-SERL.

    Args:
        cfg: Places and sizes.
        state_size: Numbers of the state.
        tokens: Image tokens, 0 without cameras.
        width: Numbers of a token.
    """

    places: Tensor

    def __init__(self, cfg: GripperCfg, state_size: int, tokens: int = 0, width: int = 0) -> None:
        super().__init__()
        self.register_buffer("places", torch.tensor(cfg.places), persistent=False)
        self.summary = Summary(tokens, width, cfg.hidden[0]) if tokens else None
        sizes = (state_size + (cfg.hidden[0] if tokens else 0), *cfg.hidden)
        layers: list[nn.Module] = []
        for inputs, size in pairwise(sizes):
            layers += [nn.Linear(inputs, size), nn.LayerNorm(size), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], len(cfg.places)))

    def forward(self, features: Features) -> Tensor:
        """Values ``(B, p)`` of the p places, in units of the reward."""
        if self.summary is None or features.tokens is None:
            return self.layers(features.state)
        return self.layers(torch.cat((self.summary(features.tokens), features.state), dim=-1))

    def completed(self, features: Features, action: Tensor) -> Tensor:
        """Scaled actions ``(B, n)`` of those without a gripper, ``(B, n - 1)``; no gradient goes through the choice."""
        return torch.cat((action, self.places[self(features).argmax(-1, keepdim=True)]), dim=-1)

    def loss(self, features: Features, action: Tensor, target: Tensor) -> Tensor:
        """Mean squared error, a scalar in squared units of the reward, of the places that were commanded.

        Args:
            features: Of B observations, detached.
            action: ``(B, n)``: executed scaled actions; the place nearest to the last number counts.
            target: ``(B,)``.
        """
        taken = (action[:, -1:] - self.places).abs().argmin(-1, keepdim=True)
        return (self(features).gather(1, taken).squeeze(1) - target).square().mean()


def critic_loss(values: Tensor, target: Tensor, kind: str) -> Tensor:
    """Loss, a scalar in squared units of the reward, of K heads against one target.

    ``mean_square`` is the mean over heads and samples of the squared errors. ``squared_mean`` squares the heads' mean
    absolute error, as ResFiT's code does: each head then learns from the errors of all others.

    Args:
        values: ``(K, B)``.
        target: ``(B,)``.
        kind: A name of :data:`~gantry_policies.off_policy.config.CRITIC_LOSSES`.
    """
    error = values - target
    if kind == "squared_mean":
        return error.abs().mean(0).square().mean()
    return error.square().mean()


def conservative_loss(recorded: Tensor, own: Tensor, to_go: Tensor) -> Tensor:
    """Cal-QL's term (arXiv 2303.05479, equation 5.1) for a policy of one action: a scalar, in units of the reward.

    What the policy would do is pressed down, and what was done lifted, unless the policy's value is below what was
    earned from there on, which a value of a better policy cannot be.

    Args:
        recorded: ``(K, B)``, values of recorded actions.
        own: ``(K, B)``, values of the policy's own.
        to_go: ``(B,)``, rewards that were earned to the end, discounted; minus infinity for not known.
    """
    return torch.maximum(own, to_go).mean() - recorded.mean()


def subset_of_heads(heads: int, count: int, generator: torch.Generator) -> Tensor | None:
    """``(count,)`` int64: different heads, drawn at random, on the generator's device; None where all are wanted."""
    if count >= heads:
        return None
    return torch.randperm(heads, generator=generator, device=generator.device)[:count]


def heads_for_policy_loss(reduction: str, heads: int, generator: torch.Generator) -> Tensor | None:
    """Indices ``(M,)`` of the heads that the actor's loss needs; None for all of them.

    Args:
        reduction: A name of :data:`~gantry_policies.off_policy.config.REDUCTIONS`.
        heads: K.
        generator: Of the draw, if there is one.
    """
    if reduction == "q1":
        return torch.zeros(1, dtype=torch.int64, device=generator.device)
    if reduction == "min_random_pair":
        return subset_of_heads(heads, 2, generator)
    return None


def reduced(values: Tensor, reduction: str) -> Tensor:
    """Values ``(B,)``, in units of the reward, whose gradient trains the actor, of the values ``(M, B)`` of the
    heads that :func:`heads_for_policy_loss` chose.
    """
    return values.mean(0) if reduction == "ensemble_mean" else values.amin(0)
