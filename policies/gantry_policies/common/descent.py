"""Optimisers of several networks that learn from losses of their own, and targets that follow them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gantry_policies.common import processes


class Descent:
    """Networks by name, of which each that learns has an optimiser of its own.

    Args:
        networks: By name; ``NAME_target`` follows ``NAME``.
        max_grad_norm: Gradients of each network are scaled down to this norm.
    """

    def __init__(self, networks: Mapping[str, nn.Module], max_grad_norm: float) -> None:
        # Walking through modules for their parameters takes longer than some of the products, so it is done once.
        self._parameters = {name: list(network.parameters()) for name, network in networks.items()}
        self._max_grad_norm = max_grad_norm
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        """By the name of the network."""

    def learn(self, name: str, learning_rate: float, weight_decay: float = 0.0) -> None:
        """Give a network an optimiser, AdamW."""
        parameters = self._parameters[name]
        self.optimizers[name] = torch.optim.AdamW(parameters, learning_rate, weight_decay=weight_decay, fused=True)

    def step(self, loss: Tensor, *names: str) -> Tensor:
        """One step of the named networks alone, down a scalar loss; the first one's gradient norm before clipping, a
        scalar in units of the loss.
        """
        groups = [self._parameters[name] for name in names]
        gradients = iter(torch.autograd.grad(loss, [*itertools.chain(*groups)]))
        norms = []
        for name, group in zip(names, groups, strict=True):
            for parameter in group:
                parameter.grad = next(gradients)
            processes.average_([parameter.grad for parameter in group if parameter.grad is not None])
            norms.append(nn.utils.clip_grad_norm_(group, self._max_grad_norm, foreach=True))
            self.optimizers[name].step()
        return norms[0]

    @torch.no_grad()
    def follow(self, name: str, tau: float) -> None:
        """Move a network's target toward it by a share of the way."""
        for target, online in zip(self._parameters[f"{name}_target"], self._parameters[name], strict=True):
            target.lerp_(online, tau)
