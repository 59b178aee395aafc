"""Demonstrations from a dataset of physical values, or from the attempts of a correction session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gantry_deploy.dataset.notes import COMMAND, PHYSICAL, read_notes, recorded_contract, values_of
from gantry_deploy.dataset.storage.checksums import require_checksums
from gantry_deploy.session.records.dataset import SessionReader
from gantry_deploy.session.steps import SessionStep
from gantry_hardware.errors import GantryError
from gantry_sim.training.demos import (
    SESSION,
    DemoSet,
    expected_demos,
    read_dataset,
    require_session,
    session_numbers,
)
from gantry_sim.training.run_cfg import RunCfg

_LOG = logging.getLogger("gantry.dataset")


def read_demos(folder: Path, run: RunCfg, on_read: Callable[[float], None] = lambda share: None) -> DemoSet:
    """Demonstrations in the numbers of a run's policies.

    Of a correction session all successful attempts are taken, corrected or not.

    Args:
        folder: Of the dataset.
        run: What is trained.
        on_read: Told the share of a dataset's episodes that has been read.

    Raises:
        DatasetError: If it is no dataset, has changed since it was written, or is of something else than the task.
        GantryError: If it holds no episode, or no successful attempt.
    """
    notes = read_notes(folder) if folder.is_dir() else None
    if notes is None or values_of(notes) == PHYSICAL:
        return read_dataset(folder, expected_demos(run), on_read)
    if values_of(notes) == COMMAND:
        raise GantryError(f"In the session in '{folder}' commands were corrected, which are no actions to learn from.")
    require_checksums(folder)
    numbers = session_numbers(notes["task"], recorded_contract(notes, folder))
    require_session(numbers, run, folder)
    reader = SessionReader(folder)
    attempts = [reader.steps(number) for number in range(reader.num_episodes)]
    won = [steps for steps in attempts if steps[-1].success]
    if not won:
        raise GantryError(f"None of the {len(attempts)} attempts of the session in '{folder}' succeeded.")
    if failed := len(attempts) - len(won):
        _LOG.info("%d of %d attempts in '%s' have failed and are left out.", failed, len(attempts), folder)
    return _demo_set([step for steps in won for step in steps], [len(steps) for steps in won], {SESSION: numbers})


def _demo_set(steps: list[SessionStep], lengths: list[int], described: dict[str, object]) -> DemoSet:
    obs = {name: torch.from_numpy(np.stack([step.obs[name] for step in steps])) for name in steps[0].obs}
    return DemoSet(
        obs=obs,
        action=torch.from_numpy(np.stack([step.action for step in steps])),
        reward=torch.tensor([step.reward for step in steps]),
        lengths=tuple(lengths),
        terminated=(True,) * len(lengths),
        succeeded=(True,) * len(lengths),
        described=described,
    )
