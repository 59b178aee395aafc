"""Actions with bounds: a Beta distribution per action on [-1, 1] (Chou et al., ICML 2017; CaRL, arXiv 2504.17838).

A Gaussian puts probability outside of the bounds, where every action does the same; clipped there, its gradient is
biased. A Beta has none there. With both shapes above 1 it has one peak, and its density is zero at the ends.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from rsl_rl.modules.distribution import Distribution
from torch import Tensor, nn
from torch.nn.functional import softplus

from gantry_hardware.errors import GantryError

LOW, HIGH = -1.0, 1.0
"""Bounds of every action."""
MAX_INIT_STD = 1.0 / math.sqrt(3.0)
"""Standard deviation of the uniform distribution on [-1, 1]; every Beta with one peak stays below it."""
MAX_SHAPE = 1e6
"""Shapes end here, at a standard deviation of about a thousandth, so that nothing overflows."""
EDGE = 1e-6
"""Log-probabilities are those of actions at least this share of the range away from its ends: float32 rounds the
closest samples to the end itself, where the density is zero."""


class BetaActions(Distribution):
    """A distribution of rsl_rl's models: (..., 2 n) numbers, first those of alpha, then those of beta, to n actions.

    alpha, beta = 1 + softplus(numbers), x ~ Beta(alpha, beta), action = 2 x - 1. Log-probability and entropy are those
    of the action, so they hold the map's Jacobian, log 2 per action. rsl_rl has a Beta of its own; this one computes
    in float64 what float32 cannot: differences of log-gamma functions, which at a standard deviation of 0.01 are wrong
    by 0.04, as much as an update changes them. Its numbers are one vector, so that a mixture of experts can answer it.

    Args:
        output_dim: Actions, n.
        init_std: Standard deviation at the start, for an action around 0; see :meth:`start`.

    Raises:
        GantryError: If no Beta with one peak has this standard deviation.
    """

    def __init__(self, output_dim: int, init_std: float = 0.5) -> None:
        super().__init__(output_dim)
        if not 0.0 < init_std < MAX_INIT_STD:
            raise GantryError(f"A Beta policy cannot start with a standard deviation of {init_std}. {INIT_STD_RANGE}")
        self.init_std = init_std
        self._alpha: Tensor | None = None
        self._beta: Tensor | None = None

    @property
    def input_dim(self) -> int:
        """Numbers that the network has to give, 2 n."""
        return 2 * self.output_dim

    def start(self, last_bias: nn.Parameter) -> None:
        """Shift the bias of the network's last layer (..., 2 n), so that quiet numbers mean the initial deviation."""
        shape = (1.0 / self.init_std**2 - 1.0) / 2.0  # alpha = beta = a has a variance of 1 / (2 a + 1) on [-1, 1]
        excess = shape - 1.0
        with torch.no_grad():
            last_bias.add_(excess + math.log(-math.expm1(-excess)))  # the inverse of softplus

    def update(self, mlp_output: Tensor) -> None:
        """Take the network's numbers, (..., 2 n), dimensionless."""
        self._alpha, self._beta = shapes(mlp_output, self.output_dim)

    def sample(self) -> Tensor:
        """Actions in [-1, 1], (..., n)."""
        drawn = torch.distributions.Beta(*self.params, validate_args=False).sample()
        return LOW + (HIGH - LOW) * drawn

    def deterministic_output(self, mlp_output: Tensor) -> Tensor:
        """Mean action in [-1, 1], (..., n), of the network's numbers (..., 2 n)."""
        return mean_of(*shapes(mlp_output, self.output_dim))

    def as_deterministic_output_module(self) -> nn.Module:
        """The same as a module, for the exported graph."""
        return _Mean(self.output_dim)

    @property
    def mean(self) -> Tensor:
        """Mean of the actions in [-1, 1], (..., n)."""
        return mean_of(*self.params)

    @property
    def std(self) -> Tensor:
        """Standard deviation of the actions, (..., n), in the unit of actions in [-1, 1]."""
        alpha, beta = self.params
        total = alpha + beta
        return (HIGH - LOW) * (alpha / total * (beta / total) / (total + 1.0)).sqrt()

    @property
    def params(self) -> tuple[Tensor, Tensor]:
        """alpha and beta, (..., n) each, dimensionless; at least 1."""
        assert self._alpha is not None
        assert self._beta is not None
        return self._alpha, self._beta

    @property
    def entropy(self) -> Tensor:
        """Differential entropy of the actions (..., n), summed over them, (...), in nats."""
        alpha, beta = (value.double() for value in self.params)
        total = alpha + beta
        entropy = (
            _log_beta(alpha, beta)
            - (alpha - 1.0) * torch.digamma(alpha)
            - (beta - 1.0) * torch.digamma(beta)
            + (total - 2.0) * torch.digamma(total)
            + math.log(HIGH - LOW)
        )
        return entropy.sum(dim=-1).to(self.params[0].dtype)

    def log_prob(self, outputs: Tensor) -> Tensor:
        """Log-density of actions (..., n) in [-1, 1], summed over them, (...), in nats; see :data:`EDGE`."""
        alpha, beta = (value.double() for value in self.params)
        x = ((outputs.double() - LOW) / (HIGH - LOW)).clamp(EDGE, 1.0 - EDGE)
        log_prob = (alpha - 1.0) * x.log() + (beta - 1.0) * torch.log1p(-x) - _log_beta(alpha, beta)
        return (log_prob - math.log(HIGH - LOW)).sum(dim=-1).to(self.params[0].dtype)

    def kl_divergence(self, old_params: tuple[Tensor, ...], new_params: tuple[Tensor, ...]) -> Tensor:
        """KL(old || new) of alpha and beta (..., n) each, summed over the actions, (...), in nats."""
        alpha, beta = (value.double() for value in old_params)
        new_alpha, new_beta = (value.double() for value in new_params)
        divergence = (
            _log_beta(new_alpha, new_beta)
            - _log_beta(alpha, beta)
            + (alpha - new_alpha) * torch.digamma(alpha)
            + (beta - new_beta) * torch.digamma(beta)
            + (new_alpha + new_beta - alpha - beta) * torch.digamma(alpha + beta)
        )
        return divergence.sum(dim=-1).to(old_params[0].dtype)


