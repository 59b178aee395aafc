"""A trained actor as a bundle: ONNX with its contract inside, checked number by number before it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from gantry_deploy.bundle.bundle import MANIFEST, write_bundle
from gantry_deploy.bundle.files import NAMES, foreign_names, holds_bundle
from gantry_deploy.contract.policy_contract import METADATA_KEY, PolicyContract
from gantry_deploy.errors import BundleError, PolicyError
from gantry_deploy.policy.golden import pack_golden
from gantry_deploy.policy.onnx_policy import ATTENTION_OUTPUT, BASE_ACTION, IMAGE_PREFIX, OBSERVATION, OnnxPolicy
from gantry_hardware.errors import GantryError
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.export import to_onnx
from gantry_policies.common.recorded_rows import first_row, recorded_inputs, require_same
from gantry_policies.networks.model import ExportedPolicy

POLICY_ROLE, BASE_ROLE = "policy", "base"
"""Roles of a bundle's networks, as their metadata name them."""
ROLE_KEY = "gantry_role"
"""Key of the role in an ONNX file's ``metadata_props``."""
ACTION = "action"
"""Name of a network's first output."""
_ROLES = {
    POLICY_ROLE: f"The contract is in the metadata under '{METADATA_KEY}', as JSON.",
    BASE_ROLE: f"It plans what policy.onnx corrects. The contract is in the metadata under '{METADATA_KEY}', as JSON, "
    "without this file's own hash.",
}


def export_bundle(
    actor: torch.nn.Module,
    contract: PolicyContract,
    golden: dict[str, np.ndarray],
    folder: str | Path,
    *,
    card: Mapping[str, Any] | None = None,
    private_key: bytes | None = None,
    attention: bool = False,
    mapper_bytes: bytes | None = None,
) -> Path:
    """Write a bundle.

    Args:
        actor: Module (N, observation_size) -> (N, action_size), normalisation inside; with cameras it takes their
            pictures (N, 3, height, width) as well, one by one in the contract's order
            (:class:`~gantry_policies.common.recorded_rows.OneByOne`).
        contract: What the actor was trained with.
        golden: Recorded signals with ``observation`` (M, observation_size) and ``joint_target_rad`` (M, n); pictures of
            the contract's cameras. M >= 1000, or 50 with cameras. ``action`` is computed here.
        folder: Where to write.
        card: What the bundle says of itself from the beginning; `gantry check` adds its scores.
        private_key: Raw Ed25519 key to sign with.
        attention: Give the network a second output that shows where on the map it looks, which is compared too; the
            actor must be an :class:`~gantry_policies.networks.model.ExportedPolicy` that attends.
        mapper_bytes: The ONNX file of the network that made the actor's map, which goes with it.

    Returns:
        The folder.

    Raises:
        PolicyError: If there are too few observations, torch cannot express the network in ONNX, onnxruntime and torch
            disagree, or the folder holds anything but a bundle; nothing is written then.
        BundleError: If the disk does not take it.
    """
    refuse_foreign_files(Path(folder))
    rows = recorded_inputs(contract, golden)
    actor = actor.to("cpu").eval()
    graph = _with_attention(actor) if attention else actor
    with torch.inference_mode():  # All at once, so that a network that mixes observations differs from the robot's.
        outputs = graph(*rows.values())
    expected, *shown = (part.numpy() for part in (outputs if attention else (outputs,)))
    model_bytes = onnx_bytes(graph, contract, first_row(rows), [ACTION, ATTENTION_OUTPUT] if attention else [ACTION])
    require_same(OnnxPolicy(model_bytes, contract), rows, expected, *shown)
    arrays = {name: np.asarray(values) for name, values in golden.items()} | {"action": expected}
    arrays = pack_golden(contract, arrays)
    try:
        parts: dict[str, Any] = {"card": card, "private_key": private_key, "mapper_bytes": mapper_bytes}
        return write_bundle(folder, contract=contract, model_bytes=model_bytes, golden=arrays, **parts)
    except OSError as error:
        raise BundleError(f"Cannot write the bundle '{folder}': {error.strerror or error}.") from error


def _with_attention(actor: torch.nn.Module) -> torch.nn.Module:
    if not isinstance(actor, ExportedPolicy):
        raise PolicyError(f"A {type(actor).__name__} has no attention to export.")
    try:
        return actor.with_attention().eval()
    except GantryError as error:
        raise PolicyError(str(error)) from error


def refuse_foreign_files(folder: Path) -> None:
    """A bundle is a folder of its own: another one, named by mistake, must not get files strewn into it.

    Raises:
        PolicyError: If the folder holds anything that no bundle holds, or files of a bundle without its manifest.
    """
    if not folder.is_dir():
        return
    if foreign := foreign_names(folder):
        raise PolicyError(f"'{folder}' holds other files than a bundle's ({', '.join(foreign[:3])}); name a new one.")
    names = sorted(path.name for path in folder.iterdir() if path.name in NAMES)
    if names and not holds_bundle(folder):
        raise PolicyError(
            f"'{folder}' holds {', '.join(names[:3])} and is no bundle, having no {MANIFEST}; name a new one."
        )


def onnx_bytes(
    net: torch.nn.Module,
    contract: PolicyContract,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str] = (ACTION,),
    role: str = POLICY_ROLE,
) -> bytes:
    """A module as an ONNX file.

    Args:
        net: On the CPU, in evaluation mode; takes the inputs in their order.
        contract: Goes into the file's metadata; that of a base without the base's own hash.
        inputs: An example of each input, by name.
        outputs: Names of the outputs.
        role: What the network is for: :data:`POLICY_ROLE` or :data:`BASE_ROLE`.

    Raises:
        PolicyError: If torch cannot express the network in ONNX.
    """
    try:
        model = to_onnx(net, tuple(inputs.values()), list(inputs), list(outputs))
    except MappingError as error:
        raise PolicyError(str(error)) from error
    for key, value in ((ROLE_KEY, role), (METADATA_KEY, contract.to_json())):
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    model.doc_string = f"Network '{role}' of a policy of Gantry for robot '{contract.robot}'. {_ROLES[role]}"
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.doc_string = tensor_text(tensor.name, contract, role)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def tensor_text(name: str, contract: PolicyContract, role: str) -> str:
    """Description of a network's input or output, for programs that know nothing of Gantry."""
    if name == OBSERVATION:
        terms = ", ".join(f"{term.name} ({term.size * term.history})" for term in contract.observations)
        return (
            "One row: the terms of the contract in order, each the frames of its history, oldest first. Each number is "
            "scale * clip(value, -clip, clip) of its signal in SI units, with the term's scale and clip; all further "
            f"normalisation is inside the graph. Terms and their numbers: {terms}."
        )
    if name.startswith(IMAGE_PREFIX):
        return "Picture of a camera, RGB, channels first, 0 to 255, as the camera gives it."
    if name == BASE_ACTION:
        return "What base.onnx planned for this very step, before any clip."
    if name == ATTENTION_OUTPUT:
        return "Weights on the cells of the map window, which add up to 1; for people."
    if (steps := contract.planned_steps(base=role == BASE_ROLE)) is not None:
        return f"A plan: actions of the next {steps} steps, before the clip of the contract's action."
    return "The action of this step, before the clip of the contract's action."
