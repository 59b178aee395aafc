"""PPO: on-policy, with symmetry, maps and teachers; see :mod:`gantry_policies.on_policy`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import CHECKPOINTS, Trainer
from gantry_policies.common.batched_env import IMAGE_PREFIX
from gantry_policies.common.checkpoint import load_newest
from gantry_policies.common.export import export_bundle
from gantry_policies.common.recorded_rows import OneByOne, input_names
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.model import ExportedPolicy
from gantry_policies.networks.pictures import PictureActor
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.presets import bounded
from gantry_policies.on_policy.trainer import PpoTrainer
from gantry_sim.envs.rsl_rl import BatchedVecEnv
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.registry import Preset, Task, from_flat, from_keys
from gantry_sim.training.algorithms.registry import Algorithm, TrainedPolicy
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_validation import RunError
from gantry_sim.training.teachers import check_teacher, load_teacher, told_guidance

PICTURES = "pictures"
"""Network that looks at pictures."""
ENVS = 64
"""Environments side by side where the task has no preset of its own for PPO."""


def preset(task: Task) -> Preset:
    """Few samples: small networks, large minibatches, actions within their bounds."""
    env = task.usual_env()
    learner = bounded(task.has_contract and task.contract(env).instruction is not None)
    return Preset(replace(env, num_envs=ENVS), learner)


def check(run: RunCfg) -> None:
    """Refuse images, too few samples, and a teacher that is missing or out of place."""
    images = [key for key in run.spaces.obs_shapes if key.startswith(IMAGE_PREFIX)]
    if bool(images) != (run.preset.learner.network == PICTURES):
        shown = ", ".join(images) or "no pictures"
        raise RunError(
            f"Task '{run.task.name}' shows {shown}, configured like this, and learner.network is "
            f"'{run.preset.learner.network}'; expected '{PICTURES}' where there are pictures, and there alone."
        )
    _check_teacher(run)
    check_teacher(run)
    _check_labels(run)
    envs, learner = run.preset.env.num_envs, run.preset.learner
    minibatches = learner.minibatches_of(envs * learner.steps_per_env)
    if envs * learner.steps_per_env < 2 * minibatches:
        raise RunError(
            f"{envs} environments x {learner.steps_per_env} steps are too few samples for {minibatches} minibatches."
        )


def _check_labels(run: RunCfg) -> None:
    if run.preset.learner.labels and not getattr(run.preset.env, "critic", False):
        raise RunError(
            f"learner.labels is {run.preset.learner.labels}, and nothing but the policy's own observation is shown to "
            f"the critic of '{run.task.name}', configured like this; expected env.critic=true, or learner.labels and "
            "learner.label_weight 0."
        )


def _check_teacher(run: RunCfg) -> None:
    task = run.task
    if run.scripted_teacher and run.teacher is not None:
        raise RunError(f"Both the scripted policy and the run '{run.teacher}' are named to teach, expected one.")
    if run.scripted_teacher and not task.require_scripted().teaches:
        raise RunError(f"The scripted policy of task '{task.name}' demonstrates, and guides no learner; see --demos.")
    if run.preset.learner.guide.required and not run.teacher_name:
        raise RunError(
            f"Preset '{run.preset_name}' learns from a teacher; name a run folder, or for example bundle:PATH or "
            "openpi:HOST:PORT, with --teacher. Without one it is the preset 'ppo'."
        )
    if task.needs_teacher and run.teacher is None:
        raise RunError(f"Task '{task.name}' learns from a teacher; name its run folder with --teacher RUN.")
    if run.teacher is not None and task.teacher(run.preset.env) is None:
        raise RunError(
            f"Task '{task.name}' defines no teacher observations, configured like this; leave out --teacher."
        )


def make_trainer(run: RunCfg, folder: Path | None) -> PpoTrainer:
    """Environments and learner of a run.

    Raises:
        RunError: If no environment can be built from the configuration.
    """
    task, env_cfg = run.task, run.preset.env
    make_env = task.require_scripted().make_env if run.scripted_teacher else None
    try:
        env = (make_env or task.make_env)(env_cfg, run.device, run.seed)
    except ValueError as error:  # from mjlab, or from MuJoCo's compiler
        raise RunError(f"The environment cannot be built with this configuration: {error}") from error
    layout = None
    if task.has_contract:
        contract = task.contract(env_cfg)
        if abs(env.dt_s * contract.rate_hz - 1.0) > 1e-6:
            raise RunError(
                f"A control step lasts {env.dt_s:g} s here, the policy's contract says {contract.rate_hz:g} Hz; "
                "the physics step must divide it."
            )
        layout = ObservationLayout.from_contract(contract)
    # A robot whose sides nothing tells can be trained without mirroring.
    mirror = None if run.preset.learner.mirror == "none" else task.mirror(env_cfg)
    env.keep_final_obs = False  # Out of time, PPO bootstraps from what is seen then.
    vec_env = BatchedVecEnv(env)
    parts = run.preset.learner, folder, run.device, mirror, run.learn_threads, layout, load_teacher(run, vec_env)
    with quietly():  # rsl_rl prints its networks
        return PpoTrainer(vec_env, *parts)


def open_policy(run: RunCfg, folder: Path, trainer: Trainer | None = None) -> TrainedPolicy:
    """The deterministic actor, normalisation inside."""
    if trainer is None:
        load_newest(folder / CHECKPOINTS)  # says what is missing before anything is built
        few = replace(run.preset, env=replace(run.preset.env, num_envs=2))
        alone = replace(run, preset=few, device="cpu", teacher=None, scripted_teacher=False, planner="")
        trainer = make_trainer(alone, folder)
        trainer.resume(policy_only=True)
    assert isinstance(trainer, PpoTrainer)
    actor = trainer.alg.get_policy().as_onnx(verbose=False).to("cpu").eval()
    return TrainedPolicy(
        make_policy=from_keys(actor) if isinstance(actor, PictureActor) else from_flat(actor),
        write_bundle=partial(_write_bundle, actor, told_guidance(run)),
        done=trainer.done,
        env_steps=trainer.env_steps,
        wall_s=trainer.wall_s,
    )


def _write_bundle(
    actor: torch.nn.Module, told: dict[str, Any], contract: Any, golden: Any, folder: Path, **options: Any
) -> Path:
    options["card"] = {**(options.get("card") or {}), **told}
    if contract.observation_size < 1:
        raise GantryError(f"The contract for '{contract.robot}' has no observations.")
    if isinstance(actor, PictureActor):
        options.pop("mapper_bytes", None)
        return export_bundle(OneByOne(actor, input_names(contract)), contract, golden, folder, **options)
    shown = isinstance(actor, ExportedPolicy) and actor.attends
    return export_bundle(actor, contract, golden, folder, attention=shown, **options)


PPO = Algorithm(
    name="ppo",
    summary="PPO from nothing, or guided by a teacher",
    cfg_type=PpoCfg,
    preset=preset,
    make_trainer=make_trainer,
    open=open_policy,
    check=check,
    may_grow=("total_steps", "guide.imitation_iterations"),
    teacher=True,
    processes=True,
    smaller="a smaller env.num_envs or learner.steps_per_env helps",
)
