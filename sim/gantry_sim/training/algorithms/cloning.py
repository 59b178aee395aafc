"""Behaviour cloning of demonstrations: chunks of actions, see :mod:`gantry_policies.imitation`."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_deploy.dataset.features import ENVIRONMENT_STATE
from gantry_hardware.training.trainer import CHECKPOINTS, CheckpointError, Trainer
from gantry_policies.common.checkpoint import load_newest
from gantry_policies.common.evaluation import ActingPolicy
from gantry_policies.imitation import config
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import split_episodes
from gantry_policies.imitation.export import export_chunks
from gantry_policies.imitation.policy import BcPolicy, load_policy, make_base
from gantry_policies.imitation.trainer import CloningTrainer
from gantry_sim.tasks.registry import Preset, Task
from gantry_sim.training.algorithms.off_policy import ENVS, evaluation_env
from gantry_sim.training.algorithms.registry import Algorithm, TrainedPolicy
from gantry_sim.training.demos import DemoSet, demos_of
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_validation import RunError

_LOG = logging.getLogger("gantry.dataset")


def few_demos() -> BcCfg:
    """Some dozens of demonstrations are learned by then; more updates predict other episodes worse."""
    return replace(config.state(), steps=1_500, batch_size=128)


def preset(task: Task) -> Preset:
    """Flat observations, some dozens of demonstrations."""
    return Preset(replace(task.usual_env(), num_envs=ENVS), few_demos(), "bc")


def check(run: RunCfg) -> None:
    """Refuse a time limit, with which the learning rate would not come down."""
    if run.minutes:
        raise RunError(
            "Cloning ends after a number of updates, with the learning rate at zero; leave out --minutes, and give "
            "their number with --steps."
        )


def make_trainer(run: RunCfg, folder: Path | None) -> CloningTrainer:
    """Demonstrations and learner of a run.

    Raises:
        RunError: If the run folder has no copy of its demonstrations.
        GantryError: If they do not fit the task.
    """
    cfg = with_words(replace(run.preset.learner, seed=run.seed), run)
    demos = demos_of(run, folder)
    if demos is None:
        raise RunError(f"'{folder}' has no copy of its demonstrations; begin the run again.")
    cfg = with_labels(cfg, demos)
    if not cfg.network.labels:  # Labels without a use need not be finite.
        demos = replace(demos, labels=None)
    learned, others = split_episodes(len(demos.lengths), cfg.validation_share, cfg.seed)
    return CloningTrainer(
        demos.chunks(learned),
        cfg,
        folder,
        validation=demos.chunks(others) if others else None,
        eval_env=evaluation_env(run, cfg.eval_episodes) if cfg.eval_every_steps else None,
        provenance={"task": run.task.name, "demos": run.demos, "episodes": len(demos.lengths), "seed": run.seed},
        device=run.device,
        threads=run.learn_threads,
    )


def with_words(cfg: BcCfg, run: RunCfg) -> BcCfg:
    """Settings of a network that reads the instructions of the run's task; the same where the task has none."""
    spec = run.task.contract(run.preset.env).instruction if run.task.has_contract else None
    return cfg if spec is None else replace(cfg, network=replace(cfg.network, vocabulary=len(spec.vocabulary)))


def with_labels(cfg: BcCfg, demos: DemoSet) -> BcCfg:
    """Settings of a network that predicts the labels of demonstrations, where they have any and they count."""
    labels = demos.labels.shape[1] if demos.labels is not None and cfg.label_weight else 0
    if cfg.label_weight and demos.labels is None:
        _LOG.warning(
            "learner.label_weight is %g, and the demonstrations have no %s: there is nothing to predict.",
            cfg.label_weight,
            ENVIRONMENT_STATE,
        )
    return replace(cfg, network=replace(cfg.network, labels=labels))


def open_policy(run: RunCfg, folder: Path, trainer: Trainer | None = None) -> TrainedPolicy:
    """The cloned policy of a finished run.

    Raises:
        CheckpointError: If the run is not finished.
    """
    del trainer
    _, state = load_newest(folder / CHECKPOINTS)
    total = run.preset.learner.steps
    if state["step"] < total:
        raise CheckpointError(
            f"'{folder}' is at update {state['step']} of {total}. Finish it with: gantry train --resume {folder}"
        )
    policy = load_policy(folder).policy
    return TrainedPolicy(
        make_policy=partial(_acting, policy),
        write_bundle=partial(_write_bundle, policy),
        done=int(state["step"]),
        env_steps=0,
        wall_s=float(state["wall_s"]),
        chunk=ChunkSpec(policy.cfg.chunk_steps, policy.cfg.execute_steps, residual=False),
    )


def _acting(policy: BcPolicy, env: Any) -> ActingPolicy:
    return make_base(policy, env.num_envs)


def _write_bundle(policy: BcPolicy, contract: Any, golden: Any, folder: Path, **options: Any) -> Path:
    options.pop("mapper_bytes", None)
    return export_chunks(policy, contract, golden, folder, residual=None, **options)


BC = Algorithm(
    name="bc",
    summary="chunks of actions cloned from demonstrations",
    cfg_type=BcCfg,
    preset=preset,
    make_trainer=make_trainer,
    open=open_policy,
    check=check,
    length="steps",
    demos="needs",
    threads=1,  # Threads share out products of this size at a loss.
    smaller="a smaller learner.batch_size helps, or fewer demonstrations",
)
