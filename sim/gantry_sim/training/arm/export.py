"""A run's policy as a bundle: base, correction and contract, with episodes to compare with and scores to know it by."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gantry_deploy.contract.policy_contract import ChunkSpec, PolicyContract, Provenance
from gantry_hardware.errors import GantryError
from gantry_policies.common.export import MIN_OBSERVATIONS, export_bundle
from gantry_policies.imitation.export import export_chunks
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.off_policy.env import STATE
from gantry_policies.off_policy.policy import PolicyModule
from gantry_sim.training.arm.golden import record_golden
from gantry_sim.training.arm.policies import Trained
from gantry_sim.training.run_files import BUNDLE_FOLDER, EVALUATION_FILE, TRAINING_KEY, trained_commit
from gantry_sim.training.run_validation import read_run_file

IMAGE_ROWS = 100
"""Steps that are recorded of a policy with cameras, whose pictures fill the bundle."""


class _Single(nn.Module):
    """A policy without a base and without cameras, as a graph with one input."""

    def __init__(self, policy: PolicyModule) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> Tensor:
        return self.policy({STATE: observation})


def export_arm_run(
    folder: Path, trained: Trained, target: Path | None = None, private_key: bytes | None = None
) -> Path:
    """Export a run's policy as a bundle.

    Args:
        folder: The run folder.
        trained: What was learned in it.
        target: Where to write; into the run folder if None.
        private_key: Raw Ed25519 key to sign with.

    Returns:
        The bundle's folder.

    Raises:
        PolicyError: If onnxruntime and torch disagree; nothing is written then.
        BundleError: If the disk does not take it.
        GantryError: If the policy is of a kind that there are no bundles of.
    """
    run, where = trained.run, target or folder / BUNDLE_FOLDER
    contract = replace(_contract(trained), provenance=_provenance(folder, trained))
    cameras = contract.cameras
    if cameras and trained.cloned is None:
        raise GantryError(
            f"Preset '{run.preset_name}' learned from images and has no base; bundles with cameras plan chunks, alone "
            "or with a correction."
        )
    rows = IMAGE_ROWS if cameras else MIN_OBSERVATIONS
    golden = record_golden(run.task, run.preset.env, trained.actor, rows)
    card = _card(folder, trained)
    with torch.random.fork_rng():
        if trained.cloned is not None:
            residual = None if trained.learner is None else PolicyModule(trained.learner).eval()
            parts: dict[str, Any] = {"residual": residual, "card": card, "private_key": private_key}
            return export_chunks(trained.cloned, contract, golden, where, **parts)
        assert trained.learner is not None
        actor = _Single(PolicyModule(trained.learner)).eval()
        return export_bundle(actor, contract, golden, where, card=card, private_key=private_key)


def _contract(trained: Trained) -> PolicyContract:
    contract, policy = trained.run.contract(), trained.cloned
    return contract if policy is None else replace(contract, chunk=_chunk(policy, trained.learner is not None))


def _chunk(policy: BcPolicy, residual: bool) -> ChunkSpec:
    return ChunkSpec(policy.cfg.chunk_steps, policy.cfg.execute_steps, residual=residual)


def _provenance(folder: Path, trained: Trained) -> Provenance:
    run = trained.run
    return Provenance(
        task=run.task.name,
        preset=run.preset_name,
        seed=run.seed,
        env_steps=trained.env_steps,
        train_wall_s=round(trained.wall_s, 1),
        git_commit=trained_commit(folder),
        created_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def _card(folder: Path, trained: Trained) -> dict[str, Any]:
    """The environment's configuration in training, and the scores if the run was evaluated."""
    card: dict[str, Any] = {TRAINING_KEY: {"env": asdict(trained.run.preset.env)}}
    with contextlib.suppress(OSError, ValueError):  # It was not evaluated.
        card["evaluation"] = read_run_file(folder / EVALUATION_FILE)
    return card
