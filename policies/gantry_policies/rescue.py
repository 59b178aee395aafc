"""What was learned is saved before an error ends a training, whatever the error is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from gantry_hardware.errors import GantryError
from gantry_policies.checkpoint import CheckpointError, tell_stderr


@contextlib.contextmanager
def saving_on_error(save: Callable[[], Path | None]) -> Iterator[None]:
    """Save before an error goes on: of the environment, of memory, an interruption.

    Args:
        save: Writes a checkpoint and returns its path; None if nothing was learned since the last one, if what was
            learned is not finite, or if nothing is written at all.

    Raises:
        BaseException: What was raised inside, unchanged.
    """
    try:
        yield
    except CheckpointError:  # it was a checkpoint that could not be written
        raise
    except BaseException:
        try:
            path = save()
        except Exception as error:
            reason = str(error) if isinstance(error, GantryError) else f"{type(error).__name__}: {error}"
            tell_stderr(f"What was learned since the last checkpoint could not be saved: {reason}")
        else:
            if path is not None:
                tell_stderr(f"What was learned until then is saved: {path}")
        raise


def all_finite(state: Any) -> bool:
    """Whether every floating-point number of nested tensors is finite: weights, statistics, an optimiser's moments."""
    if isinstance(state, torch.Tensor):
        return not state.is_floating_point() or bool(torch.isfinite(state).all())
    if isinstance(state, dict):
        return all(all_finite(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return all(all_finite(value) for value in state)
    return True
