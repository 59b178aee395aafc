"""Cost of a network: parameters and operations of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class NetworkCost:
    """Cost of one network."""

    parameters: int
    """Trainable numbers."""
    flops: int
    """Floating-point operations of one observation's forward pass, a multiply-add counted as two; matrix products and
    convolutions only, as usual."""


def network_cost(network: nn.Module, observation_size: int) -> NetworkCost:
    """Count a network that maps (1, observation_size) to anything, for example ``model.as_onnx()``."""
    device = next(network.parameters()).device
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        network(torch.zeros(1, observation_size, device=device))
    parameters = sum(values.numel() for values in network.parameters() if values.requires_grad)
    return NetworkCost(parameters, int(counter.get_total_flops()))
