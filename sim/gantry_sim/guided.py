"""Teachers of a run: a trained run's policy, kept in the run folder of whom it teaches."""

from __future__ import annotations

import shutil
from pathlib import Path

from gantry_deploy.contract import PolicyContract
from gantry_policies.checkpoint import load_newest
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.runner import CHECKPOINTS
from gantry_policies.teachers import PolicyTeacher
from gantry_sim.run_folder import CONFIG_FILE, TEACHER_FOLDER, RunCfg, RunError, read_run

_SAME = (
    "robot",
    "joint_names",
    "rate_hz",
    "default_pos_rad",
    "stiffness_nm_rad",
    "damping_nm_s_rad",
    "observations",
    "map_window",
    "action",
    "command",
    "gait",
)
"""What a teacher's actions are worthless without."""


def load_teacher(cfg: RunCfg) -> PolicyTeacher | None:
    """The teacher of a run, on its device; None if it has none.

    Args:
        cfg: The run.

    Raises:
        RunError: If the teacher sees or does something else than the student's task has for it.
        CheckpointError: If the teacher's run has no checkpoint that fits its configuration.
    """
    expected = cfg.task.teacher(cfg.preset.env)
    if cfg.teacher is None or expected is None:
        return None
    run = read_run(cfg.teacher)
    found = run.task.contract(run.preset.env)
    _check_same(cfg.teacher, found, expected)
    path, _ = load_newest(cfg.teacher / CHECKPOINTS)
    layout = ObservationLayout.from_contract(found)
    return PolicyTeacher.from_checkpoint(path, run.preset.learner, layout, found.action_size, device=cfg.device)


def copy_teacher(run: Path, folder: Path) -> None:
    """Put a teacher's configuration and newest checkpoint into a run folder, which then needs nothing else.

    Args:
        run: The teacher's run folder.
        folder: That of the student.

    Raises:
        RunError: If it cannot be copied.
        CheckpointError: If there is no readable checkpoint.
    """
    path, _ = load_newest(run / CHECKPOINTS)
    target = folder / TEACHER_FOLDER
    try:
        (target / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for name in (CONFIG_FILE, f"{CHECKPOINTS}/{path.name}"):
            shutil.copyfile(run / name, target / name)
    except OSError as error:
        raise RunError(f"Cannot copy the teacher '{run}' to '{target}': {error.strerror or error}.") from error


def _check_same(run: Path, found: PolicyContract, expected: PolicyContract) -> None:
    for name in _SAME:
        theirs, mine = getattr(found, name), getattr(expected, name)
        if theirs != mine:
            raise RunError(
                f"The teacher '{run}' has another {name} than the student's task gives it.\n"
                f"  teacher: {theirs}\n  task:    {mine}\n"
                "Train the student with the preset and the changes that the teacher was trained with."
            )
