"""Training from a run's configuration to a folder with log, checkpoints, evaluation and bundle."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.bundle.bundle import MAPPER
from gantry_deploy.bundle.locate import RUN_CONFIG
from gantry_deploy.contract.policy_contract import Provenance
from gantry_deploy.process.stopping import stop_on_interrupt
from gantry_hardware.training.log import BOARD_FOLDER, METRICS_FILE
from gantry_hardware.training.trainer import CHECKPOINTS, OnProgress, Trainer
from gantry_policies.common import processes
from gantry_policies.common.checkpoint import list_checkpoints, load_newest
from gantry_policies.common.memory import explaining_memory
from gantry_sim.process.together import own_device, saving_for_first
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.training.algorithms.registry import TrainedPolicy
from gantry_sim.training.evaluate import evaluate_policy
from gantry_sim.training.link.fleet import FleetCfg
from gantry_sim.training.link.listen import Listen
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_folder import (
    BASE_FOLDER,
    BUNDLE_FOLDER,
    CONTRACT_FILE,
    DEMOS_FILE,
    EVALUATION_FILE,
    EVALUATION_SEED,
    TRAINING_KEY,
    add_session,
    algorithm_of,
    hold_run,
    read_run,
    trained_commit,
    write_json,
)
from gantry_sim.training.run_validation import LOCK_FILE, TEACHER_FOLDER, RunError, read_run_file


def build_trainer(run: RunCfg, folder: Path | None) -> Trainer:
    """Environments and learner of a run, seeded.

    Raises:
        GantryError: If no environment can be built from the configuration, or parts do not fit each other.
    """
    own = replace(run, seed=run.seed + processes.rank(), device=own_device(run.device))
    torch.manual_seed(own.seed)
    with torch_threads(1):
        return algorithm_of(run).make_trainer(own, folder)


def train(
    run: RunCfg,
    folder: Path,
    *,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    on_step: Callable[[int, int], None] | None = None,
    listen: Listen | None = None,
    fleet: FleetCfg | None = None,
    on_address: Callable[[str], None] = lambda address: None,
) -> tuple[Trainer, bool]:
    """Train a run to its end; Ctrl-C ends it after the current piece of work or, where that takes long, between two of
    its steps, checkpoint written.

    Args:
        run: The run, see :func:`gantry_sim.training.begin.begin_run`.
        folder: Its folder; no other process may train in it.
        resume: Continue from the newest checkpoint, or from the beginning if the run was ended before its first one.
        on_progress: Called with every row of the log.
        on_step: Called within a long piece of work with the number of a step and how many there are.
        listen: Learn from the steps of actors that connect there, instead of own environments.
        fleet: Learn from the steps of simulating actors on Ray.
        on_address: Called with the address at which actors are waited for.

    Returns:
        The training, and whether it is complete, by its length or by its time; one that had ended before it was
        resumed says so, and is left as it was.

    Raises:
        OutOfMemoryError: If there is not enough memory.
        GantryError: If something does not fit, or the training diverges.
    """
    if listen is not None and fleet is not None:
        raise RunError("A training learns from the actors of a session or from simulating ones; give one of both.")
    held = hold_run(folder) if processes.is_first() else contextlib.nullcontext()
    with held, explaining_memory(algorithm_of(run).smaller):
        begun = resume and bool(list_checkpoints(folder / CHECKPOINTS))
        if begun:
            load_newest(folder / CHECKPOINTS)  # says that none can be read before anything is built
        with contextlib.ExitStack() as stack:
            if listen is None:
                trainer, start = _own_trainer(run, folder, fleet, stack)
                if begun:
                    trainer.resume()
            else:
                from gantry_sim.training.link.listening import listening_trainer

                trainer, server = stack.enter_context(listening_trainer(run, folder, listen, export_run))
                start = partial(on_address, server.address)
            if begun and trainer.is_over(run.minutes):
                trainer.had_ended = True
                return trainer, True
            start()
            if resume and processes.is_first():
                add_session(folder, trainer.done)
            # The first one alone has an eye on the time, since evaluations, for which the others wait, do not count.
            minutes = run.minutes if processes.is_first() else 0.0
            with stop_on_interrupt(trainer.stop), saving_for_first(trainer, folder):
                return trainer, processes.any_of(trainer.train(on_progress, minutes=minutes, on_step=on_step))


def _own_trainer(
    run: RunCfg, folder: Path, fleet: FleetCfg | None, stack: contextlib.ExitStack
) -> tuple[Trainer, Callable[[], None]]:
    """The training of a run in own environments, or in those of a fleet, and what is to be started before it trains."""
    if fleet is None:
        return build_trainer(run, folder), lambda: None
    from gantry_sim.training.link.ray_fleet import RayFleet, fleet_trainer

    actors = stack.enter_context(RayFleet(folder, run, fleet))
    return fleet_trainer(run, folder, actors), actors.start


def remove_untrained(folder: Path, *, created: bool) -> None:
    """Take away what a start has written that failed before its first row; what has learned something stays.

    Args:
        folder: Of a new run.
        created: Whether the folder goes as well, if nothing else is in it.
    """
    log = folder / METRICS_FILE
    if (folder / CHECKPOINTS).exists() or (log.exists() and log.stat().st_size):
        return
    with contextlib.suppress(OSError, RunError), hold_run(folder):  # another process may have begun here meanwhile
        for name in (METRICS_FILE, MAPPER, DEMOS_FILE, CONTRACT_FILE, RUN_CONFIG):
            (folder / name).unlink(missing_ok=True)
        for name in (BOARD_FOLDER, TEACHER_FOLDER, BASE_FOLDER):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / LOCK_FILE).unlink(missing_ok=True)
        if created:
            folder.rmdir()


def open_trained(folder: Path, trainer: Trainer | None = None) -> tuple[RunCfg, TrainedPolicy]:
    """A run folder and the policy of its newest checkpoint, on the CPU.

    Args:
        folder: The run folder.
        trainer: The training that has just ended there, which saves reading it again.

    Raises:
        RunError: If it is no run folder.
        CheckpointError: If nothing has been learned in it yet, or it does not fit the configuration.
    """
    run = replace(read_run(folder), device="cpu")
    with torch_threads(1):
        return run, algorithm_of(run).open(run, folder, trainer)


def evaluate_run(run: RunCfg, folder: Path, trained: TrainedPolicy, **options: Any) -> dict[str, Any]:
    """Evaluate a run's policy on every model of its task, and write ``evaluation.json``."""
    result: dict[str, Any] = {
        "task": run.task.name,
        "algorithm": run.preset.algorithm,
        "preset": run.preset_name,
        "seed": run.seed,
    }
    for model in run.task.models:
        full = model == "full"
        policy = trained.make_policy
        scores = evaluate_policy(run.task, run.preset.env, policy, full_model=full, **options)
        result[f"{model}_model"] = scores
    write_json(folder / EVALUATION_FILE, result)
    return result


