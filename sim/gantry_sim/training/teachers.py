"""Teachers of a run: a trained run's policy, kept in the run folder of its student, or the task's scripted policy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.contract.differences import NOT_OF_A_TASK, contract_differences
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.openpi.description import description_of, mismatches, unchecked
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common.checkpoint import load_newest, tell_stderr
from gantry_policies.imitation.policy import POLICIES, list_policies, load_policy
from gantry_policies.networks.layout import ObservationLayout, TermSlice
from gantry_policies.on_policy.plan_teacher import PlanTeacher, WholePlans, require_covered
from gantry_policies.on_policy.teacher_protocol import ScriptedTeacher, Teacher
from gantry_policies.on_policy.teachers import ClonedTeacher, PolicyTeacher
from gantry_policies.teachers.registry import make_teacher
from gantry_policies.teachers.teacher import ActionTeacher
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_folder import CONFIG_FILE, TEACHER_FOLDER, RunError, read_run

ON_POLICY, CLONES = "ppo", ("bc",)
"""Algorithms of policies that can teach."""


def check_teacher(cfg: RunCfg) -> None:
    """Refuse a teacher that sees or does something else than the student's task has for it.

    Raises:
        RunError: With both sides.
        CheckpointError: If its run has no checkpoint that can be read.
        GantryError: If a teacher that plans cannot be opened.
    """
    if cfg.planner:
        _fitting_planner(cfg)[0].close()
    if cfg.scripted_teacher:
        _require_no_plans(cfg)
    expected = cfg.task.teacher(cfg.preset.env)
    if cfg.teacher is not None and expected is not None:
        run = read_run(cfg.teacher)
        if run.preset.algorithm not in (*CLONES, ON_POLICY):
            raise RunError(
                f"The teacher '{cfg.teacher}' was trained with '{run.preset.algorithm}', expected "
                f"{' or '.join((ON_POLICY, *CLONES))}."
            )
        _seen_by(cfg, run.contract(), expected)
        load_teacher(cfg)


def load_teacher(cfg: RunCfg, env: Any = None) -> Teacher | None:
    """The teacher of a run, on its device; None if it has none.

    Args:
        cfg: The run.
        env: Its environment, whose scripted policy may teach; None to look whether a trained one fits.

    Raises:
        RunError: If the teacher sees or does something else than the student's task has for it.
        CheckpointError: If the teacher's run has no checkpoint that fits its configuration.
    """
    if cfg.scripted_teacher:
        return None if env is None else ScriptedTeacher(env.expert_action)
    if cfg.planner:
        return None if env is None else open_planner(cfg, env)
    expected = cfg.task.teacher(cfg.preset.env)
    if cfg.teacher is None or expected is None:
        return None
    run = read_run(cfg.teacher)
    found = run.contract()
    seen = _seen_by(cfg, found, expected)
    if run.preset.algorithm in CLONES:
        clone = load_policy(cfg.teacher).policy.to(cfg.device)
        require_covered(_plan_steps(cfg), clone.cfg.chunk_steps)
        return _by_plans(ClonedTeacher(clone, **seen), cfg, clone.action_size)
    _require_no_plans(cfg)
    path, _ = load_newest(cfg.teacher / CHECKPOINTS)
    layout = ObservationLayout.from_contract(found)
    return PolicyTeacher.from_checkpoint(path, run.preset.learner, layout, found.action_size, device=cfg.device, **seen)


def _by_plans(teacher: PlanTeacher | ClonedTeacher, cfg: RunCfg, action_size: int) -> Teacher:
    """The teacher, or its whole plans if the run wants them."""
    steps = _plan_steps(cfg)
    return teacher if steps == 1 else WholePlans(teacher, steps, action_size)


def _plan_steps(cfg: RunCfg) -> int:
    return cfg.preset.learner.guide.plan_steps


def _require_no_plans(cfg: RunCfg) -> None:
    """Refuse whole plans of a teacher that has none."""
    if _plan_steps(cfg) > 1:
        raise RunError(
            f"learner.guide.plan_steps is {_plan_steps(cfg)}, and the teacher '{cfg.teacher_name}' plans no chunks; "
            "expected 1."
        )


def told_guidance(cfg: RunCfg) -> dict[str, Any]:
    """Entry of a card on the teacher that a student had; empty without one."""
    if not cfg.teacher_name:
        return {}
    steps = _plan_steps(cfg)
    compared = "first action, asked in every step" if steps == 1 else f"whole plan, asked once in {steps} steps"
    name = cfg.planner.partition(":")[0] or Path(cfg.teacher_name).name
    return {"guide": {"teacher": name, "plan_steps": steps, "compared_with": compared}}


def open_planner(cfg: RunCfg, env: Any) -> Teacher:
    """The teacher that plans from pictures, numbers and words, in a run's environments.

    Args:
        cfg: The run.
        env: Its environments behind rsl_rl's interface.

    Raises:
        RunError: If the task shows nothing to such a teacher, or they do not fit each other; with every reason.
        GantryError: If there is no such teacher.
    """
    teacher, contract = _fitting_planner(cfg)
    try:
        for line in unchecked(teacher.description, description_of(contract)):
            tell_stderr(f"Teacher '{cfg.planner}': {line}")
        assert cfg.task.show is not None
        planning = PlanTeacher(teacher, cfg.task.show(env.batched, contract), env.num_actions)
        return _by_plans(planning, cfg, env.num_actions)
    except BaseException:
        teacher.close()
        raise


def _fitting_planner(cfg: RunCfg) -> tuple[ActionTeacher, PolicyContract]:
    """The open teacher, and the contract of what it is shown, which fit each other."""
    task = cfg.task
    if task.show is None or task.seen_by_teacher is None:
        raise RunError(f"Task '{task.name}' has nothing to show to a teacher such as '{cfg.planner}'.")
    teacher = make_teacher(cfg.planner)
    try:
        told = teacher.description
        contract = task.seen_by_teacher(cfg.preset.env, told.cameras)
        if reasons := mismatches(told, description_of(contract)):
            raise RunError(f"The teacher '{cfg.planner}' does not fit task '{task.name}'. {' '.join(reasons)}")
        require_covered(_plan_steps(cfg), told.horizon)
        return teacher, contract
    except BaseException:
        teacher.close()
        raise


def _seen_by(cfg: RunCfg, found: PolicyContract, expected: PolicyContract) -> dict[str, Any]:
    """Group and columns of the student's observation that a teacher reads; empty for a group of its own."""
    assert cfg.teacher is not None
    if expected == cfg.task.contract(cfg.preset.env):
        return {"group": "actor", "columns": _columns(cfg.teacher, found, expected)}
    _check_same(cfg.teacher, found, expected)
    return {}


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
    clones = list_policies(run)
    newest = [f"{POLICIES}/{clones[max(clones)].name}"] if clones else [f"{CHECKPOINTS}/{path.name}"]
    target = folder / TEACHER_FOLDER
    try:
        for name in (CONFIG_FILE, *newest):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run / name, target / name)
    except OSError as error:
        raise RunError(f"Cannot copy the teacher '{run}' to '{target}': {error.strerror or error}.") from error


