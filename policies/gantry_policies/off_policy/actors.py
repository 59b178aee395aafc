"""Actor networks trained by the critic's gradient: squashed Gaussian or deterministic, alone or as
a bounded correction of a base."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gantry_policies.off_policy.config import ActorCfg
from gantry_policies.off_policy.encoders import Features, Summary

LOG_STD_RANGE = (-10.0, 2.0)
"""Of a squashed Gaussian, before squashing."""


@dataclass(frozen=True)
class ActorOutput:
    """Actions of an actor."""

    action: Tensor
    """``(B, n)``: what is executed, clamped to [-1, 1]; gradients pass the clamp."""
    correction: Tensor
    """``(B, n)``: the actor's share of it: the correction of a base, or everything."""
    log_prob: Tensor | None = None
    """``(B,)``: of a sample of a squashed Gaussian."""


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on deterministic actions, in units of the scaled action whatever the largest correction."""

    std: float
    """Standard deviation."""
    clip: float = math.inf
    """It is clipped to it."""
    generator: torch.Generator | None = None
    """Of the draws, on the actions' device."""


class Actor(nn.Module):
    """A network over state, image tokens and the base's action; subclasses turn its output into an action.

    The last layer of a residual actor is zero at the start, so that its correction is exactly zero.

    Args:
        cfg: Sizes.
        state_size: Numbers of the state.
        action_size: n.
        outputs: Numbers for each of n that the subclass needs.
        tokens: Image tokens, 0 without cameras.
        width: Numbers of a token.
    """

    def __init__(
        self, cfg: ActorCfg, state_size: int, action_size: int, outputs: int, tokens: int = 0, width: int = 0
    ) -> None:
        super().__init__()
        self.residual = cfg.residual
        self.summary = Summary(tokens, width, cfg.image_size) if tokens else None
        inputs = state_size + (cfg.image_size if tokens else 0) + (action_size if cfg.residual else 0)
        layers: list[nn.Module] = []
        for size in cfg.hidden:
            layers += [nn.Linear(inputs, size), *([nn.LayerNorm(size)] if cfg.layer_norm else []), nn.ReLU()]
            inputs = size
        self.body = nn.Sequential(*layers)
        self.last = nn.Linear(inputs, outputs * action_size)
        if cfg.residual:
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

    def act_deterministic(self, features: Features, base: Tensor | None, scale: float) -> ActorOutput:
        """The deterministic action, ``(B, n)`` in [-1, 1], of evaluation.

        Args:
            features: Of B observations.
            base: ``(B, n)``: the base's actions in [-1, 1]; None for an actor without one.
            scale: Largest correction; of no effect without a base.
        """
        raise NotImplementedError

    def sample(self, features: Features, base: Tensor | None, scale: float, noise: Noise) -> ActorOutput:
        """An action ``(B, n)`` in [-1, 1] with noise; arguments as of :meth:`act_deterministic`."""
        raise NotImplementedError

    def outputs(self, features: Features, base: Tensor | None) -> Tensor:
        """Numbers ``(B, outputs * n)``, dimensionless, of the last layer."""
        parts = [features.state]
        if self.summary is not None and features.tokens is not None:
            parts.append(self.summary(features.tokens))
        if base is not None:
            parts.append(base)
        return self.last(self.body(torch.cat(parts, dim=-1)))


class DeterministicActor(Actor):
    """One action for an observation (TD3, arXiv 1802.09477), with noise from outside."""

    def __init__(self, cfg: ActorCfg, state_size: int, action_size: int, tokens: int = 0, width: int = 0) -> None:
        super().__init__(cfg, state_size, action_size, 1, tokens, width)

    def act_deterministic(self, features: Features, base: Tensor | None, scale: float) -> ActorOutput:
        """See :meth:`Actor.act_deterministic`."""
        own = torch.tanh(self.outputs(features, base))
        return _composed(own, base, scale)

    def sample(self, features: Features, base: Tensor | None, scale: float, noise: Noise) -> ActorOutput:
        """See :meth:`Actor.sample`; the noise is not scaled."""
        chosen = self.act_deterministic(features, base, scale)
        drawn = torch.empty_like(chosen.correction).normal_(generator=noise.generator) * noise.std
        own = chosen.correction + drawn.clamp(-noise.clip, noise.clip)
        return ActorOutput(clamp(own if base is None else base + own), own)


class GaussianActor(Actor):
    """A Gaussian squashed by tanh (SAC, arXiv 1812.05905)."""

    def __init__(self, cfg: ActorCfg, state_size: int, action_size: int, tokens: int = 0, width: int = 0) -> None:
        super().__init__(cfg, state_size, action_size, 2, tokens, width)

    def act_deterministic(self, features: Features, base: Tensor | None, scale: float) -> ActorOutput:
        """See :meth:`Actor.act_deterministic`: the Gaussian's mean, squashed."""
        mean, _ = self.outputs(features, base).chunk(2, dim=-1)
        return _composed(torch.tanh(mean), base, scale)

    def sample(self, features: Features, base: Tensor | None, scale: float, noise: Noise) -> ActorOutput:
        """See :meth:`Actor.sample`; with ``(B,)`` log-probabilities before any scaling. Only the generator counts."""
        mean, log_std = self._gaussian(features, base)
        drawn = torch.empty_like(mean).normal_(generator=noise.generator)
        raw = mean + log_std.exp() * drawn
        # log(1 - tanh(x)^2), in a form that stays finite.
        squash = 2.0 * (math.log(2.0) - raw - functional.softplus(-2.0 * raw))
        log_prob = -0.5 * drawn.square() - log_std - 0.5 * math.log(2.0 * math.pi) - squash
        chosen = _composed(torch.tanh(raw), base, scale)
        return ActorOutput(chosen.action, chosen.correction, log_prob.sum(-1))

    def _gaussian(self, features: Features, base: Tensor | None) -> tuple[Tensor, Tensor]:
        mean, log_std = self.outputs(features, base).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD_RANGE)


def clamp(action: Tensor) -> Tensor:
    """An action ``(B, n)`` in [-1, 1] whose gradient is that of the action before: what saturates must find its way
    back.
    """
    return action + (action.clamp(-1.0, 1.0) - action).detach()


def _composed(squashed: Tensor, base: Tensor | None, scale: float) -> ActorOutput:
    if base is None:
        return ActorOutput(squashed, squashed)
    own = scale * squashed
    return ActorOutput(clamp(base + own), own)