def export_run(
    run: RunCfg, folder: Path, trained: TrainedPolicy, bundle: Path | None = None, private_key: bytes | None = None
) -> Path:
    """Export a run's policy as a bundle, by default into the run folder.

    Raises:
        PolicyError: If onnxruntime and torch disagree; nothing is written then.
        BundleError: If the disk does not take it.
        GantryError: If the task has no contract, or there are no bundles of such a policy.
    """
    provenance = Provenance(
        task=run.task.name,
        preset=run.preset_name,
        seed=run.seed,
        env_steps=trained.env_steps,
        train_wall_s=round(trained.wall_s, 1),
        git_commit=trained_commit(folder),
        created_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    contract = replace(run.contract(), provenance=provenance, chunk=trained.chunk)
    with torch_threads(1):
        golden = run.task.record(run.task, run.preset.env, trained.make_policy, seed=EVALUATION_SEED)
    mapper, env = run.task.mapper(run.preset.env), run.preset.env
    if mapper is not None:  # the bundle holds it, wherever it was on this machine
        env = run.task.use_mapper(env, Path(MAPPER))
    card: dict[str, Any] = {TRAINING_KEY: {"env": asdict(env)}}
    with contextlib.suppress(OSError, ValueError):  # It was not evaluated.
        card["evaluation"] = read_run_file(folder / EVALUATION_FILE)
    options = {"card": card, "private_key": private_key, "mapper_bytes": mapper}
    with torch.random.fork_rng():
        return trained.write_bundle(contract, golden, bundle or folder / BUNDLE_FOLDER, **options)
