"""End of commands that train: the way to go on after an end that came early, and scores in the curves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantry_hardware.errors import GantryError


@contextlib.contextmanager
def way_back(folder: Path) -> Iterator[None]:
    """Tell how a run is continued, if it has a checkpoint, before an error or an interruption goes on.

    Args:
        folder: Of the run.
    """
    from gantry_hardware.training.trainer import CHECKPOINTS
    from gantry_policies.common.checkpoint import UnusableCheckpointError, list_checkpoints

    try:
        yield
    except UnusableCheckpointError:  # it would only say so again
        raise
    except BaseException:
        if list_checkpoints(folder / CHECKPOINTS):
            print(f"Continue with: gantry train --resume {folder}", file=sys.stderr)
        raise


def log_scores(folder: Path, scores: dict[str, Any], step: int) -> None:
    """Add the scores of an evaluation to the curves of a run.

    Args:
        folder: Of the run.
        scores: As they are written into its evaluation.
        step: Environment steps of the training, or updates of a clone.

    Raises:
        GantryError: If they cannot be written.
    """
    from gantry_hardware.training.log import log_evaluation

    try:
        log_evaluation(folder, scores, step)
    except OSError as error:
        raise GantryError(f"Cannot write the scores into '{folder}': {error.strerror or error}.") from error
