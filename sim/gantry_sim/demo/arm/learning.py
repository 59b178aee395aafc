"""Learning in the demo of an arm, from nothing: demonstrations, a clone of them, and a correction on top of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_sim.tasks.manipulation.registry import ArmTask, find_arm_task
from gantry_sim.training.arm.algorithms import BcPreset, RlPreset, preset_of
from gantry_sim.training.arm.bases import copy_base
from gantry_sim.training.arm.collect import CollectCfg, Collected, collect
from gantry_sim.training.arm.demos import expected_demos, load_demos, read_dataset
from gantry_sim.training.arm.evaluate import score_source
from gantry_sim.training.arm.export import export_arm_run
from gantry_sim.training.arm.policies import open_arm_source, open_trained
from gantry_sim.training.arm.run_config import ArmRun, check_arm_run, create_arm_run, read_arm_run, with_seed
from gantry_sim.training.arm.train import ArmProgress, train_arm
from gantry_sim.training.run_files import EVALUATION_FILE, write_json

DEMOS, BASE, RESIDUAL = "demos", "base", "residual"
"""Folders of the dataset and of the two trainings."""


class TrainingStopped(Exception):  # noqa: N818 - as KeyboardInterrupt, it is no error
    """A training was stopped and saved; ``args`` holds its folder."""


@dataclass(frozen=True)
class Recipe:
    """Amounts of everything. The defaults take some minutes on two cores."""

    task: str = "yam-lift"
    """Manipulation task."""
    demos: int = 25
    """Demonstrations; few of them, so that the clone is left with something to learn."""
    suboptimality: float = 0.5
    """Of the scripted expert that gives them, 0 to 1."""
    clone_updates: int = 1_000
    """Updates of the clone."""
    steps: int = 20_000
    """Environment steps of the correction, those before it learns included."""
    look_every: int = 2_500
    """Environment steps between two looks at it."""
    look_episodes: int = 50
    """Episodes of a look."""
    episodes: int = 100
    """Held-out episodes that clone and correction are scored on; 0 for none."""
    seed: int = 1
    """Of everything random."""


@dataclass(frozen=True)
class Display:
    """Callbacks for the progress of learning."""

    say: Callable[[str], None]
    """Takes a line."""
    collected: Callable[[Collected], None]
    """Takes how far a recording is."""
    progress: Callable[[ArmProgress], None]
    """Takes a row of a training."""
    share: Callable[[str], Callable[[float], None]]
    """From the name of a job to what takes its share done."""


def arm_task(recipe: Recipe) -> ArmTask:
    """The task of a recipe.

    Raises:
        GantryError: If there is none of that name, or no training could begin with these numbers.
    """
    task = find_arm_task(recipe.task)
    for run in (_clone_run(task, recipe, Path(DEMOS)), _residual_run(task, recipe, Path(DEMOS), Path(BASE))):
        check_arm_run(run)
    return task


def episode_s(name: str) -> float:
    """Duration of an episode of a task, s.

    Raises:
        UnknownNameError: If there is no such task.
    """
    return float(find_arm_task(name).make_cfg().episode_s)


def demonstrate(task: ArmTask, recipe: Recipe, folder: Path, display: Display) -> Collected:
    """Let the scripted expert give successful demonstrations, as people keep them.

    Args:
        task: The task.
        recipe: How many, and how bad.
        folder: Of the demo; gets :data:`DEMOS`.
        display: Where news goes.
    """
    cfg = CollectCfg(task, task.make_cfg(), recipe.demos, recipe.suboptimality, recipe.seed, only_successes=True)
    return collect(cfg, folder / DEMOS, display.collected)


def clone(task: ArmTask, recipe: Recipe, folder: Path, display: Display) -> None:
    """Clone them as chunks of actions, in :data:`BASE`.

    Raises:
        TrainingStopped: If it was interrupted.
        GantryError: If something does not fit.
    """
    run = _clone_run(task, recipe, folder / DEMOS)
    demos = read_dataset(folder / DEMOS, expected_demos(run))
    base = create_arm_run(run, folder / BASE)
    demos.save(base)
    _train(base, display)


def correct(task: ArmTask, recipe: Recipe, folder: Path, display: Display) -> None:
    """Learn a correction of the clone by trying (ResFiT, arXiv 2509.19301), in :data:`RESIDUAL`.

    Raises:
        TrainingStopped: If it was interrupted.
        GantryError: If something does not fit, or the training diverges.
    """
    base, demos = folder / BASE, load_demos(folder / BASE)
    if demos is None:
        raise GantryError(f"'{base}' has no copy of its demonstrations.")
    residual = create_arm_run(_residual_run(task, recipe, folder / DEMOS, base), folder / RESIDUAL)
    demos.save(residual)
    copy_base(base, residual)
    _train(residual, display)


def score(recipe: Recipe, run: Path, display: Display) -> dict[str, Any] | None:
    """Scores of a run on held-out episodes, which begin alike for every run; None if none were asked for."""
    if not recipe.episodes:
        return None
    scores = score_source(open_arm_source(run), recipe.episodes, on_progress=display.share("evaluate"))
    write_json(run / EVALUATION_FILE, scores)
    return scores


def export(run: Path, target: Path) -> Path:
    """The bundle of a run."""
    return export_arm_run(run, open_trained(run), target)


def looks(run: Path) -> list[dict[str, Any]]:
    """Evaluations of a training on the way, as :class:`gantry_policies.common.evaluation.Evaluation` in plain
    data, each with ``env_steps`` and ``wall_s``; the first one is of the base alone."""
    return [row for row in _rows(run) if row["kind"] == "eval"]


def corrections(run: Path) -> list[dict[str, Any]]:
    """Rows of a training in which the correction itself was learned, with its mean size in ``own_action``."""
    return [row for row in _rows(run) if row["kind"] == "train" and row.get("own_action") is not None]


def _rows(run: Path) -> list[dict[str, Any]]:
    path = run / METRICS_FILE
    return read_metrics(path) if path.is_file() else []


def _clone_run(task: ArmTask, recipe: Recipe, demos: Path) -> ArmRun:
    preset = with_seed(preset_of(task, "bc"), recipe.seed)
    assert isinstance(preset, BcPreset)
    bc = replace(preset.bc, steps=recipe.clone_updates, warmup_steps=min(preset.bc.warmup_steps, recipe.clone_updates))
    return ArmRun(task, "bc", replace(preset, bc=bc), recipe.seed, demos=str(demos))


def _residual_run(task: ArmTask, recipe: Recipe, demos: Path, base: Path) -> ArmRun:
    preset = with_seed(preset_of(task, "resfit"), recipe.seed)
    assert isinstance(preset, RlPreset)
    # A training in miniature has its phases in miniature as well.
    share = min(1.0, recipe.steps / (4.0 * preset.train.warmup_steps))
    train = replace(
        preset.train,
        total_steps=recipe.steps,
        warmup_steps=round(share * preset.train.warmup_steps),
        critic_warmup_updates=round(share * preset.train.critic_warmup_updates),
        eval_every_steps=recipe.look_every,
        eval_episodes=recipe.look_episodes,
        log_every_steps=max(1, min(preset.train.log_every_steps, recipe.steps // 20)),
    )
    return ArmRun(task, "resfit", replace(preset, train=train), recipe.seed, demos=str(demos), base=str(base))


def _train(folder: Path, display: Display) -> None:
    if not train_arm(read_arm_run(folder), folder, on_progress=display.progress).complete:
        raise TrainingStopped(folder)
