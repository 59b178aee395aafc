"""The network, run by onnxruntime on one thread, refused unless it is what its contract says."""

from __future__ import annotations

import os
from dataclasses import fields

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from gantry_deploy.contract import METADATA_KEY, NORMALIZATION, PolicyContract
from gantry_deploy.errors import PolicyError

FloatArray = NDArray[np.float32]


ATTENTION_OUTPUT = "attention"
"""Name of the one output that a network may have beside its action: attention weights, (1, rows, cols)."""


class OnnxPolicy:
    """Maps an observation to an action.

    Args:
        model_bytes: The ONNX file, which carries its contract in its metadata.
        contract: What the runtime is going to obey, from ``contract.json``.

    Raises:
        PolicyError: If the file is no network, its sizes are not the contract's, or it carries another contract.
    """

    def __init__(self, model_bytes: bytes, contract: PolicyContract) -> None:
        self.contract = contract
        if contract.recurrent:
            raise PolicyError(
                f"The policy has recurrent state ({', '.join(contract.recurrent)}); this runtime has none."
            )
        if contract.normalization != NORMALIZATION:
            raise PolicyError(
                f"The policy's observations are normalised '{contract.normalization}'; this runtime knows only "
                f"'{NORMALIZATION}'."
            )
        self._session = _session(model_bytes)
        _check_metadata(self._session, contract)
        self._input, self._output = _check_sizes(self._session, contract)
        self.has_attention = len(self._session.get_outputs()) > 1

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Run the network.

        Args:
            observation: Shape (1, contract.observation_size).

        Returns:
            Action of shape (1, contract.action_size), before the clip.

        Raises:
            PolicyError: If the observation has another shape, or the action is not finite; names the joints.
        """
        return self._checked(observation, self._run([self._output], observation)[0])

    def with_attention(self, observation: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Run the network and ask where it looks.

        Args:
            observation: Shape (1, contract.observation_size).

        Returns:
            Action of shape (1, contract.action_size), and attention weights on the map window of shape
            (1, rows, cols), which add up to 1.

        Raises:
            PolicyError: As for a call, or if the network has no such output.
        """
        if not self.has_attention:
            raise PolicyError("The network shows no attention: it was exported without, or it does not attend.")
        action, attention = self._run([self._output, ATTENTION_OUTPUT], observation)
        return self._checked(observation, action), attention

    def _run(self, outputs: list[str], observation: FloatArray) -> list[FloatArray]:
        try:
            return self._session.run(outputs, {self._input: observation})  # type: ignore
        except Exception as error:  # onnxruntime raises several types without a common base
            raise PolicyError(
                f"The network refused an observation of shape {observation.shape} and type {observation.dtype}, "
                f"expected (1, {self.contract.observation_size}) float32: {_first_line(error)}"
            ) from error

    def _checked(self, observation: FloatArray, action: FloatArray) -> FloatArray:
        if not np.isfinite(action).all():
            names = self.contract.joint_names
            bad = [f"{names[i]} = {action[0, i]}" for i in np.flatnonzero(~np.isfinite(action[0]))]
            finite = "" if np.isfinite(observation).all() else " (the observation is not finite either)"
            raise PolicyError(f"The network's action is not finite: {', '.join(bad)}{finite}.")
        return action


def _session(model_bytes: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    # One thread: a policy network is too small to share, and a spinning pool would starve the control loop.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    # Weights outside the file are covered by no hash; a folder that cannot exist keeps them from being found.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    try:
        return ort.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises several types without a common base
        raise PolicyError(f"policy.onnx cannot be loaded: {_first_line(error)}") from error


def _check_metadata(session: ort.InferenceSession, contract: PolicyContract) -> None:
    metadata = session.get_modelmeta().custom_metadata_map
    if METADATA_KEY not in metadata:
        found = ", ".join(sorted(metadata)) or "(nothing)"
        raise PolicyError(f"policy.onnx carries no contract: its metadata lacks '{METADATA_KEY}' and holds {found}.")
    inside = PolicyContract.from_json(metadata[METADATA_KEY])
    if inside == contract:
        return
    for field in fields(PolicyContract):
        theirs, ours = getattr(inside, field.name), getattr(contract, field.name)
        if theirs != ours:
            raise PolicyError(
                f"policy.onnx carries another contract than contract.json; they differ in '{field.name}'."
                f"\n  policy.onnx: {theirs}\n  contract.json: {ours}"
            )


def _check_sizes(session: ort.InferenceSession, contract: PolicyContract) -> tuple[str, str]:
    """Names of the input and the output; a second output, the attention on the map, is for people."""
    names = []
    if [item.name for item in session.get_outputs()[1:]] == [ATTENTION_OUTPUT]:
        _check_attention(session.get_outputs()[1], contract)
    for what, found, size in (
        ("input", session.get_inputs(), contract.observation_size),
        ("output", session.get_outputs(), contract.action_size),
    ):
        if len(found) != 1 and [item.name for item in found[1:]] != [ATTENTION_OUTPUT]:
            listed = ", ".join(item.name for item in found)
            raise PolicyError(f"The network has {len(found)} {what}s ({listed}), expected one.")
        tensor = found[0]
        shape = tuple(tensor.shape)
        # A batch dimension may be free (a name) or 1.
        batch_fits = len(shape) == 2 and (not isinstance(shape[0], int) or shape[0] == 1)
        if not batch_fits or shape[1] != size or tensor.type != "tensor(float)":
            raise PolicyError(
                f"The network's {what} '{tensor.name}' is {tensor.type} of shape {shape}, "
                f"the contract says tensor(float) of shape (1, {size})."
            )
        names.append(tensor.name)
    return names[0], names[1]


def _check_attention(tensor: ort.NodeArg, contract: PolicyContract) -> None:
    window, shape = contract.map_window, tuple(tensor.shape)
    if window is None:
        raise PolicyError(f"The network has an output '{ATTENTION_OUTPUT}', the contract has no map window.")
    if len(shape) != 3 or shape[1:] != (window.rows, window.cols):
        expected = (1, window.rows, window.cols)
        raise PolicyError(f"The network's output '{ATTENTION_OUTPUT}' has shape {shape}, expected {expected}.")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
