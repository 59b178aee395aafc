"""Chunked offline learning from a policy's own rollouts: a clone learned further, see CO-RFT (arXiv 2508.02219)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import is_run
from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_hardware.training.trainer import CHECKPOINTS, Trainer
from gantry_policies.common.checkpoint import load_newest
from gantry_policies.common.evaluation import ActingPolicy
from gantry_policies.imitation.export import export_chunks
from gantry_policies.imitation.policy import BcPolicy, make_base
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.actors import PlanActor, require_clone
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.trainer import OffPolicyTrainer
from gantry_sim.tasks.registry import Preset, Task
from gantry_sim.training.algorithms.off_policy import ENVS, check_replay, evaluation_env, settings_of
from gantry_sim.training.algorithms.registry import Algorithm, TrainedPolicy
from gantry_sim.training.bases import open_base
from gantry_sim.training.demos import demos_of
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_files import BASE_FOLDER
from gantry_sim.training.run_validation import RunError


def preset(task: Task) -> Preset:
    """The task's usual environments, for evaluations alone."""
    return Preset(replace(task.usual_env(), num_envs=ENVS), presets.co_rft(), "co-rft")


def check(run: RunCfg) -> None:
    """Refuse a clone that cannot be learned further, before anything is written.

    A run that is resumed has a copy of its own, and the clone need not be where it was.

    Raises:
        GantryError: With what the clone has and what is expected.
    """
    check_replay(run)
    if is_run(Path(run.base)):
        require_clone(run.preset.learner.agent, open_base(Path(run.base), run))


def make_trainer(run: RunCfg, folder: Path | None) -> OffPolicyTrainer:
    """Recorded episodes, the clone to begin with, and the learner of a run.

    Raises:
        RunError: If the run folder has no copies of them.
        GantryError: If they do not fit each other.
    """
    cfg = settings_of(run)
    demos = demos_of(run, folder)
    if demos is None or folder is None:
        raise RunError(f"'{folder}' has no copy of its recorded episodes; begin the run again.")
    return OffPolicyTrainer(
        run.task.make_env(run.preset.env, run.device, run.seed),
        cfg,
        folder,
        demos=demos.demos(),
        eval_env=evaluation_env(run, cfg.eval_episodes) if cfg.eval_every_steps else None,
        clone=open_base(folder / BASE_FOLDER, run),
        device=run.device,
        learn_threads=run.learn_threads,
    )


def open_policy(run: RunCfg, folder: Path, trainer: Trainer | None = None) -> TrainedPolicy:
    """The policy of the newest checkpoint, which plans chunks as its clone does."""
    del trainer  # Its buffers need not be in memory any more.
    _, state = load_newest(folder / CHECKPOINTS)
    cfg = settings_of(run, state["learner"])
    shapes, clone = run.spaces.obs_shapes, open_base(folder / BASE_FOLDER, run)
    learner = Learner(cfg.agent, shapes, run.spaces.action_size, clone=clone)
    learner.load_state_dict(state["learner"])
    assert isinstance(learner.actor, PlanActor)
    policy, execute = learner.actor.policy.requires_grad_(False), cfg.agent.n_step
    return TrainedPolicy(
        make_policy=partial(_acting, policy, execute),
        write_bundle=partial(_write_bundle, policy),
        done=int(state["counters"]["critic_warmed"]) + int(state["counters"]["pretrained"]),
        env_steps=0,
        wall_s=float(state["wall_s"]),
        chunk=ChunkSpec(policy.cfg.chunk_steps, execute, residual=False),
    )


def _acting(policy: BcPolicy, execute: int, env: Any) -> ActingPolicy:
    return make_base(policy, env.num_envs, execute=execute)


def _write_bundle(policy: BcPolicy, contract: Any, golden: Any, folder: Path, **options: Any) -> Path:
    options.pop("mapper_bytes", None)
    return export_chunks(policy, contract, golden, folder, residual=None, **options)


CO_RFT = Algorithm(
    name="co-rft",
    summary="a clone that plans chunks, learned further from recorded episodes, failures included",
    cfg_type=OffPolicyCfg,
    preset=preset,
    make_trainer=make_trainer,
    open=open_policy,
    check=check,
    length="pretrain_updates",
    may_grow=("pretrain_updates",),
    demos="needs",
    base="needs",
    threads=1,  # Threads share out products of this size at a loss.
    smaller="a smaller learner.agent.batch_size helps, or fewer recorded episodes",
)
