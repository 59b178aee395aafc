"""Policies that plan chunks as bundles: stateless graphs, compared number by number before anything is written.

The queue of a plan stays outside of the graphs, in the runtime (``policy.policy``). A residual on top of a
cloned base is a second graph, which takes the base's action of the step as an input.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gantry_deploy.bundle.bundle import write_bundle
from gantry_deploy.contract.parts import ChunkSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import BundleError, PolicyError
from gantry_deploy.policy.action_queue import ActionQueue
from gantry_deploy.policy.onnx_policy import BASE_ACTION, IMAGE_PREFIX, OnnxBase, OnnxPolicy
from gantry_policies.common.batched_env import STATE
from gantry_policies.common.export import BASE_ROLE, onnx_bytes, refuse_foreign_files
from gantry_policies.common.recorded_rows import OneByOne, answers, first_row, recorded_inputs, require_same
from gantry_policies.imitation.policy import BcPolicy


def export_chunks(
    policy: BcPolicy,
    contract: PolicyContract,
    golden: Mapping[str, np.ndarray],
    folder: str | Path,
    *,
    residual: nn.Module | None = None,
    card: Mapping[str, Any] | None = None,
    private_key: bytes | None = None,
) -> Path:
    """Write a bundle of a policy that plans chunks, with or without a residual on top.

    Args:
        policy: Plans; as trained, since the residual learned on exactly this one.
        contract: What it was trained with; its ``chunk`` says how much of a plan is executed. With a residual the
            base's hash is filled in.
        golden: Recorded steps as :mod:`gantry_deploy.policy.golden` describes them, at least 1000, or 50 with cameras.
            ``action`` and ``base_action`` are computed here.
        folder: Where to write.
        residual: Module ``(observations by key (1, ...), base_action (1, n)) -> (1, n)``, scalers, sum and limits
            inside; None for a policy that executes its plans as they are.
        card: What the bundle says of itself from the beginning.
        private_key: Raw Ed25519 key to sign with.

    Returns:
        The folder.

    Raises:
        PolicyError: If policy and contract do not fit, too little was recorded, torch cannot express a network in
            ONNX, or onnxruntime and torch disagree; nothing is written then.
        BundleError: If the disk does not take it.
    """
    refuse_foreign_files(Path(folder))
    chunk = _checked_chunk(policy, contract, residual)
    rows = recorded_inputs(contract, golden)
    if "episode_start" not in golden:
        raise PolicyError(f"What was recorded lacks episode_start; it holds: {', '.join(sorted(golden))}.")
    arrays = {name: np.asarray(values) for name, values in golden.items()}
    with _on_cpu(policy, residual):
        planner = OneByOne(policy, list(rows))
        plans, base_bytes = answers(planner, rows), None
        queued = _queued(chunk, plans, arrays["episode_start"])
        if residual is None:
            net, inputs, expected = planner, rows, plans
        else:
            base_bytes = onnx_bytes(planner, contract, first_row(rows), role=BASE_ROLE)
            require_same(OnnxBase(base_bytes, contract), rows, plans)
            chunk = replace(chunk, base_sha256=hashlib.sha256(base_bytes).hexdigest())
            contract = replace(contract, chunk=chunk)
            inputs = {**rows, BASE_ACTION: torch.from_numpy(queued)}
            net = OneByOne(residual, list(inputs))
            arrays[BASE_ACTION], expected = queued, answers(net, inputs)
        model_bytes = onnx_bytes(net, contract, first_row(inputs))
    require_same(OnnxPolicy(model_bytes, contract), inputs, expected)
    arrays["action"] = queued if residual is None else expected
    parts: dict[str, Any] = {"card": card, "private_key": private_key, "base_bytes": base_bytes}
    try:
        return write_bundle(folder, contract=contract, model_bytes=model_bytes, golden=arrays, **parts)
    except OSError as error:
        raise BundleError(f"Cannot write the bundle '{folder}': {error.strerror or error}.") from error


@contextlib.contextmanager
def _on_cpu(*modules: nn.Module | None) -> Iterator[None]:
    """Modules on the CPU and in evaluation mode; where they were afterwards."""
    places = [(module, next(module.parameters()).device) for module in modules if module is not None]
    try:
        for module, _ in places:
            module.to("cpu").eval()
        yield
    finally:
        for module, device in places:
            module.to(device)


def _checked_chunk(policy: BcPolicy, contract: PolicyContract, residual: nn.Module | None) -> ChunkSpec:
    """The contract's chunk; refuse a contract that says something else than what was trained."""
    chunk = contract.chunk
    if chunk is None or chunk.steps != policy.cfg.chunk_steps or chunk.residual != (residual is not None):
        residual_text = "a residual" if residual is not None else "no residual"
        raise PolicyError(
            f"The contract's chunk is {chunk}, expected {policy.cfg.chunk_steps} steps and {residual_text}, as trained."
        )
    shapes = {STATE: (contract.observation_size,)}
    shapes |= {IMAGE_PREFIX + item.name: (3, item.height, item.width) for item in contract.cameras}
    if shapes != policy.obs_shapes or contract.action_size != policy.action_size:
        raise PolicyError(
            f"The contract observes {shapes} and acts with {contract.action_size} numbers; the policy was trained on "
            f"{policy.obs_shapes} and {policy.action_size}."
        )
    return chunk


def _queued(chunk: ChunkSpec, plans: np.ndarray, episode_start: np.ndarray) -> np.ndarray:
    """``(M, n)``: what the runtime's queue makes of plans ``(M, T, n)``, one for each recorded row."""
    queue, actions = ActionQueue(chunk.execute, chunk.ensemble_decay), []
    for plan, begins in zip(plans, episode_start, strict=True):
        if begins:
            queue.reset()
        if queue.wants_chunk:
            queue.push(plan)
        actions.append(queue.pop())
    return np.stack(actions)
