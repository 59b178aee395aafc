"""SAC and what builds upon it: demonstrations in every batch, pre-training, corrections of a cloned policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_deploy.policy.live_policy import WEIGHTS_SHA256, weights_sha256
from gantry_deploy.session.snapshot import LearnerFacts
from gantry_hardware.training.trainer import CHECKPOINTS, Trainer
from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.common.checkpoint import load_newest
from gantry_policies.common.evaluation import ActingPolicy
from gantry_policies.common.export import export_bundle
from gantry_policies.common.recorded_rows import OneByOne, input_names
from gantry_policies.corrections.feed import StepStream
from gantry_policies.corrections.live import live_weights
from gantry_policies.corrections.trainer import Publish, StreamTrainer
from gantry_policies.imitation.export import export_chunks
from gantry_policies.imitation.policy import BcPolicy, make_base
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.collecting.fleet import Fleet
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import LearnedPolicy, PolicyModule
from gantry_policies.off_policy.replay.room import require_replay_memory
from gantry_policies.off_policy.trainer import OffPolicyTrainer
from gantry_sim.tasks.registry import Preset, Task
from gantry_sim.training.algorithms.registry import Algorithm, TrainedPolicy
from gantry_sim.training.bases import open_base
from gantry_sim.training.demos import DemoSet, demos_of
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_files import BASE_FOLDER, TRAINING_EVALUATION_SEED
from gantry_sim.training.run_validation import RunError

ENVS = 8
"""Environments side by side; more collect faster, and further behind what is learned."""
ACTORS = 4
"""Actors whose steps are stored side by side."""
EVALUATION_ENVS = 25
"""Most environments of the evaluations during a training."""


def evaluation_env(run: RunCfg, episodes: int) -> BatchedEnv:
    """Environments to evaluate a policy in while it is trained."""
    env = run.preset.env
    count = min(episodes, EVALUATION_ENVS if run.task.has_contract else env.num_envs)  # Others may need processes.
    return run.task.make_env(replace(env, num_envs=max(1, count)), run.device, TRAINING_EVALUATION_SEED)


def settings_of(run: RunCfg, saved: Mapping[str, Any] | None = None) -> OffPolicyCfg:
    """Settings of a run, with its seed, and of networks that read instructions where its task has any.

    Args:
        run: The run.
        saved: State of a learner that is to be opened; one that was begun before networks read words goes on without.

    Raises:
        RunError: If a vocabulary was set that is not the task's.
    """
    cfg: OffPolicyCfg = replace(run.preset.learner, seed=run.seed)
    spec = run.task.contract(run.preset.env).instruction if run.task.has_contract else None
    words = 0 if spec is None else len(spec.vocabulary)
    if cfg.agent.encoder.vocabulary not in (0, words):
        raise RunError(
            f"learner.agent.encoder.vocabulary is {cfg.agent.encoder.vocabulary}, expected {words}, the words of task "
            f"'{run.task.name}'; leave it out."
        )
    if saved is not None and not any(name.startswith("told.") for name in saved["networks"]["encoder"]):
        words = 0
    return replace(cfg, agent=replace(cfg.agent, encoder=replace(cfg.agent.encoder, vocabulary=words)))


def make_trainer(run: RunCfg, folder: Path | None) -> OffPolicyTrainer:
    """Environments, learner, demonstrations and base of a run.

    Raises:
        GantryError: If demonstrations, base and environments do not fit each other.
    """
    cfg, demos, policy = _parts_of(run, folder)
    env = run.task.make_env(run.preset.env, run.device, run.seed)
    judged = evaluation_env(run, cfg.eval_episodes) if cfg.eval_every_steps else None
    bases = [
        None if policy is None or where is None else make_base(policy, where.num_envs, device=run.device)
        for where in (env, judged)
    ]
    return OffPolicyTrainer(
        env,
        cfg,
        folder,
        base=bases[0],
        demos=[] if demos is None else demos.demos(),
        eval_env=judged,
        eval_base=bases[1],
        device=run.device,
        learn_threads=run.learn_threads,
    )


def _parts_of(run: RunCfg, folder: Path | None) -> tuple[OffPolicyCfg, DemoSet | None, BcPolicy | None]:
    """Settings, demonstrations and base of a run."""
    cfg = settings_of(run)
    policy = open_base(folder / BASE_FOLDER, run) if run.base and folder is not None else None
    if policy is not None and not cfg.agent.actor.residual:
        cfg = replace(cfg, warmup="base_noise", warmup_noise=0.0)  # The base collects the first steps, and no more.
    return cfg, demos_of(run, folder), policy


def make_fleet_trainer(run: RunCfg, folder: Path, fleet: Fleet) -> OffPolicyTrainer:
    """Make the learner of a run that a fleet of actors collects for.

    Raises:
        GantryError: If demonstrations, base and environments do not fit each other.
    """
    cfg, demos, policy = _parts_of(run, folder)
    if cfg.is_offline:
        raise RunError("Nothing is collected in this run (learner.total_steps is 0); leave out --actors.")
    env = evaluation_env(run, cfg.eval_episodes if cfg.eval_every_steps else 1)
    return OffPolicyTrainer(
        env,
        cfg,
        folder,
        fleet=fleet,
        base=None if policy is None else make_base(policy, env.num_envs, device=run.device),
        demos=[] if demos is None else demos.demos(),
        device=run.device,
        learn_threads=run.learn_threads,
    )


def make_stream_trainer(
    run: RunCfg, folder: Path, stream: StepStream, publish: Publish, tell: Callable[[LearnerFacts], None]
) -> StreamTrainer:
    """The learner of a run whose steps come from actors elsewhere; arguments as of :class:`StreamTrainer`.

    Raises:
        GantryError: If demonstrations, base and environments do not fit each other.
    """
    cfg = settings_of(run)
    demos = demos_of(run, folder)
    env = run.task.make_env(replace(run.preset.env, num_envs=ACTORS), "cpu", run.seed)
    policy = open_base(folder / BASE_FOLDER, run) if run.base else None
    return StreamTrainer(
        env,
        cfg,
        folder,
        stream,
        publish,
        tell,
        base=None if policy is None else make_base(policy, ACTORS, device=run.device),
        demos=[] if demos is None else demos.demos(),
        device=run.device,
        learn_threads=run.learn_threads,
    )


def check_replay(run: RunCfg) -> None:
    """Refuse a replay buffer that does not fit into memory."""
    cfg, spaces = settings_of(run), run.spaces
    residual = cfg.agent.actor.residual
    require_replay_memory(cfg.capacity, spaces.obs_shapes, spaces.action_size, residual, run.device)


def open_policy(run: RunCfg, folder: Path, trainer: Trainer | None = None) -> TrainedPolicy:
    """The learner of the newest checkpoint, on top of its base."""
    del trainer  # Its buffers need not be in memory any more.
    _, state = load_newest(folder / CHECKPOINTS)
    cfg = settings_of(run, state["learner"])
    learner = Learner(cfg.agent, run.spaces.obs_shapes, run.spaces.action_size)
    learner.load_state_dict(state["learner"])
    cloned = open_base(folder / BASE_FOLDER, run) if cfg.agent.actor.residual else None

    def make_policy(env: Any) -> ActingPolicy:
        return LearnedPolicy(learner, None if cloned is None else make_base(cloned, env.num_envs))

    steps = int(state["collector"]["env_steps"]) * int(state.get("processes", 1))
    return TrainedPolicy(
        make_policy=make_policy,
        write_bundle=partial(_write_bundle, learner, cloned),
        done=steps,
        env_steps=steps,
        wall_s=float(state["wall_s"]),
        weights_sha256=weights_sha256(live_weights(learner)),
        chunk=None if cloned is None else ChunkSpec(cloned.cfg.chunk_steps, cloned.cfg.execute_steps, residual=True),
    )


def _write_bundle(
    learner: Learner, cloned: BcPolicy | None, contract: Any, golden: Any, folder: Path, **options: Any
) -> Path:
    module = PolicyModule(learner).eval()
    # What is exported is what acted last in a session, if the learner of one made it; both carry the same hash.
    options["card"] = {**(options.get("card") or {}), WEIGHTS_SHA256: weights_sha256(live_weights(learner))}
    if cloned is not None:
        options.pop("mapper_bytes", None)
        return export_chunks(cloned, contract, golden, folder, residual=module, **options)
    return export_bundle(OneByOne(module, input_names(contract)), contract, golden, folder, **options)


def _preset(name: str, make: Callable[[], OffPolicyCfg], task: Task) -> Preset:
    return Preset(replace(task.usual_env(), num_envs=ENVS), make(), name)


def _algorithm(name: str, summary: str, make: Callable[[], OffPolicyCfg], **options: Any) -> Algorithm:
    return Algorithm(
        name=name,
        summary=summary,
        cfg_type=OffPolicyCfg,
        preset=partial(_preset, name, make),
        make_trainer=make_trainer,
        make_stream_trainer=make_stream_trainer,
        make_fleet_trainer=make_fleet_trainer,
        open=open_policy,
        check=check_replay,
        may_grow=("total_steps",),
        processes=True,
        threads=1,  # Threads share out products of this size at a loss.
        smaller="a smaller learner.capacity, env.num_envs or learner.agent.batch_size helps",
        **options,
    )


SAC = _algorithm("sac", "SAC from nothing", presets.sac)
HIL_SERL = _algorithm("hil-serl", "SAC with demonstrations and a person's corrections", presets.hil_serl, demos="takes")
HIL_WEIGHTED = _algorithm(
    "hil-weighted", "hil-serl that imitates good corrections as well", presets.hil_weighted, demos="needs"
)
DAGGER = _algorithm("dagger", "demonstrations and a person's corrections, imitated", presets.dagger, demos="needs")
HIL_RESIDUAL = _algorithm(
    "hil-residual",
    "a correction of a clone, with a person's",
    presets.hil_residual,
    demos="needs",
    base="needs",
)
RLPD = _algorithm("rlpd", "SAC of which half of every batch is demonstrations", presets.rlpd, demos="needs")
WSRL = _algorithm("wsrl", "learn from demonstrations, then forget them", presets.wsrl, demos="needs", base="takes")
RESFIT = _algorithm("resfit", "a correction on top of a cloned policy", presets.resfit, demos="needs", base="needs")
