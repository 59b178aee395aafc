"""A manipulation task from its configuration to a trained policy, in a run folder that can be continued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gantry_policies.common.checkpoint import list_checkpoints
from gantry_policies.common.memory import explaining_memory
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import split_episodes
from gantry_policies.imitation.policy import make_base
from gantry_policies.imitation.trainer import BcProgress, CloningTrainer
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.common.evaluation import Evaluation
from gantry_policies.off_policy.replay.buffer import require_replay_memory
from gantry_policies.off_policy.trainer import CHECKPOINTS, OffPolicyTrainer, TrainingProgress
from gantry_sim.process.interrupts import stop_on_interrupt
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.training.arm.algorithms import BcPreset
from gantry_sim.training.arm.bases import open_base
from gantry_sim.training.arm.demos import DemoSet, expected_demos, load_demos
from gantry_sim.training.arm.run_config import BASE_FOLDER, DEMOS_FILE, ArmRun, add_arm_session, check_arm_run
from gantry_sim.training.run_files import EVALUATION_SEED, hold_run
from gantry_sim.training.run_validation import RunError

LOOK_SEED = EVALUATION_SEED + 1
"""Seed of the episodes that a training looks at meanwhile; those that `gantry eval` runs stay unseen."""
LOOK_ENVS = 25
"""Most environments for these."""


@dataclass(frozen=True)
class ArmProgress:
    """Progress of a training, whatever its kind."""

    phase: str
    """Current phase, for example ``clone`` or ``warmup``."""
    done: int
    """Environment steps, or updates of a cloned policy, resumed sessions included."""
    total: int
    """Total number of them."""
    env_steps: int
    """Environment steps so far."""
    wall_s: float
    """Time so far without evaluations, resumed sessions included."""
    metrics: dict[str, float]
    """Of the last update."""
    evaluation: Evaluation | None = None
    """Result of an evaluation that was just done."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a training."""

    complete: bool
    """Whether it came to its end, by steps or by time."""
    progress: ArmProgress | None
    """The last that it said; None if it said nothing."""


OnProgress = Callable[[ArmProgress], None]


def train_arm(run: ArmRun, folder: Path, *, resume: bool = False, on_progress: OnProgress = lambda _: None) -> Outcome:
    """Train a run to its end; Ctrl-C ends it after the current step, checkpoint written.

    Args:
        run: The run.
        folder: Its folder, with its copies of demonstrations and base; no other process may train in it.
        resume: Continue from the newest checkpoint, or from the beginning if the run was ended before its first one.
        on_progress: Called with every row of metrics.

    Raises:
        GantryError: If something does not fit, the memory is not enough, or the training diverges.
    """
    check_arm_run(run)
    with hold_run(folder), explaining_memory(_memory_setting(run)):
        trainer = build_trainer(run, folder)
        if resume and list_checkpoints(folder / CHECKPOINTS):
            trainer.resume()
        if resume:
            add_arm_session(folder, _done(trainer))
        last: list[ArmProgress] = []
        is_late = False

        def tell(progress: BcProgress | TrainingProgress) -> None:
            nonlocal is_late
            last[:] = [_told(progress)]
            on_progress(last[0])
            if 0.0 < 60.0 * run.minutes <= progress.wall_s:
                is_late = True
                trainer.stop()

        with stop_on_interrupt(trainer.stop):
            finished = trainer.train(tell)  # type: ignore[arg-type]
        return Outcome(finished or is_late, last[0] if last else None)


def require_room(run: ArmRun) -> None:
    """Refuse a replay buffer that does not fit into memory, before anything is written.

    Raises:
        OutOfMemoryError: With what is needed and what is available.
    """
    if isinstance(run.preset, BcPreset):
        return
    cfg, spaces = run.preset.train, run.spaces
    residual = cfg.learner.actor.residual
    require_replay_memory(cfg.capacity, spaces.obs_shapes, spaces.action_size, residual, run.device)


def _memory_setting(run: ArmRun) -> str:
    if isinstance(run.preset, BcPreset):
        return "a smaller bc.batch_size helps, or fewer demonstrations"
    return "a smaller train.capacity, env.num_envs or train.learner.batch_size helps"


def build_trainer(run: ArmRun, folder: Path) -> CloningTrainer | OffPolicyTrainer:
    """The learner of a run, with its environments.

    Raises:
        GantryError: If demonstrations, base and environments do not fit each other.
    """
    torch.manual_seed(run.seed)
    demos = load_demos(folder)
    if demos is not None:
        demos.require(expected_demos(run), folder / DEMOS_FILE)
    with torch_threads(1):
        if isinstance(run.preset, BcPreset):
            return _bc_trainer(run, run.preset.bc, folder, demos)
        return _rl_trainer(run, run.preset.train, folder, demos)


def look_env(run: ArmRun, episodes: int) -> BatchedEnv:
    """Environments to look at a policy in while it is trained."""
    env = run.preset.env
    count = min(episodes, LOOK_ENVS if run.has_contract else env.num_envs)  # Others may need a process for each.
    return run.task.make_env(replace(env, num_envs=max(1, count)), LOOK_SEED)


def _bc_trainer(run: ArmRun, cfg: BcCfg, folder: Path, demos: DemoSet | None) -> CloningTrainer:
    if demos is None:
        raise RunError(f"'{folder}' has no copy of its demonstrations; begin the run again.")
    learned, others = split_episodes(len(demos.lengths), cfg.validation_share, cfg.seed)
    return CloningTrainer(
        demos.chunks(learned),
        cfg,
        folder,
        validation=demos.chunks(others) if others else None,
        eval_env=look_env(run, cfg.eval_episodes) if cfg.eval_every_steps else None,
        provenance={"task": run.task.name, "demos": run.demos, "episodes": len(demos.lengths), "seed": run.seed},
        device=run.device,
        threads=run.learn_threads,
    )


def _rl_trainer(run: ArmRun, cfg: OffPolicyCfg, folder: Path, demos: DemoSet | None) -> OffPolicyTrainer:
    policy = open_base(folder / BASE_FOLDER, run) if run.base else None
    if policy is not None and not cfg.learner.actor.residual:
        cfg = replace(cfg, warmup="base_noise", warmup_noise=0.0)  # The base collects the first steps, and no more.
    env = run.task.make_env(run.preset.env, run.seed)
    looks = look_env(run, cfg.eval_episodes) if cfg.eval_every_steps else None
    bases = [
        None if policy is None or where is None else make_base(policy, where.num_envs, device=run.device)
        for where in (env, looks)
    ]
    return OffPolicyTrainer(
        env,
        cfg,
        folder,
        base=bases[0],
        demos=[] if demos is None else demos.demos(),
        eval_env=looks,
        eval_base=bases[1],
        device=run.device,
        learn_threads=run.learn_threads,
    )


def _done(trainer: CloningTrainer | OffPolicyTrainer) -> int:
    return trainer.step if isinstance(trainer, CloningTrainer) else trainer.collector.env_steps


def _told(progress: BcProgress | TrainingProgress) -> ArmProgress:
    if isinstance(progress, BcProgress):
        step, total = progress.step, progress.total_steps
        return ArmProgress("clone", step, total, 0, progress.wall_s, progress.metrics, progress.evaluation)
    return ArmProgress(
        progress.phase,
        progress.env_steps,
        progress.total_steps,
        progress.env_steps,
        progress.wall_s,
        progress.metrics,
        progress.evaluation,
    )
