"""Training from a task name to a run folder with log, checkpoints, evaluation and bundle."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv

from gantry_deploy.bundle.bundle import MAPPER
from gantry_deploy.bundle.locate import RUN_CONFIG
from gantry_deploy.contract.policy_contract import Provenance
from gantry_policies.common.checkpoint import list_checkpoints, load_newest
from gantry_policies.common.export import export_bundle
from gantry_policies.common.memory import explaining_memory
from gantry_policies.common.training_log import BOARD_FOLDER, CURVE_FILE
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.model import ExportedPolicy
from gantry_policies.on_policy.runner import CHECKPOINTS, Progress, Runner
from gantry_sim.envs.rsl_rl import GantryVecEnv
from gantry_sim.process.interrupts import stop_on_interrupt
from gantry_sim.process.suppress_output import quietly
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.training.evaluate import evaluate_policy
from gantry_sim.training.run_config import (
    BUNDLE_FOLDER,
    EVALUATION_FILE,
    EVALUATION_SEED,
    TRAINING_KEY,
    RunCfg,
    RunError,
    add_session,
    check_run,
    hold_run,
    read_run,
    trained_commit,
    write_json,
)
from gantry_sim.training.run_validation import LOCK_FILE, TEACHER_FOLDER
from gantry_sim.training.teachers import load_teacher


def build_runner(cfg: RunCfg, folder: Path | None) -> Runner:
    """Environment and learner of a run, seeded.

    Raises:
        RunError: If no environment can be built from the configuration.
    """
    torch.manual_seed(cfg.seed)
    with quietly(), torch_threads(1):
        try:
            make_env = cfg.task.script(cfg.script).make_env if cfg.script else cfg.task.make_env
            env = make_env(cfg.preset.env, cfg.device, cfg.seed)
        except ValueError as error:  # from mjlab, or from MuJoCo's compiler
            raise RunError(f"The environment cannot be built with this configuration: {error}") from error
        contract = cfg.task.contract(cfg.preset.env)
        rate_hz = contract.rate_hz
        if abs(env.step_dt * rate_hz - 1.0) > 1e-6:
            raise RunError(
                f"A control step lasts {env.step_dt:g} s here, the policy's contract says {rate_hz:g} Hz; "
                "the physics step must divide it."
            )
        # An environment without mjlab's managers brings its own way of being trained in.
        vec_env = env if isinstance(env, VecEnv) else GantryVecEnv(env, cfg.task.metrics)
        # A robot whose sides nothing tells can be trained without mirroring.
        mirror = None if cfg.preset.learner.mirror == "none" else cfg.task.mirror(cfg.preset.env)
        layout = ObservationLayout.from_contract(contract)
        teacher = load_teacher(cfg, vec_env)
        return Runner(vec_env, cfg.preset.learner, folder, cfg.device, mirror, cfg.learn_threads, layout, teacher)


def train(
    cfg: RunCfg,
    folder: Path,
    *,
    resume: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[Runner, bool]:
    """Train a run to its end; Ctrl-C ends it after the current iteration or, where that takes long, between two of its
    steps, checkpoint written.

    Args:
        cfg: The run.
        folder: Its folder; no other process may train in it.
        resume: Continue from the newest checkpoint, or from the beginning if the run was ended before its first one.
        on_progress: Called after every iteration.
        on_step: Called after every step of a rollout with its number and how many there are.

    Returns:
        The runner, and whether the training is complete.

    Raises:
        OutOfMemoryError: If there is not enough memory.
    """
    check_run(cfg)
    with hold_run(folder), explaining_memory("a smaller env.num_envs or learner.steps_per_env helps"):
        begun = resume and bool(list_checkpoints(folder / CHECKPOINTS))
        if begun:
            load_newest(folder / CHECKPOINTS)  # says that none can be read before anything is built
        runner = build_runner(cfg, folder)
        if begun:
            runner.resume()
        if resume:
            add_session(folder, runner.iteration)
        with stop_on_interrupt(runner.stop):
            return runner, runner.train(on_progress, on_step)


def remove_untrained(folder: Path, *, created: bool) -> None:
    """Take away what a start has written that failed before its first iteration; what has learned something stays.

    Args:
        folder: Of a new run.
        created: Whether the folder goes as well, if nothing else is in it.
    """
    curve = folder / CURVE_FILE
    if (folder / CHECKPOINTS).exists() or (curve.exists() and curve.stat().st_size):
        return
    with contextlib.suppress(OSError, RunError), hold_run(folder):  # another process may have begun here meanwhile
        for name in (CURVE_FILE, MAPPER, RUN_CONFIG):
            (folder / name).unlink(missing_ok=True)
        for name in (BOARD_FOLDER, TEACHER_FOLDER):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / LOCK_FILE).unlink(missing_ok=True)
        if created:
            folder.rmdir()


def policy_of(runner: Runner) -> torch.nn.Module:
    """The deterministic actor, normalisation inside: (N, observation_size) -> (N, action_size), on the CPU."""
    return runner.alg.get_policy().as_onnx(verbose=False).to("cpu").eval()


def evaluate_run(cfg: RunCfg, folder: Path, actor: torch.nn.Module, **options: Any) -> dict[str, Any]:
    """Evaluate a run's policy on the training model and on the full one, and write ``evaluation.json``."""
    result = {
        "task": cfg.task.name,
        "preset": cfg.preset_name,
        "seed": cfg.seed,
        "training_model": evaluate_policy(cfg.task, cfg.preset.env, actor, **options),
        "full_model": evaluate_policy(cfg.task, cfg.preset.env, actor, full_model=True, **options),
    }
    write_json(folder / EVALUATION_FILE, result)
    return result


def export_run(
    cfg: RunCfg, folder: Path, runner: Runner, bundle: Path | None = None, private_key: bytes | None = None
) -> Path:
    """Export a run's policy as a bundle, by default into the run folder."""
    contract = replace(
        cfg.task.contract(cfg.preset.env),
        provenance=Provenance(
            task=cfg.task.name,
            preset=cfg.preset_name,
            seed=cfg.seed,
            env_steps=runner.env_steps,
            train_wall_s=round(runner.wall_s, 1),
            git_commit=trained_commit(folder),
            created_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        ),
    )
    actor = policy_of(runner)
    with torch_threads(1):
        golden = cfg.task.record(cfg.task, cfg.preset.env, actor, seed=EVALUATION_SEED)
    mapper, env = cfg.task.mapper(cfg.preset.env), cfg.preset.env
    if mapper is not None:  # the bundle holds it, wherever it was on this machine
        env = cfg.task.use_mapper(env, Path(MAPPER))
    target = bundle or folder / BUNDLE_FOLDER
    shown = isinstance(actor, ExportedPolicy) and actor.attends
    return export_bundle(
        actor,
        contract,
        golden,
        target,
        card={TRAINING_KEY: {"env": asdict(env)}},
        private_key=private_key,
        attention=shown,
        mapper_bytes=mapper,
    )


def open_run(folder: Path) -> tuple[RunCfg, Runner]:
    """A run folder with its newest checkpoint loaded, on the CPU, for evaluation and export."""
    cfg = replace(read_run(folder), device="cpu")
    load_newest(folder / CHECKPOINTS)  # says what is missing before anything is built
    small = replace(cfg.preset, env=replace(cfg.preset.env, num_envs=2))
    runner = build_runner(replace(cfg, preset=small, teacher=None, script=""), folder)
    runner.resume(policy_only=True)
    return cfg, runner
