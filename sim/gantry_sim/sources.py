"""A policy with the task it was trained on, from a run folder or from a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gantry_deploy.bundle import Bundle, load_bundle
from gantry_deploy.onnx_policy import OnnxPolicy
from gantry_hardware.errors import GantryError
from gantry_sim.run_folder import CONFIG_FILE
from gantry_sim.tasks.registry import Policy, Task, find_task


@dataclass(frozen=True)
class Source:
    """What evaluation and play need."""

    task: Task
    """The task."""
    env_cfg: Any
    """Its configuration in training."""
    policy: Policy
    """Deterministic, (N, observations) to (N, actions)."""


def open_source(path: Path) -> Source:
    """Open a run folder or a bundle.

    Raises:
        GantryError: If it is neither, or the bundle's contract differs from its task's.
    """
    if (path / CONFIG_FILE).is_file():
        from gantry_sim.train import open_run, policy_of

        cfg, runner = open_run(path)
        return Source(cfg.task, cfg.preset.env, policy_of(runner))
    bundle = load_bundle(path)
    provenance = bundle.contract.provenance
    task = find_task(provenance.task)
    env_cfg = task.preset(provenance.preset).env
    _check_same(bundle, task, env_cfg)
    return Source(task, env_cfg, onnx_policy(bundle))


def onnx_policy(bundle: Bundle) -> Policy:
    """A bundle's network over a batch, row by row as on the robot."""
    session = OnnxPolicy(bundle.model_bytes, bundle.contract)

    def policy(observation: torch.Tensor) -> torch.Tensor:
        rows = observation.cpu().numpy()
        return torch.from_numpy(np.concatenate([session(row[None]) for row in rows])).to(observation.device)

    return policy


def _check_same(bundle: Bundle, task: Task, env_cfg: Any) -> None:
    mine, theirs = task.contract(env_cfg), bundle.contract
    for name in ("observations", "action", "gait", "joint_names", "default_pos_rad", "rate_hz"):
        if getattr(mine, name) != getattr(theirs, name):
            raise GantryError(
                f"The bundle's {name} differs from what task '{task.name}' has today.\n"
                f"  bundle: {getattr(theirs, name)}\n  task:   {getattr(mine, name)}"
            )
