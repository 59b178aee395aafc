"""Actor networks trained by the critic's gradient: squashed Gaussian or deterministic, alone or as
a bounded correction of a base; or a clone that plans chunks."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gantry_hardware.errors import GantryError
from gantry_policies.imitation.data import Chunks
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.off_policy.config import ActorCfg, LearnerCfg
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
        return noisy(self.act_deterministic(features, base, scale).correction, base, noise)


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


class PlanActor(nn.Module):
    """A cloned policy in an actor's place: it plans chunks, and the steps that are executed count as one action.

    Args:
        clone: Is copied; its network, scalers and eyes are trained from where they are.
        execute: h, steps of a plan that are executed, at most T.
    """

    def __init__(self, clone: BcPolicy, execute: int) -> None:
        super().__init__()
        self.policy = copy.deepcopy(clone).requires_grad_(True).eval()
        self.execute = execute

    def act_deterministic(self, features: Features, base: Tensor | None, scale: float) -> ActorOutput:
        """The executed steps ``(B, h n)`` in [-1, 1], one after the other; see :meth:`Actor.act_deterministic`."""
        del base, scale
        assert features.obs is not None
        plan = clamp(self.policy.unlimited(features.obs)[:, : self.execute].flatten(1))
        return ActorOutput(plan, plan)

    def sample(self, features: Features, base: Tensor | None, scale: float, noise: Noise) -> ActorOutput:
        """The same with noise."""
        return noisy(self.act_deterministic(features, base, scale).action, None, noise)

    def imitation_loss(self, features: Features, action: Tensor, is_real: Tensor) -> Tensor:
        """The loss of cloning, a scalar, dimensionless, as the clone was trained with.

        Args:
            features: Of B observations.
            action: Recorded chunks ``(B, T n)`` in [-1, 1].
            is_real: ``(B, T)`` bool: steps of the episode.
        """
        assert features.obs is not None
        chunks = Chunks(features.obs, action.unflatten(1, (is_real.shape[1], -1)), is_real)
        self.policy.train()  # A flow is trained by another loss than its plans are judged by.
        loss = self.policy.losses(chunks)["loss"]
        self.policy.eval()
        return loss


def make_actor(
    cfg: LearnerCfg, clone: BcPolicy | None, state_size: int, action_size: int, tokens: int, width: int
) -> Actor | PlanActor:
    """A fresh actor as a learner's configuration wants it, or one that plans as a clone does.

    Args:
        cfg: The configuration.
        clone: Policy that plans chunks; None for an actor of single actions.
        state_size: Numbers of the state.
        action_size: n.
        tokens: Image tokens, 0 without cameras.
        width: Numbers of a token.

    Raises:
        GantryError: If a clone is missing, out of place, or plans otherwise.
    """
    if cfg.chunk_steps:
        return PlanActor(require_clone(cfg, clone), cfg.n_step)
    if clone is not None:
        raise GantryError("learner.agent.chunk_steps is 0, but there is a clone that plans chunks; expected none.")
    kind = {"sac": GaussianActor, "td3": DeterministicActor}[cfg.actor.kind]
    return kind(cfg.actor, state_size, action_size, tokens, width)


def require_clone(cfg: LearnerCfg, clone: BcPolicy | None) -> BcPolicy:
    """The clone, if a learner of this configuration can learn it further.

    Raises:
        GantryError: With what it has and what is expected.
    """
    if clone is None:
        raise GantryError(f"learner.agent.chunk_steps is {cfg.chunk_steps}, which needs a clone to begin with.")
    if clone.cfg.chunk_steps != cfg.chunk_steps:
        raise GantryError(
            f"learner.agent.chunk_steps is {cfg.chunk_steps}, the clone plans {clone.cfg.chunk_steps}; set "
            f"learner.agent.chunk_steps={clone.cfg.chunk_steps}, and learner.agent.n_step to the steps to execute."
        )
    if clone.cfg.action_limit != 1.0:
        raise GantryError(f"The clone's learner.action_limit is {clone.cfg.action_limit}, expected 1.")
    if clone.cfg.network.latent:
        raise GantryError(
            f"The clone's network.latent is {clone.cfg.network.latent}, expected 0: styles are not learned further."
        )
    return clone


def noisy(own: Tensor, base: Tensor | None, noise: Noise) -> ActorOutput:
    """Actions ``(B, n)`` in [-1, 1] of an actor's share and a base's with clipped noise, which is not scaled."""
    drawn = torch.empty_like(own).normal_(generator=noise.generator) * noise.std
    own = own + drawn.clamp(-noise.clip, noise.clip)
    return ActorOutput(clamp(own if base is None else base + own), own)


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
