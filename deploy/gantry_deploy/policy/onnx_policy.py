"""The network of a policy, refused unless it is what its contract says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from gantry_deploy.contract.differences import contract_differences, listed
from gantry_deploy.contract.policy_contract import METADATA_KEY, NORMALIZATION, PolicyContract
from gantry_deploy.errors import PolicyError
from gantry_mapping.onnx.network import Network

FloatArray = NDArray[np.float32]
Images = Mapping[str, NDArray[np.uint8]]
"""Camera name to picture (3, height, width)."""

OBSERVATION, IMAGE_PREFIX, BASE_ACTION = "observation", "image/", "base_action"
"""Names of a network's inputs, where it has more than one; a camera's is ``image/<name>``."""
ATTENTION_OUTPUT = "attention"
"""Name of the one output that a network may have beside its action: attention weights, (1, rows, cols)."""


class OnnxPolicy:
    """Maps an observation, and what else the contract names, to an action or to a plan of several.

    Args:
        model_bytes: The ONNX file, which carries its contract in its metadata.
        contract: What the runtime is going to obey, from ``contract.json``.

    Raises:
        PolicyError: If the file is no network, or one whose work is not bounded (:mod:`gantry_mapping.onnx.network`),
            if its sizes are not the contract's, or if it carries another contract.
    """

    FILE = "policy.onnx"
    """Name of the file, for messages."""

    def __init__(self, model_bytes: bytes, contract: PolicyContract) -> None:
        self.contract = contract
        self._check_kind()
        if contract.normalization != NORMALIZATION:
            raise PolicyError(
                f"The policy's observations are normalised '{contract.normalization}'; this runtime knows only "
                f"'{NORMALIZATION}'."
            )
        self._network = Network(model_bytes, self.FILE, PolicyError)
        self._check_metadata()
        self._image_shapes: dict[str, tuple[int, ...]] = {
            IMAGE_PREFIX + item.name: (1, 3, item.height, item.width) for item in contract.cameras
        }
        self._takes_base_action = self._is_residual()
        self._has_more = bool(self._image_shapes) or self._takes_base_action
        steps = self._planned_steps()
        output = (1, contract.action_size) if steps is None else (1, steps, contract.action_size)
        self._input, self._output = self._check_sizes(output)
        self.has_attention = len(self._network.outputs) > 1

    def __call__(
        self, observation: FloatArray, images: Images | None = None, base_action: FloatArray | None = None
    ) -> FloatArray:
        """Run the network.

        Args:
            observation: Shape (1, contract.observation_size).
            images: Picture (3, height, width) of each of the contract's cameras, for a policy that has some.
            base_action: Shape (1, contract.action_size), for a residual policy: what its base does in this step.

        Returns:
            Action of shape (1, contract.action_size), before the clip; or of a policy that plans without a residual
            all that it plans, (1, chunk.steps, contract.action_size).

        Raises:
            PolicyError: If an input is missing or has another shape, the network computes for too long, or the action
                is not finite; names the joints.
        """
        if not self._has_more:
            return self._checked(observation, self._run([self._output], observation)[0])
        more = self._more_inputs(images, base_action)
        return self._checked(observation, self._run([self._output], observation, more)[0])

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

    def _run(
        self, outputs: list[str], observation: FloatArray, more: dict[str, NDArray] | None = None
    ) -> list[FloatArray]:
        feeds = {self._input: observation} if more is None else {self._input: observation, **more}
        return self._network.run(outputs, feeds)

    def _more_inputs(self, images: Images | None, base_action: FloatArray | None) -> dict[str, NDArray]:
        """Inputs beside the observation, by the names of the inputs."""
        more: dict[str, NDArray] = {}
        for name, shape in self._image_shapes.items():
            picture = (images or {}).get(name.removeprefix(IMAGE_PREFIX))
            if picture is None or picture.shape != shape[1:] or picture.dtype != np.uint8:
                found = "nothing" if picture is None else f"{picture.dtype} of shape {picture.shape}"
                raise PolicyError(f"The policy's input '{name}' got {found}, expected uint8 of shape {shape[1:]}.")
            more[name] = picture[None]
        if self._takes_base_action:
            if base_action is None:
                raise PolicyError(f"A residual policy needs '{BASE_ACTION}', what its base does in this step.")
            more[BASE_ACTION] = base_action
        return more

    def _checked(self, observation: FloatArray, action: FloatArray) -> FloatArray:
        if not np.isfinite(action).all():
            flat = action.reshape(-1, action.shape[-1])
            bad = [f"{self._action_name(i)} = {flat[row, i]}" for row, i in np.argwhere(~np.isfinite(flat))[:8]]
            finite = "" if np.isfinite(observation).all() else " (the observation is not finite either)"
            raise PolicyError(f"The network's action is not finite: {', '.join(bad)}{finite}.")
        return action

    def _action_name(self, index: int) -> str:
        names = self.contract.joint_names
        return names[index] if len(names) == self.contract.action_size else f"action[{index}]"

    def _check_kind(self) -> None:
        """Refuse a network that takes something else than an observation."""
        if self.contract.graph is not None:
            raise PolicyError("The policy takes raw signals (contract.graph), and what asks it gives an observation.")
        if self.contract.recurrent:
            names = ", ".join(self.contract.recurrent)
            raise PolicyError(f"The policy has recurrent state ({names}), and the contract has no 'graph' for it.")

    def _is_residual(self) -> bool:
        return self.contract.is_residual

    def _planned_steps(self) -> int | None:
        return self.contract.planned_steps()

    def _check_metadata(self) -> None:
        _check_metadata(self._network.metadata, self.contract)

    def _check_sizes(self, output: tuple[int, ...]) -> tuple[str, str]:
        """Names of the observation's input and of the action's output; a second output, the attention on the map, is
        for people."""
        outputs = self._network.outputs
        if [item.name for item in outputs[1:]] == [ATTENTION_OUTPUT]:
            _check_attention(outputs[1], self.contract)
        elif len(outputs) != 1:
            raise PolicyError(
                f"The network has {len(outputs)} outputs ({', '.join(item.name for item in outputs)}), expected one."
            )
        inputs = {item.name: item for item in self._network.inputs}
        wanted = dict.fromkeys(self._image_shapes, "tensor(uint8)")
        shapes = dict(self._image_shapes)
        if self._takes_base_action:
            wanted[BASE_ACTION], shapes[BASE_ACTION] = "tensor(float)", (1, self.contract.action_size)
        if not self._has_more and len(inputs) != 1:
            raise PolicyError(f"The network has {len(inputs)} inputs ({', '.join(inputs)}), expected one.")
        # Where there is only one input, its name says nothing.
        first = OBSERVATION if self._has_more else next(iter(inputs))
        expected = {first, *wanted}
        if set(inputs) != expected:
            raise PolicyError(
                f"{self.FILE} has the inputs {', '.join(sorted(inputs))}, the contract says "
                f"{', '.join(sorted(expected))}."
            )
        _check_tensor(inputs[first], "input", (1, self.contract.observation_size), "tensor(float)")
        for name, kind in wanted.items():
            _check_tensor(inputs[name], "input", shapes[name], kind)
        _check_tensor(outputs[0], "output", output, "tensor(float)")
        return first, outputs[0].name


class OnnxBase(OnnxPolicy):
    """The network that plans what a residual policy corrects: the same inputs, and all that it plans.

    The contract that it carries lacks the hash of this very file, which the policy's own has; it is not looked at.
    """

    FILE = "base.onnx"

    def _is_residual(self) -> bool:
        return False

    def _planned_steps(self) -> int | None:
        return self.contract.planned_steps(base=True)

    def _check_metadata(self) -> None:
        pass


def _check_metadata(metadata: dict[str, str], contract: PolicyContract) -> None:
    if METADATA_KEY not in metadata:
        found = ", ".join(sorted(metadata)) or "(nothing)"
        raise PolicyError(f"policy.onnx carries no contract: its metadata lacks '{METADATA_KEY}' and holds {found}.")
    inside = PolicyContract.from_json(metadata[METADATA_KEY])
    if found := contract_differences(inside, contract, ignoring=()):
        raise PolicyError(
            f"policy.onnx carries another contract than contract.json; they differ in '{found[0].name}'."
            f"{listed(found, 'in policy.onnx', 'in contract.json')}"
        )


def _check_tensor(tensor: ort.NodeArg, what: str, expected: tuple[int, ...], kind: str) -> None:
    """Refuse another shape or type; a batch dimension may be free (a name) or 1."""
    shape = tuple(tensor.shape)
    batch_fits = len(shape) == len(expected) and (not isinstance(shape[0], int) or shape[0] == 1)
    if not batch_fits or shape[1:] != expected[1:] or tensor.type != kind:
        raise PolicyError(
            f"The network's {what} '{tensor.name}' is {tensor.type} of shape {shape}, "
            f"the contract says {kind} of shape {expected}."
        )


def _check_attention(tensor: ort.NodeArg, contract: PolicyContract) -> None:
    window, shape = contract.map_window, tuple(tensor.shape)
    if window is None:
        raise PolicyError(f"The network has an output '{ATTENTION_OUTPUT}', the contract has no map window.")
    if len(shape) != 3 or shape[1:] != (window.rows, window.cols):
        expected = (1, window.rows, window.cols)
        raise PolicyError(f"The network's output '{ATTENTION_OUTPUT}' has shape {shape}, expected {expected}.")
