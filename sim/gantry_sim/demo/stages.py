"""Training, scoring and export as the demos use them, each a thin call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_hardware.training.log import METRICS_FILE as METRICS_FILE
from gantry_hardware.training.log import read_metrics
from gantry_sim.demo.scenario import Display, TrainingStopped
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.algorithms.registry import preset_by
from gantry_sim.training.bases import copy_base
from gantry_sim.training.collect import CollectCfg, Collected, collect
from gantry_sim.training.demos import load_demos
from gantry_sim.training.evaluate import evaluate_policy
from gantry_sim.training.policies import bundle_source
from gantry_sim.training.read_demos import read_demos
from gantry_sim.training.run_cfg import RunCfg as RunCfg
from gantry_sim.training.run_files import BUNDLE_FOLDER as BUNDLE_FOLDER
from gantry_sim.training.run_files import EVALUATION_FILE, EVALUATION_SEED
from gantry_sim.training.run_files import git_commit as git_commit
from gantry_sim.training.run_files import write_json as write_json
from gantry_sim.training.run_folder import check_run, create_run, read_run
from gantry_sim.training.train import evaluate_run, export_run, open_trained, train

DEMOS, BASE, RESIDUAL = "demos", "base", "residual"
"""Folders of the dataset and of the two trainings of an arm."""
EPISODES_SEED = EVALUATION_SEED + 2
"""Of where things lie in recorded episodes; neither a training nor a score has seen them."""

Scores = Mapping[str, Any]
Share = Callable[[float], None]


def train_run(run: RunCfg, folder: Path, display: Display) -> None:
    """Train a run to its end in a folder, new or empty; demonstrations and base of the run are copied into it.

    Raises:
        TrainingStopped: If it was interrupted.
        GantryError: If something does not fit, or the training diverges.
    """
    check_run(run)
    demos, base = None, Path(run.base) if run.base else None
    if run.demos:
        demos = read_demos(Path(run.demos), run) if base is None else load_demos(base)
    create_run(run, folder)
    if demos is not None:
        demos.save(folder)
    if base is not None:
        copy_base(base, folder)
    trainer, is_complete = train(read_run(folder), folder, on_progress=display.progress)
    if not is_complete:
        raise TrainingStopped(folder, trainer.redone)


def evaluate_trained(folder: Path, episodes: int, share: Share) -> Scores:
    """Scores of a run on held-out episodes, by model; they are written into its folder."""
    run, trained = open_trained(folder)
    return evaluate_run(run, folder, trained, episodes=episodes, on_progress=share)


def export_trained(folder: Path, target: Path) -> Path:
    """The bundle of a run."""
    run, trained = open_trained(folder)
    return export_run(run, folder, trained, target)


def evaluate_bundle(bundle: Path, folder: Path, episodes: int, share: Share) -> Scores:
    """Scores of a finished policy on held-out episodes, by model; they are written into the folder.

    Raises:
        GantryError: If its task is not known here.
    """
    source = bundle_source(load_bundle(bundle))
    scores = evaluate_policy(source.task, source.env_cfg, source.make_policy, episodes=episodes, on_progress=share)
    result = {"task": source.task.name, "training_model": scores}
    write_json(folder / EVALUATION_FILE, result)
    return result


def metrics_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Rows of a training's log, ``train`` or ``eval``, each with ``env_steps`` and ``wall_s``; none without a log."""
    path = folder / METRICS_FILE
    return read_metrics(path, kind) if path.is_file() else []


@dataclass(frozen=True)
class Recipe:
    """Amounts of everything that an arm learns from. The defaults take some minutes on two cores."""

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
    for run in (clone_run(recipe, Path()), residual_run(recipe, Path())):
        check_run(run)


def episode_s(task: str) -> float:
    """Duration of an episode of a manipulation task, s.

    Raises:
        UnknownNameError: If there is no such task.
    """
    return float(find_task(task).usual_env().episode_s)


def task_summary(task: str) -> str:
    """Summary of a task in a few words."""
    return find_task(task).summary


def demonstrate(recipe: Recipe, folder: Path, share: Share) -> Collected:
    """Let the scripted expert give successful demonstrations, in :data:`DEMOS`."""
    task = find_task(recipe.task)
    cfg = CollectCfg(task, task.usual_env(), recipe.demos, recipe.suboptimality, recipe.seed, only_successes=True)
    return collect(cfg, folder / DEMOS, lambda done: share(done.episodes / recipe.demos))


def clone_run(recipe: Recipe, folder: Path) -> RunCfg:
    """Run that clones the demonstrations as chunks of actions."""
    task = find_task(recipe.task)
    name, preset = preset_by(task, "bc", "bc")
    bc = preset.learner
    bc = replace(bc, steps=recipe.clone_updates, warmup_steps=min(bc.warmup_steps, recipe.clone_updates))
    return RunCfg(task, name, replace(preset, learner=bc), seed=recipe.seed, demos=str(folder / DEMOS))


def residual_run(recipe: Recipe, folder: Path) -> RunCfg:
    """Run that learns a correction of the clone by trying (ResFiT, arXiv 2509.19301)."""
    task = find_task(recipe.task)
    name, preset = preset_by(task, "resfit", "resfit")
    cfg = preset.learner
    # A training in miniature has its phases in miniature as well.
    share = min(1.0, recipe.steps / (4.0 * cfg.warmup_steps))
    cfg = replace(
        cfg,
        total_steps=recipe.steps,
        warmup_steps=round(share * cfg.warmup_steps),
        critic_warmup_updates=round(share * cfg.critic_warmup_updates),
        eval_every_steps=recipe.look_every,
        eval_episodes=recipe.look_episodes,
        log_every_steps=max(1, min(cfg.log_every_steps, recipe.steps // 20)),
    )
    demos, base = str(folder / DEMOS), str(folder / BASE)
    return RunCfg(task, name, replace(preset, learner=cfg), seed=recipe.seed, demos=demos, base=base)
