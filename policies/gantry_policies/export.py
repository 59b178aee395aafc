"""A trained actor as a bundle: ONNX with its contract inside, checked number by number before it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from gantry_deploy.bundle import MANIFEST, write_bundle
from gantry_deploy.bundle_files import NAMES, foreign_names, holds_bundle
from gantry_deploy.contract import METADATA_KEY, PolicyContract
from gantry_deploy.errors import BundleError, PolicyError
from gantry_deploy.golden import pack_golden
from gantry_deploy.onnx_policy import ATTENTION_OUTPUT, OBSERVATION, OnnxPolicy
from gantry_hardware.errors import GantryError
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.export import to_onnx
from gantry_policies.networks.model import ExportedPolicy

MAX_DIFFERENCE = 1e-5
"""Largest difference between onnxruntime and torch that an export tolerates."""
MIN_OBSERVATIONS = 1000
"""Fewest recorded observations that an export compares."""


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
        actor: Module (1, observation_size) -> (1, action_size), normalisation inside, on the CPU.
        contract: What the actor was trained with.
        golden: Recorded signals with ``observation`` (M, observation_size) and ``joint_target_rad`` (M, n);
            M >= 1000. ``action`` is computed here.
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
    observations = np.asarray(golden["observation"], dtype=np.float32)
    if len(observations) < MIN_OBSERVATIONS:
        raise PolicyError(f"{len(observations)} observations recorded, an export compares at least {MIN_OBSERVATIONS}.")
    actor = actor.to("cpu").eval()
    graph = _with_attention(actor) if attention else actor
    with torch.inference_mode():
        outputs = graph(torch.from_numpy(observations))
    expected, *shown = (part.numpy() for part in (outputs if attention else (outputs,)))
    inputs = {OBSERVATION: torch.zeros(1, contract.observation_size)}
    model_bytes = onnx_bytes(graph, contract, inputs, ["action", ATTENTION_OUTPUT] if attention else ["action"])
    difference = compare(model_bytes, contract, observations, expected, *shown)
    if not difference <= MAX_DIFFERENCE:
        raise PolicyError(
            f"onnxruntime and torch differ by {difference:.2e} on {len(observations)} observations, "
            f"allowed is {MAX_DIFFERENCE:.0e}; nothing was written."
        )
    arrays = {name: np.asarray(values) for name, values in golden.items()} | {"action": expected}
    arrays = pack_golden(contract, arrays)
    try:
        parts: dict[str, Any] = {"card": card, "private_key": private_key, "mapper_bytes": mapper_bytes}
        return write_bundle(folder, contract=contract, model_bytes=model_bytes, golden=arrays, **parts)
    except OSError as error:
        raise BundleError(f"Cannot write the bundle '{folder}': {error.strerror or error}.") from error


def compare(
    model_bytes: bytes,
    contract: PolicyContract,
    observations: np.ndarray,
    expected: np.ndarray,
    attention: np.ndarray | None = None,
) -> float:
    """Largest absolute difference between the ONNX policy, run as on a robot, and what is expected.

    Args:
        model_bytes: The ONNX file.
        contract: Its contract.
        observations: Shape (M, observation_size).
        expected: Actions (M, n).
        attention: Attention weights (M, rows, cols) of a network that shows them; None to compare actions alone.
    """
    policy = OnnxPolicy(model_bytes, contract)
    if attention is None:
        actions = np.concatenate([policy(row[None]) for row in observations])
        return float(np.abs(actions - expected).max())
    pairs = [policy.with_attention(row[None]) for row in observations]
    differences = (
        np.abs(np.concatenate([part[index] for part in pairs]) - wanted).max()
        for index, wanted in enumerate((expected, attention))
    )
    return float(max(differences))


def _with_attention(actor: torch.nn.Module) -> torch.nn.Module:
    if not isinstance(actor, ExportedPolicy):
        raise PolicyError(f"A {type(actor).__name__} has no attention to export.")
    try:
        return actor.with_attention().eval()
    except GantryError as error:
        raise PolicyError(str(error)) from error


def refuse_foreign_files(folder: Path) -> None:
    """A bundle is a folder of its own: whoever names another one by mistake must not get files strewn into it.

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
    contract: PolicyContract | None,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str] = ("action",),
) -> bytes:
    """A module as an ONNX file.

    Args:
        net: On the CPU, in evaluation mode; takes the inputs in their order.
        contract: Goes into the file's metadata; None for a network without one.
        inputs: An example of each input, by name.
        outputs: Names of the outputs.

    Raises:
        PolicyError: If torch cannot express the network in ONNX.
    """
    try:
        model = to_onnx(net, tuple(inputs.values()), list(inputs), list(outputs))
    except MappingError as error:
        raise PolicyError(str(error)) from error
    if contract is not None:
        entry = model.metadata_props.add()
        entry.key, entry.value = METADATA_KEY, contract.to_json()
    onnx.checker.check_model(model)
    return model.SerializeToString()