def _columns(run: Path, found: PolicyContract, expected: PolicyContract) -> Tensor:
    """Columns of the student's observation that its teacher reads, ``(size,)`` int64, term by term.

    So a policy that learned to follow a road alone can teach one that sees more.
    """
    mine = {term.name: (term, place) for term, place in zip(expected.observations, _places(expected), strict=True)}
    columns: list[int] = []
    for term in found.observations:
        if term.name not in mine:
            raise RunError(f"The teacher '{run}' sees '{term.name}', the student's task shows: {', '.join(mine)}.")
        own, place = mine[term.name]
        if replace(own, history=term.history) != term or term.history > own.history:
            raise _other(run, f"'{term.name}'", term, own)
        # Frames are stacked oldest first.
        start = place.stop - place.size * term.history
        columns += range(start, place.stop)
    if found.body != (body := embodiment_of(expected).body_of_teacher(expected, found)):
        raise _other(run, "body", found.body, body)
    shared = replace(expected, observations=found.observations, body=found.body)
    _check_same(run, found, shared)
    return torch.tensor(columns)


def _places(contract: PolicyContract) -> tuple[TermSlice, ...]:
    return ObservationLayout.from_contract(contract).terms


def _other(run: Path, what: str, theirs: object, mine: object) -> RunError:
    return RunError(
        f"The teacher '{run}' has another {what} than the student's task gives it.\n"
        f"  teacher: {theirs}\n  task:    {mine}\n"
        "Train the student with the preset and the changes that the teacher was trained with."
    )


def _check_same(run: Path, found: PolicyContract, expected: PolicyContract) -> None:
    for item in contract_differences(found, expected, ignoring=NOT_OF_A_TASK):
        raise _other(run, item.name, item.theirs, item.mine)
