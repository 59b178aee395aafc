"""Checkpoints before an error ends a training; see :mod:`gantry_hardware.rescue`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gantry_hardware.rescue import saving_on_error as _saving_on_error
from gantry_policies.common.checkpoint import CheckpointError


def saving_on_error(save: Callable[[], Path | None]) -> contextlib.AbstractContextManager[None]:
    """Save before an error goes on, unless a checkpoint could not be written.

    Args:
        save: As for :func:`gantry_hardware.rescue.saving_on_error`.
    """
    return _saving_on_error(save, CheckpointError)


def all_finite(state: Any) -> bool:
    """Whether every floating-point number of nested tensors is finite: weights, statistics, an optimiser's moments."""
    if isinstance(state, torch.Tensor):
        return not state.is_floating_point() or bool(torch.isfinite(state).all())
    if isinstance(state, dict):
        return all(all_finite(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return all(all_finite(value) for value in state)
    return True
