"""Trained policies against drivers that learned nothing, on the same held-out maps: one table a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import is_run
from gantry_hardware.errors import GantryError
from gantry_sim.benchmarks.comparison import PlannedRun, call_gantry, set_words
from gantry_sim.cli.common import ProgressBar, changed
from gantry_sim.driving.bench.drivers import BASELINES, RACERS
from gantry_sim.driving.bench.scoring import (
    Held,
    ScoredRun,
    episodes_without_learning,
    is_trained,
    pooled,
    score_run,
    scores,
    width_of,
)
from gantry_sim.driving.cfg import SCAN
from gantry_sim.tasks.registry import Preset, find_task
from gantry_sim.training.run_folder import read_run, require_seeds
from gantry_sim.training.run_validation import SCRIPTED, require_teacher, trained_task, trained_teacher

ALL_SEEDS = "policy, all seeds"
"""Name of the row with the episodes of all seeds."""


@dataclass(frozen=True)
class TableCfg:
    """Settings of a comparison."""

    tasks: tuple[str, ...]
    """Driving tasks."""
    seeds: tuple[int, ...]
    """Seeds of the policies."""
    steps: int = 0
    """Decisions of each training; 0 for the preset's."""
    changes: tuple[str, ...] = ()
    """``--set`` of all runs."""
    teacher: str = ""
    """``--teacher`` of all runs; none if empty."""
    train: bool = True
    """Whether seeds without a run are trained; else they are left out."""
    held: Held = field(default_factory=Held)
    """Settings of scoring."""

    def __post_init__(self) -> None:
        require_seeds(self.seeds)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise GantryError(f"The tasks are {list(self.tasks)}, expected one or more, each once.")

    @property
    def sets(self) -> tuple[str, ...]:
        """``--set`` of all runs, their length included."""
        return (*self.changes, *((f"learner.total_steps={self.steps}",) if self.steps else ()))


def find_runs(cfg: TableCfg, task: str, output: Path) -> dict[int, Path]:
    """Seed -> run folder of a task that lies in a folder already, by whatever name.

    Raises:
        GantryError: If two runs have the same seed, or one was configured otherwise than is asked for.
    """
    found: dict[int, Path] = {}
    for folder in sorted(output.iterdir()) if output.is_dir() else []:
        if not is_run(folder) or trained_task(folder) != task:
            continue
        run = read_run(folder)
        if run.seed not in cfg.seeds:
            continue
        if run.seed in found:
            raise GantryError(f"'{found[run.seed]}' and '{folder}' are both runs of {task} with seed {run.seed}.")
        wanted = changed(run.task.preset(run.preset_name), cfg.sets)
        if cfg.sets and wanted != run.preset:
            raise GantryError(
                f"'{folder}' was trained otherwise than with --set {' --set '.join(cfg.sets)}: "
                f"{_differences(run.preset, wanted)}. Name another folder, or ask for nothing to take it as it is."
            )
        guided = trained_teacher(folder)
        if cfg.teacher and (not guided or Path(guided).resolve() != Path(cfg.teacher).resolve()):
            raise GantryError(f"'{folder}' was guided by {guided or 'no teacher'}, expected {cfg.teacher}.")
        found[run.seed] = folder
    return found


