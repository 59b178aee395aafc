"""Policies that others build upon: read from a run, and kept in the run folder of the policy that learns on top."""

from __future__ import annotations

import shutil
from pathlib import Path

from gantry_deploy.bundle.locate import RUN_CONFIG
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.policy import POLICIES, BcPolicy, list_policies, load_policy
from gantry_sim.training.run_cfg import RunCfg, Spaces
from gantry_sim.training.run_folder import BASE_FOLDER, read_run, require_same_task
from gantry_sim.training.run_validation import RunError


def open_base(folder: Path, run: RunCfg) -> BcPolicy:
    """The cloned policy in a run folder.

    Args:
        folder: Of its run, or a run's own copy of it.
        run: Run that builds upon it.

    Raises:
        RunError: If it is no run of a cloned policy, or one that sees or does something else.
        CheckpointError: If it has no policy yet.
    """
    theirs = read_run(folder)
    if not isinstance(theirs.preset.learner, BcCfg):
        raise RunError(f"'{folder}' is a run of preset '{theirs.preset_name}', expected one that cloned a policy (bc).")
    if run.task.has_contract and theirs.task.has_contract:
        require_same_task(theirs.contract(), run.contract(), folder)
    policy = load_policy(folder).policy
    found = Spaces({key: tuple(shape) for key, shape in policy.obs_shapes.items()}, policy.action_size)
    if found != run.spaces:
        raise RunError(f"'{folder}' was trained with {found}, this task has {run.spaces}.")
    return policy


def copy_base(source: Path, folder: Path) -> None:
    """Put a cloned policy into a run folder, which then needs nothing else.

    Args:
        source: The run of the cloned policy.
        folder: Of the run that builds upon it.

    Raises:
        RunError: If it cannot be copied.
        CheckpointError: If none of its policies is intact.
    """
    newest = list_policies(source)[load_policy(source).step]  # of those that are intact
    target = folder / BASE_FOLDER
    try:
        (target / POLICIES).mkdir(parents=True, exist_ok=True)
        for name in (RUN_CONFIG, f"{POLICIES}/{newest.name}"):
            shutil.copyfile(source / name, target / name)
    except OSError as error:
        raise RunError(f"Cannot copy the base '{source}' to '{target}': {error.strerror or error}.") from error