INIT_STD_RANGE = f"Expected more than 0 and less than {MAX_INIT_STD:.3f}, that of a uniform one on [-1, 1]."
"""Expected range of a Beta's initial standard deviation, for messages."""


def shapes(mlp_output: Tensor, actions: int) -> tuple[Tensor, Tensor]:
    """alpha and beta (..., n), dimensionless, of a network's numbers (..., 2 n)."""
    both = (1.0 + softplus(mlp_output)).clamp(max=MAX_SHAPE)
    return both[..., :actions], both[..., actions:]


def mean_of(alpha: Tensor, beta: Tensor) -> Tensor:
    """Mean action 2 alpha / (alpha + beta) - 1, (..., n) in [-1, 1], in a form that is exact around zero."""
    return (alpha - beta) / (alpha + beta)


def mirror_shapes(params: tuple[Tensor, ...], rows: Tensor | slice, mirror: tuple[Tensor, Tensor]) -> None:
    """Mirror rows of alpha and beta (N, n) in place: where an action changes its sign, the two change places."""
    source, sign = mirror
    alpha, beta = (values[rows][:, source] for values in params)
    params[0][rows] = torch.where(sign < 0.0, beta, alpha)
    params[1][rows] = torch.where(sign < 0.0, alpha, beta)


def is_beta(actor: Any) -> bool:
    """Whether an actor's actions are those of a Beta."""
    return isinstance(actor.distribution, BetaActions)


class _Mean(nn.Module):
    def __init__(self, actions: int) -> None:
        super().__init__()
        self.actions = actions

    def forward(self, mlp_output: Tensor) -> Tensor:
        """Numbers (..., 2 n) to actions (..., n)."""
        return mean_of(*shapes(mlp_output, self.actions))


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
