"""From derivatives to steps: a method that knows nothing about cars."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gantry_sim.driving.vehicle.car_params import CarParams

Rates = Callable[[Tensor, Tensor, CarParams], Tensor]
"""(state (..., N, D), inputs (..., N, 2), parameters) to d(state)/dt."""


def damped_delta(
    rates: Rates, state: Tensor, inputs: Tensor, params: CarParams, step_s: float, stiff: Mapping[int, float]
) -> Tensor:
    """Change of some columns by an implicit Euler step that is linear, and each column for itself.

    A column changes by h f / (1 - h min(df, 0)), where df is the slope of its own rate f. So it never changes by more
    than an explicit step would, however stiff; slopes that point upwards, as those of a tyre beyond its peak, are left
    out, since solving for them would shoot far beyond what any force could do.

    Args:
        rates: Right-hand side; must broadcast parameters (N,) over leading dimensions.
        state: (N, D).
        inputs: (N, 2).
        params: Of the N cars.
        step_s: Length h of the step.
        stiff: Column of the state to how far it is moved for the slope's finite difference, in the column's unit.

    Returns:
        (N, D), zero in all other columns.
    """
    columns, moves = list(stiff), torch.tensor(list(stiff.values()), dtype=state.dtype, device=state.device)
    # All points in one batch: the state itself, then with one column moved each.
    points = state.repeat(len(columns) + 1, 1, 1)
    for row, column in enumerate(columns):
        points[row + 1, :, column] += stiff[column]
    values = rates(points, inputs.expand(len(points), *inputs.shape), params)[..., columns]
    slopes = (values[1:].diagonal(dim1=0, dim2=2) - values[0]) / moves
    delta = torch.zeros_like(state)
    delta[:, columns] = step_s * values[0] / (1.0 - step_s * torch.clamp(slopes, max=0.0))
    return delta
