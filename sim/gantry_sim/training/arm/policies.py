"""A policy with the manipulation task it was trained on, from a run folder, from a bundle, or from a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import CARD, Bundle, load_bundle
from gantry_deploy.errors import BundleError
from gantry_hardware.structured import from_plain
from gantry_hardware.text import plain_text
from gantry_policies.common.checkpoint import CheckpointError, load_newest
from gantry_policies.imitation.policy import BcPolicy, load_policy, make_base
from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.common.evaluation import ActingPolicy
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import LearnedPolicy
from gantry_policies.off_policy.trainer import CHECKPOINTS
from gantry_sim.tasks.manipulation.registry import ArmTask, find_arm_task
from gantry_sim.tasks.names import arm_task_names
from gantry_sim.training.arm.acting import BundleActor, expert_actor
from gantry_sim.training.arm.algorithms import BcPreset
from gantry_sim.training.arm.bases import open_base
from gantry_sim.training.arm.run_config import BASE_FOLDER, ArmRun, is_arm_run, read_arm_run, require_same_task
from gantry_sim.training.run_files import TRAINING_KEY


@dataclass(frozen=True)
class ArmSource:
    """Policy source for evaluation and play."""

    task: ArmTask
    """The task."""
    env_cfg: Any
    """Its configuration in training."""
    actor: Callable[[BatchedEnv], ActingPolicy]
    """From environments of the task to the policy that acts in them."""
    trained_seed: int | None
    """Seed of the training; None where nothing was trained."""


@dataclass(frozen=True)
class Trained:
    """Policy that a run has learned, on the CPU."""

    run: ArmRun
    """The run."""
    cloned: BcPolicy | None
    """A cloned policy: the run's own, or the base that it corrects; None without."""
    learner: Learner | None
    """Learner of off-policy training; None in a run that only cloned."""
    env_steps: int
    """Environment steps so far."""
    wall_s: float
    """Time to learn so far."""
    steps: int = 0
    """Updates of a run that only cloned."""

    def actor(self, env: BatchedEnv) -> ActingPolicy:
        """Policy that acts in some environments: as it is, without exploring."""
        base = None if self.cloned is None else make_base(self.cloned, env.num_envs)
        if self.learner is None:
            assert base is not None
            return base
        return LearnedPolicy(self.learner, base)


def open_trained(folder: Path) -> Trained:
    """A run folder with its newest checkpoint.

    Raises:
        RunError: If it is no run folder.
        CheckpointError: If nothing has been learned in it yet, or it does not fit the configuration.
    """
    run = read_arm_run(folder)
    _, state = load_newest(folder / CHECKPOINTS)
    if isinstance(run.preset, BcPreset):
        if state["step"] < run.preset.bc.steps:
            raise CheckpointError(
                f"'{folder}' is at update {state['step']} of {run.preset.bc.steps}. Finish it with: gantry train "
                f"--resume {folder}"
            )
        return Trained(run, load_policy(folder).policy, None, 0, float(state["wall_s"]), state["step"])
    learner = Learner(run.preset.train.learner, run.spaces.obs_shapes, run.spaces.action_size)
    learner.load_state_dict(state["learner"])
    cloned = open_base(folder / BASE_FOLDER, run) if run.preset.train.learner.actor.residual else None
    course = state["course"]
    return Trained(run, cloned, learner, int(state["collector"]["env_steps"]), float(course["wall_s"]))


def open_arm_source(path: Path) -> ArmSource:
    """Open a run folder or a bundle.

    Raises:
        GantryError: If it is neither, or the bundle's contract differs from its task's.
    """
    if is_arm_run(path):
        trained = open_trained(path)
        return ArmSource(trained.run.task, trained.run.preset.env, trained.actor, trained.run.seed)
    return bundle_source(load_bundle(path))


def bundle_source(bundle: Bundle) -> ArmSource:
    """The task of a bundle, and the bundle acting in it.

    Raises:
        UnknownNameError: If the task is not installed here.
        GantryError: If the bundle's contract differs from its task's.
    """
    provenance = bundle.contract.provenance
    if provenance.task not in arm_task_names():
        raise BundleError(
            f"{bundle.path} was trained on the task '{provenance.task}', which is not installed here. Available: "
            f"{', '.join(arm_task_names())}."
        )
    task = find_arm_task(provenance.task)
    env_cfg = _trained_env(bundle, task)
    require_same_task(bundle.contract, task.contract(env_cfg), bundle.path)
    return ArmSource(task, env_cfg, lambda env: BundleActor(bundle, env.num_envs), provenance.seed)


def expert_source(name: str, badness: float, seed: int) -> ArmSource:
    """The scripted expert of a task.

    Raises:
        UnknownNameError: If there is no such task.
    """
    task = find_arm_task(name)
    return ArmSource(task, task.make_cfg(), expert_actor(task.expert, badness, seed), None)


def _trained_env(bundle: Bundle, task: ArmTask) -> Any:
    """The environment's configuration in a bundle's training; the task's own if its card does not say."""
    fresh = task.make_cfg()
    training = (bundle.card or {}).get(TRAINING_KEY)
    if training is None:
        return fresh
    where = f"{bundle.path}: {CARD}: {TRAINING_KEY}"
    if not isinstance(training, dict) or "env" not in training:
        raise BundleError(f"{where} is {plain_text(training)}, expected an object with 'env'.")
    return from_plain(type(fresh), training["env"], f"{where}.env", BundleError)
