"""Training, scoring and export as the demos use them, each a thin call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_policies.common.metrics_log import METRICS_FILE, read_metrics
from gantry_policies.on_policy.runner import CURVE_FILE
from gantry_sim.demo.scenario import Display, TrainingStopped
from gantry_sim.tasks.manipulation.registry import ArmTask, find_arm_task
from gantry_sim.training.arm.algorithms import BcPreset, RlPreset, preset_of
from gantry_sim.training.arm.bases import copy_base
from gantry_sim.training.arm.collect import CollectCfg, Collected, collect
from gantry_sim.training.arm.demos import expected_demos, load_demos, read_dataset
from gantry_sim.training.arm.evaluate import score_source
from gantry_sim.training.arm.export import export_arm_run
from gantry_sim.training.arm.policies import open_arm_source, open_trained
from gantry_sim.training.arm.run_config import ArmRun, check_arm_run, create_arm_run, read_arm_run, with_seed
from gantry_sim.training.arm.train import train_arm
from gantry_sim.training.evaluate import evaluate_policy
from gantry_sim.training.policies import open_source
from gantry_sim.training.run_config import (
    BUNDLE_FOLDER,
    EVALUATION_FILE,
    RunCfg,
    check_run,
    create_run,
    git_commit,
    write_json,
)
from gantry_sim.training.train import evaluate_run, export_run, policy_of, train

__all__ = ["BASE", "BUNDLE_FOLDER", "CURVE_FILE", "DEMOS", "RESIDUAL", "git_commit", "write_json"]

DEMOS, BASE, RESIDUAL = "demos", "base", "residual"
"""Folders of the dataset and of the two trainings of an arm."""

Scores = Mapping[str, Any]
Share = Callable[[float], None]


class OnPolicyTraining:
    """A training by PPO, its scores and its export.

    Args:
        cfg: What to train.
        folder: Folder of the run, new or empty.
    """

    def __init__(self, cfg: RunCfg, folder: Path) -> None:
        self._cfg, self._folder = cfg, folder

    def train(self, display: Display) -> None:
        """Train to the end.

        Raises:
            TrainingStopped: If it was interrupted.
        """
        check_run(self._cfg)
        create_run(self._cfg, self._folder)
        self._runner, complete = train(self._cfg, self._folder, on_progress=display.progress)
        if not complete:
            raise TrainingStopped(self._folder)

    def evaluate(self, episodes: int, share: Share) -> Scores:
        """Scores on held-out episodes, by model."""
        actor = policy_of(self._runner)
        return evaluate_run(self._cfg, self._folder, actor, episodes=episodes, on_progress=share)

    def export(self) -> Path:
        """The bundle of the run."""
        return export_run(self._cfg, self._folder, self._runner)


def evaluate_bundle(bundle: Path, folder: Path, episodes: int, share: Share) -> Scores:
    """Scores of a finished policy on held-out episodes, by model.

    Raises:
        GantryError: If its task is not known here.
    """
    source = open_source(bundle)
    scores = evaluate_policy(source.task, source.env_cfg, source.policy, episodes=episodes, on_progress=share)
    result = {"task": source.task.name, "training_model": scores}
    write_json(folder / EVALUATION_FILE, result)
    return result


def evaluate_arm(policy: Path, episodes: int, share: Share) -> Scores:
    """Scores of an arm's run, or of its bundle row by row as on a robot, on episodes that begin alike for all."""
    scores = score_source(open_arm_source(policy), episodes, on_progress=share)
    if policy.name != BUNDLE_FOLDER:
        write_json(policy / EVALUATION_FILE, scores)
    return scores


@dataclass(frozen=True)
class Recipe:
    """Amounts of everything that an arm learns from. The defaults take some minutes on two cores."""

    task: str = "yam-lift"
    """Manipulation task."""
    demos: int = 25
    """Demonstrations; few of them, so that the clone is left with something to learn."""
    badness: float = 0.5
    """Of the scripted expert that gives them, 0 to 1."""
    clone_updates: int = 1_000
    """Updates of the clone."""
    steps: int = 20_000
    """Environment steps of the correction, those before it learns included."""
    look_every: int = 2_500
    """Environment steps between two looks at it."""
    look_episodes: int = 50
    """Episodes of a look."""
    seed: int = 1
    """Of everything random."""


@dataclass
class Learned:
    """Results of learning in this demo, filled in by its steps."""

    recipe: Recipe
    """Amounts of everything."""
    demo_frames: int = 0
    """Frames of the demonstrations."""
    expert_success: float = 0.0
    """Share of the expert's tries that succeeded; the others were left out."""
    base: Scores | None = None
    """Scores of the clone on held-out episodes, as ``gantry eval`` gives them; None if they were left out."""
    looks: Sequence[Scores] = ()
    """Evaluations on the way, the first one of the clone alone."""
    corrections: Sequence[Scores] = ()
    """Rows of metrics while the correction was learned."""


