"""End of commands that train: the way to go on after an end that came early, and scores in the curves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_hardware.errors import GantryError
from gantry_sim.cli.common import steps_text

if TYPE_CHECKING:
    from gantry_hardware.training.trainer import Trainer
    from gantry_sim.training.run_cfg import RunCfg


@contextlib.contextmanager
def way_back(folder: Path, also: str = "") -> Iterator[None]:
    """Tell how a run is continued, if it has a checkpoint, before an error or an interruption goes on.

    Args:
        folder: Of the run.
        also: Options that are needed again, for example ``--listen 127.0.0.1:50051``.
    """
    from gantry_hardware.training.trainer import CHECKPOINTS
    from gantry_policies.common.checkpoint import UnusableCheckpointError, list_checkpoints

    try:
        yield
    except UnusableCheckpointError:  # it would only say so again
        raise
    except BaseException:
        if list_checkpoints(folder / CHECKPOINTS):
            print(f"Continue with: gantry train --resume {folder}{also and f' {also}'}", file=sys.stderr)
        raise


def stopped_text(trainer: Trainer) -> str:
    """Place at which a training was stopped, and what that costs."""
    return f"Stopped at {trainer.unit} {trainer.done} of {trainer.total}; {cost_text(trainer.redone)}."


def cost_text(redone: str) -> str:
    """Cost of a stop, a clause, by what is to be done again."""
    return f"{redone}, which had begun, is done again" if redone else "nothing is lost"


def over_text(run: RunCfg, folder: Path, trainer: Trainer, also: str = "") -> str:
    """End of a training that was resumed though nothing was left to do, and how it can be made longer.

    Args:
        run: As it is written down.
        folder: Its folder.
        trainer: The training as it was resumed.
        also: Options that are needed again, as of :func:`way_back`.
    """
    from gantry_sim.training.run_folder import algorithm_of

    place = f"{trainer.unit} {trainer.done} of {trainer.total}"
    if not trainer.is_complete:
        over = f"This run is complete: its {run.minutes:g} minutes are over, at {place}."
        return f"{over} Nothing was trained.\nA longer one is a new run, with a larger --minutes."
    algorithm = algorithm_of(run)
    text = f"This run is complete: {place}. Nothing was trained."
    if algorithm.length not in algorithm.may_grow:
        return f"{text}\nSuch a run stays as long as it was; a longer one is a new run, with a larger --steps."
    longer = 2 * int(getattr(run.preset.learner, algorithm.length))
    return f"{text}\nGo further with: gantry train --resume {folder} --steps {steps_text(longer)}{also and f' {also}'}"


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
