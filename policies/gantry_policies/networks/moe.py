"""A soft mixture of experts (AME-2's critic): every expert answers, a router weighs the answers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from rsl_rl.models import MLPModel
from rsl_rl.modules import MLP
from rsl_rl.utils import resolve_nn_activation
from torch import Tensor, nn

from gantry_hardware.errors import GantryError


class MixtureOfExperts(nn.Module):
    """sum_e softmax(router(x))_e expert_e(x): dense, without a balancing loss; (N, inputs) -> (N, outputs).

    The experts' layers are stacked, so that all of them are one batched product.

    Args:
        inputs: Numbers in.
        outputs: Numbers out.
        hidden: Hidden layers of every expert and of the router.
        experts: How many.
        activation: Between layers, by rsl_rl's name.

    Raises:
        GantryError: If there is no expert.
    """

    def __init__(self, inputs: int, outputs: int, hidden: tuple[int, ...], experts: int, activation: str) -> None:
        super().__init__()
        if experts < 1:
            raise GantryError(f"A mixture of {experts} experts was asked for, expected at least 1.")
        self.experts = experts
        self.router = MLP(inputs, experts, hidden, activation)
        self.first = nn.Linear(inputs, experts * hidden[0])
        self.activation = resolve_nn_activation(activation)
        sizes = (*hidden, outputs)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise(sizes):
            bound = 1.0 / math.sqrt(before)  # as nn.Linear begins
            self.weights.append(nn.Parameter(torch.empty(experts, before, after).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(experts, 1, after).uniform_(-bound, bound)))

    def forward(self, values: Tensor) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        shares = torch.softmax(self.router(values), dim=-1)
        hidden = self.first(values).reshape(values.shape[0], self.experts, -1).transpose(0, 1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = torch.baddbmm(bias, self.activation(hidden), weight)
        return torch.einsum("ne,eno->no", shares, hidden)

    def scale_last_layer(self, factor: float) -> None:
        """Multiply the last layer of every expert."""
        with torch.no_grad():
            self.weights[-1].mul_(factor)
            self.biases[-1].mul_(factor)


class MixtureModel(MLPModel):
    """rsl_rl's flat model with a mixture of experts in place of the MLP.

    Args:
        args: As for rsl_rl's ``MLPModel``.
        experts: How many.
        kwargs: As for rsl_rl's ``MLPModel``; ``hidden_dims`` are those of each expert.
    """

    def __init__(self, *args: Any, experts: int = 16, hidden_dims: tuple[int, ...], **kwargs: Any) -> None:
        super().__init__(*args, hidden_dims=hidden_dims, **kwargs)
        if self.distribution is not None and not isinstance(self.distribution.input_dim, int):
            raise GantryError("A mixture of experts needs a distribution with one vector of parameters.")
        outputs = [layer for layer in self.mlp.modules() if isinstance(layer, nn.Linear)][-1].out_features
        activation = kwargs.get("activation", "elu")
        self.mlp = MixtureOfExperts(self.obs_dim, outputs, tuple(hidden_dims), experts, activation)  # type: ignore
