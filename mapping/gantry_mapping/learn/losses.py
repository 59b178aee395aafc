"""Losses of the mapping network (paper section V; ame2.md 3.3). Never mix variance and log variance."""

from __future__ import annotations

import torch

BETA = 0.5
"""Exponent of the variance in front of the likelihood."""


def beta_nll(
    mean_m: torch.Tensor, log_variance: torch.Tensor, target_m: torch.Tensor, beta: float = BETA
) -> torch.Tensor:
    """Beta-weighted Gaussian negative log-likelihood per sample.

    ``sg[sigma^(2 beta)] * (ln(sigma^2) / 2 + (y - mu)^2 / (2 sigma^2))``, meant over cells; ``sg`` stops gradients.

    Args:
        mean_m: (B, ...) estimates mu, m.
        log_variance: (B, ...) ln sigma^2, ln m^2.
        target_m: (B, ...) true heights y, m.
        beta: 0 is the likelihood itself, 1 weighs every cell's squared error alike.

    Returns:
        (B,) losses.
    """
    weight = torch.exp(beta * log_variance).detach()
    square = (target_m - mean_m).square()
    return (weight * 0.5 * (log_variance + square * torch.exp(-log_variance))).flatten(1).mean(dim=1)


def total_variation(height_m: torch.Tensor) -> torch.Tensor:
    """(B,) sums of absolute differences between neighbours of (B, 1, rows, cols) over the number of cells, m."""
    along = height_m.diff(dim=-2).abs().flatten(1).sum(dim=1)
    across = height_m.diff(dim=-1).abs().flatten(1).sum(dim=1)
    return (along + across) / (height_m.shape[-2] * height_m.shape[-1])


def sample_weights(target_m: torch.Tensor, epsilon: float = 1e-6, floor: float = 0.0) -> torch.Tensor:
    """Weights of samples by the total variation of their labels, which sum to (nearly) 1.

    Args:
        target_m: (B, 1, rows, cols) true heights, m.
        epsilon: Added to the sum, so that a batch of flat ground has weights of 0.
        floor: Share of the weight that is spread evenly, so that flat ground is not forgotten; the paper has none.

    Returns:
        (B,) weights.
    """
    variation = total_variation(target_m)
    share = variation / (variation.sum() + epsilon)
    return (1.0 - floor) * share + floor / len(target_m)


def mapping_loss(
    mean_m: torch.Tensor,
    log_variance: torch.Tensor,
    target_m: torch.Tensor,
    *,
    beta: float = BETA,
    floor: float = 0.0,
    absolute: float = 0.0,
) -> torch.Tensor:
    """The scalar loss of a batch: :func:`beta_nll` weighted by :func:`sample_weights`.

    Args:
        mean_m: (B, 1, rows, cols) estimates, m.
        log_variance: (B, 1, rows, cols) ln m^2.
        target_m: (B, 1, rows, cols) true heights, m.
        beta: As of :func:`beta_nll`.
        floor: As of :func:`sample_weights`.
        absolute: Weight of the absolute error, which the estimate follows where it is not 0, while the likelihood
            teaches the variance alone. At an edge the ground is up or down: the likelihood's best estimate is in
            between, where nothing is, that of the absolute error is the likelier of the two. The paper has 0.
    """
    estimate = mean_m.detach() if absolute else mean_m
    losses = beta_nll(estimate, log_variance, target_m, beta)
    if absolute:
        losses = losses + absolute * (target_m - mean_m).abs().flatten(1).mean(dim=1)
    return (sample_weights(target_m, floor=floor) * losses).sum()