def run_table(cfg: TableCfg, output: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Train what is missing, score everything.

    Args:
        cfg: What is compared.
        output: Folder of the runs; the same call goes on after an interruption.
        say: Called with a line before each step.

    Returns:
        ``settings`` and ``tasks``: name -> ``rows`` (see :func:`rows_of`) and ``left_out`` with the reasons.

    Raises:
        GantryError: If a training fails; what was done is kept.
        KeyboardInterrupt: If it was interrupted.
    """
    if cfg.train and cfg.teacher:
        require_teacher(cfg.teacher)
    before = {task: find_runs(cfg, task, output) for task in cfg.tasks}  # What does not fit is found before anything.
    for task in cfg.tasks:
        preset = find_task(task).preset("cpu")
        if cfg.train and cfg.teacher == SCRIPTED:
            preset = find_task(task).require_scripted().preset(preset)
        changed(preset, cfg.sets)
    output.mkdir(parents=True, exist_ok=True)
    tasks = {}
    for task in cfg.tasks:
        folders = before[task]
        for seed in cfg.seeds:
            folder = folders.get(seed, output / f"{task}-s{seed}")
            if folder in folders.values() and is_trained(folder):
                continue
            if cfg.train:
                say(f"{task}, seed {seed}: training")
                words = (task, *set_words(cfg.sets), *(("--teacher", cfg.teacher) if cfg.teacher else ()))
                call_gantry(PlannedRun(task, seed, folder, words).train_words())
                folders[seed] = folder
            else:
                folders.pop(seed, None)
        tasks[task] = _one_task(cfg, task, [folders[seed] for seed in cfg.seeds if seed in folders], say)
    return {"settings": asdict(cfg), "tasks": tasks}


def _one_task(cfg: TableCfg, name: str, folders: Sequence[Path], say: Callable[[str], None]) -> dict[str, Any]:
    task, left_out = find_task(name), []
    runs = []
    for folder in folders:
        say(f"{name}: scoring {folder.name}")
        runs.append(score_run(folder, cfg.held, ProgressBar("evaluate").share))
    missing = [seed for seed in cfg.seeds if seed not in {run.cfg.seed for run in runs}]
    left_out += [f"policy, seed {seed}: not trained in this folder" for seed in missing]
    env_cfg = _common_env(runs) if runs else changed(task.preset("cpu"), cfg.sets).env
    width = width_of(cfg.held, task, env_cfg)
    rows = [rows_of(f"policy, seed {run.cfg.seed}", scores(run.found, width), [run]) for run in runs]
    if len(runs) > 1:
        rows.append(rows_of(ALL_SEEDS, scores(pooled([run.found for run in runs]), width), runs))
    for driver in RACERS if SCAN in env_cfg.drivers else BASELINES:
        say(f"{name}: scoring the driver {driver}")
        found = episodes_without_learning(cfg.held, task, env_cfg, driver, ProgressBar("evaluate").share)
        if found is None:
            left_out.append(f"{driver}: there is no lane to follow")
        else:
            rows.append(rows_of(driver, scores(found, width), []))
    return {"rows": rows, "left_out": left_out, "lane_width_m": width}


def rows_of(driver: str, scored: dict[str, Any], runs: Sequence[ScoredRun]) -> dict[str, Any]:
    """A row: ``driver``, its ``scores``; of policies also ``env_steps``, ``train_wall_s``, ``runs``, ``teachers``."""
    trained = {
        "env_steps": [run.env_steps for run in runs],
        "train_wall_s": [run.train_wall_s for run in runs],
        "runs": [str(run.folder) for run in runs],
        "teachers": [run.cfg.as_dict()["teacher"] or "" for run in runs],
    }
    return {"driver": driver, "scores": scored} | (trained if runs else {})


def _common_env(runs: Sequence[ScoredRun]) -> Any:
    """The configuration of the environment, which must be the same of all runs that share a table.

    Raises:
        GantryError: If two differ, naming the fields.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.cfg.preset.env != first.cfg.preset.env:
            wrong = _differences(run.cfg.preset, first.cfg.preset)
            raise GantryError(f"'{first.folder}' and '{run.folder}' were trained in different environments: {wrong}.")
    return first.cfg.preset.env


def _differences(one: Preset, other: Preset) -> str:
    """Fields in which two presets differ, with both values."""
    found = []
    for part in ("env", "learner"):
        a, b = vars(getattr(one, part)), vars(getattr(other, part))
        found += [f"{part}.{name} {a[name]!r}, not {b.get(name)!r}" for name in a if a[name] != b.get(name)]
    return "; ".join(found)
