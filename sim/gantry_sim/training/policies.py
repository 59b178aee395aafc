"""A policy with the task it was trained on, from a run folder, from a bundle, or the scripted one."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import CARD, MAPPER, Bundle, load_bundle
from gantry_deploy.contract.differences import NOT_OF_A_TASK, contract_differences, listed
from gantry_deploy.errors import BundleError
from gantry_deploy.policy.live_policy import WEIGHTS_SHA256
from gantry_hardware.errors import GantryError
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import plain_text
from gantry_sim.tasks.registry import MakePolicy, Task, find_task
from gantry_sim.training.acting import BundleActor
from gantry_sim.training.run_folder import CONFIG_FILE, TRAINING_KEY


@dataclass(frozen=True)
class Source:
    """Policy source for evaluation and play."""

    task: Task
    """The task."""
    env_cfg: Any
    """Its configuration in training."""
    make_policy: MakePolicy
    """From environments of the task to the policy that acts in them, deterministic."""
    trained_seed: int | None
    """Seed of the training; None where nothing was trained."""
    weights_sha256: str = ""
    """SHA-256 of the weights that act; empty where they are not hashed."""


def open_source(path: Path) -> Source:
    """Open a run folder or a bundle.

    Raises:
        GantryError: If it is neither, or the bundle's contract differs from its task's.
    """
    if (path / CONFIG_FILE).is_file():
        from gantry_sim.training.train import open_trained

        run, trained = open_trained(path)
        return Source(run.task, run.preset.env, trained.make_policy, run.seed, trained.weights_sha256)
    return bundle_source(load_bundle(path))


def bundle_source(bundle: Bundle) -> Source:
    """The task of a bundle, and the bundle acting in it.

    Raises:
        UnknownNameError: If the task is not installed here.
        GantryError: If the bundle's contract differs from its task's.
    """
    provenance = bundle.contract.provenance
    task = find_task(provenance.task)
    env_cfg = trained_env(bundle, task)
    _check_same(bundle, task, env_cfg)
    hashed = str((bundle.card or {}).get(WEIGHTS_SHA256, ""))
    return Source(task, env_cfg, partial(BundleActor, bundle), provenance.seed, hashed)


def scripted_source(name: str, suboptimality: float, seed: int) -> Source:
    """The scripted policy of a task, in the environments that it acts in.

    Args:
        name: Of the task.
        suboptimality: 0 for as good as it can, 1 for many mistakes.
        seed: Of its mistakes.

    Raises:
        UnknownNameError: If there is no such task.
        GantryError: If the task has none.
    """
    task = find_task(name)
    found = task.require_scripted()
    first = next(iter(task.presets))
    env_cfg = found.preset(task.preset(first)).env
    where = task if found.make_env is None else replace(task, make_env=found.make_env)
    return Source(where, env_cfg, lambda env: found.make_policy(env, suboptimality, seed), None)


def trained_env(bundle: Bundle, task: Task) -> Any:
    """The environment's configuration in the training of a bundle, changes to the preset included; that of the preset
    if the bundle's card does not say.

    Raises:
        BundleError: If the card says something that does not fit the task.
    """
    preset = bundle.contract.provenance.preset
    usual = task.preset(preset).env if preset in task.presets else task.usual_env()
    training = (bundle.card or {}).get(TRAINING_KEY)
    if training is None:
        return usual
    where = f"{bundle.path}: {CARD}: {TRAINING_KEY}"
    if not isinstance(training, dict) or "env" not in training:
        raise BundleError(f"{where} is {plain_text(training)}, expected an object with 'env'.")
    env = from_plain(type(usual), training["env"], f"{where}.env", BundleError)
    if bundle.mapper_bytes is None:
        return env
    return task.use_mapper(env, Path(_unpacked(bundle.mapper_bytes).name) / MAPPER)


@lru_cache
def _unpacked(mapper_bytes: bytes) -> tempfile.TemporaryDirectory[str]:
    """A folder with a mapping network as a file, once per network, which goes when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="gantry-mapper-")
    (Path(folder.name) / MAPPER).write_bytes(mapper_bytes)
    return folder


def _check_same(bundle: Bundle, task: Task, env_cfg: Any) -> None:
    mine, theirs = task.contract(env_cfg), bundle.contract
    if found := contract_differences(theirs, mine, ignoring=NOT_OF_A_TASK):
        raise GantryError(
            f"The bundle differs from what task '{task.name}' has today:"
            f"{listed(found, 'in the bundle', 'today')}\n"
            f"Give the folder of its training, or a bundle that task '{task.name}' was trained for anew; "
            "'gantry check' asks nothing of the task."
        )
