"""A policy with the task it was trained on, from a run folder or from a bundle."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gantry_deploy.bundle.bundle import CARD, MAPPER, Bundle, load_bundle
from gantry_deploy.contract.differences import NOT_OF_A_TASK, contract_differences, listed
from gantry_deploy.errors import BundleError
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_hardware.errors import GantryError
from gantry_hardware.structured import from_plain
from gantry_hardware.text import plain_text
from gantry_sim.tasks.registry import Policy, Task, find_task, scripted_policy
from gantry_sim.training.run_config import CONFIG_FILE, TRAINING_KEY


@dataclass(frozen=True)
class Source:
    """Policy source for evaluation and play."""

    task: Task
    """The task."""
    env_cfg: Any
    """Its configuration in training."""
    policy: Policy
    """Deterministic, (N, observations) to (N, actions)."""
    trained_seed: int
    """Seed of the training."""


def open_source(path: Path) -> Source:
    """Open a run folder or a bundle.

    Raises:
        GantryError: If it is neither, or the bundle's contract differs from its task's.
    """
    if (path / CONFIG_FILE).is_file():
        from gantry_sim.training.train import open_run, policy_of

        cfg, runner = open_run(path)
        return Source(cfg.task, cfg.preset.env, policy_of(runner), cfg.seed)
    bundle = load_bundle(path)
    provenance = bundle.contract.provenance
    task = find_task(provenance.task)
    env_cfg = trained_env(bundle, task)
    _check_same(bundle, task, env_cfg)
    return Source(task, env_cfg, onnx_policy(bundle), provenance.seed)


def open_script(task_name: str, script: str) -> Source:
    """Scripted policy of a task, on the preset that is taught with on a CPU.

    Raises:
        GantryError: If the task has no such script, or none that its evaluations know.
    """
    task = find_task(task_name)
    found = task.script(script)
    if not found.scored:
        raise GantryError(f"Evaluations of {task_name} know policies alone; `gantry bench` compares scripted drivers.")
    env_cfg = found.preset(task.preset("cpu")).env
    return Source(replace(task, make_env=found.make_env), env_cfg, scripted_policy, trained_seed=-1)


def trained_env(bundle: Bundle, task: Task) -> Any:
    """The environment's configuration in the training of a bundle, changes to the preset included; the preset itself if
    the bundle's card does not say.

    Raises:
        BundleError: If the card says something that does not fit the task.
    """
    preset = task.preset(bundle.contract.provenance.preset).env
    training = (bundle.card or {}).get(TRAINING_KEY)
    if training is None:
        return preset
    where = f"{bundle.path}: {CARD}: {TRAINING_KEY}"
    if not isinstance(training, dict) or "env" not in training:
        raise BundleError(f"{where} is {plain_text(training)}, expected an object with 'env'.")
    env = from_plain(type(preset), training["env"], f"{where}.env", BundleError)
    if bundle.mapper_bytes is None:
        return env
    return task.use_mapper(env, Path(_unpacked(bundle.mapper_bytes).name) / MAPPER)


@lru_cache
def _unpacked(mapper_bytes: bytes) -> tempfile.TemporaryDirectory[str]:
    """A folder with a mapping network as a file, once per network, which goes when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="gantry-mapper-")
    (Path(folder.name) / MAPPER).write_bytes(mapper_bytes)
    return folder


def onnx_policy(bundle: Bundle) -> Policy:
    """A bundle's network over a batch, row by row as on the robot."""
    session = OnnxPolicy(bundle.model_bytes, bundle.contract)

    def policy(observation: torch.Tensor) -> torch.Tensor:
        rows = observation.cpu().numpy()
        return torch.from_numpy(np.concatenate([session(row[None]) for row in rows])).to(observation.device)

    return policy


def _check_same(bundle: Bundle, task: Task, env_cfg: Any) -> None:
    mine, theirs = task.contract(env_cfg), bundle.contract
    if found := contract_differences(theirs, mine, ignoring=NOT_OF_A_TASK):
        raise GantryError(
            f"The bundle differs from what task '{task.name}' has today:"
            f"{listed(found, 'in the bundle', 'today')}\n"
            f"Give the folder of its training, or a bundle that task '{task.name}' was trained for anew; "
            "'gantry check' asks nothing of the task."
        )