def check_recipe(recipe: Recipe) -> None:
    """Refuse what no training could begin with.

    Raises:
        GantryError: If there is no such task, or a number makes no sense.
    """
    for run in (_clone_run(recipe, Path()), _residual_run(recipe, Path())):
        check_arm_run(run)


def episode_s(task: str) -> float:
    """Duration of an episode of a manipulation task, s.

    Raises:
        UnknownNameError: If there is no such task.
    """
    return float(find_arm_task(task).make_cfg().episode_s)


def task_summary(task: str) -> str:
    """Summary of a manipulation task in a few words."""
    return find_arm_task(task).summary


def demonstrate(recipe: Recipe, folder: Path, share: Share) -> Collected:
    """Let the scripted expert give successful demonstrations, in :data:`DEMOS`."""
    task = find_arm_task(recipe.task)
    cfg = CollectCfg(task, task.make_cfg(), recipe.demos, recipe.badness, recipe.seed, only_successes=True)
    return collect(cfg, folder / DEMOS, lambda done: share(done.episodes / recipe.demos))


def clone(recipe: Recipe, folder: Path, display: Display) -> None:
    """Clone the demonstrations as chunks of actions, in :data:`BASE`.

    Raises:
        TrainingStopped: If it was interrupted.
        GantryError: If something does not fit.
    """
    run = _clone_run(recipe, folder)
    demos = read_dataset(folder / DEMOS, expected_demos(run))
    base = create_arm_run(run, folder / BASE)
    demos.save(base)
    _train(base, display)


def correct(recipe: Recipe, folder: Path, display: Display) -> None:
    """Learn a correction of the clone by trying (ResFiT, arXiv 2509.19301), in :data:`RESIDUAL`.

    Raises:
        TrainingStopped: If it was interrupted.
        GantryError: If something does not fit, or the training diverges.
    """
    base, demos = folder / BASE, load_demos(folder / BASE)
    if demos is None:
        raise GantryError(f"'{base}' has no copy of its demonstrations.")
    residual = create_arm_run(_residual_run(recipe, folder), folder / RESIDUAL)
    demos.save(residual)
    copy_base(base, residual)
    _train(residual, display)


def export_arm(folder: Path, target: Path) -> Path:
    """The bundle of the run in :data:`RESIDUAL`, base and correction in one."""
    run = folder / RESIDUAL
    return export_arm_run(run, open_trained(run), target)


def looks(run: Path) -> list[dict[str, Any]]:
    """Evaluations of a training on the way, as :class:`gantry_policies.off_policy.evaluation.Evaluation` in plain
    data, each with ``env_steps`` and ``wall_s``; the first one is of the base alone."""
    return [row for row in _rows(run) if row["kind"] == "eval"]


def corrections(run: Path) -> list[dict[str, Any]]:
    """Rows of a training in which the correction itself was learned, with its mean size in ``own_action``."""
    return [row for row in _rows(run) if row["kind"] == "train" and row.get("own_action") is not None]


def _rows(run: Path) -> list[dict[str, Any]]:
    path = run / METRICS_FILE
    return read_metrics(path) if path.is_file() else []


def _clone_run(recipe: Recipe, folder: Path) -> ArmRun:
    task = find_arm_task(recipe.task)
    preset = with_seed(preset_of(task, "bc"), recipe.seed)
    assert isinstance(preset, BcPreset)
    bc = replace(preset.bc, steps=recipe.clone_updates, warmup_steps=min(preset.bc.warmup_steps, recipe.clone_updates))
    return ArmRun(task, "bc", replace(preset, bc=bc), recipe.seed, demos=str(folder / DEMOS))


def _residual_run(recipe: Recipe, folder: Path) -> ArmRun:
    task: ArmTask = find_arm_task(recipe.task)
    preset = with_seed(preset_of(task, "resfit"), recipe.seed)
    assert isinstance(preset, RlPreset)
    # A training in miniature has its phases in miniature as well.
    share = min(1.0, recipe.steps / (4.0 * preset.train.warmup_steps))
    train_cfg = replace(
        preset.train,
        total_steps=recipe.steps,
        warmup_steps=round(share * preset.train.warmup_steps),
        critic_warmup_updates=round(share * preset.train.critic_warmup_updates),
        eval_every_steps=recipe.look_every,
        eval_episodes=recipe.look_episodes,
        log_every_steps=max(1, min(preset.train.log_every_steps, recipe.steps // 20)),
    )
    changed = replace(preset, train=train_cfg)
    return ArmRun(task, "resfit", changed, recipe.seed, demos=str(folder / DEMOS), base=str(folder / BASE))


def _train(folder: Path, display: Display) -> None:
    if not train_arm(read_arm_run(folder), folder, on_progress=display.progress).complete:
        raise TrainingStopped(folder)
