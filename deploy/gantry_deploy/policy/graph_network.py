"""A network that takes raw signals one by one and gives absolute joint targets, by the wiring of its contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.graph_spec import GraphSpec, GraphState
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.onnx_policy import OnnxPolicy

FloatArray = NDArray[np.float32]
State = Mapping[str, NDArray[Any]]
"""Name of each input that remembers, to what it takes in the next step."""

ONNX_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}
"""onnxruntime's name of a type to numpy's."""


class GraphNetwork(OnnxPolicy):
    """Maps the observation's terms to the network's inputs, and joint targets to the action that gives them.

    Args:
        model_bytes: The ONNX file, which carries its contract in its metadata.
        contract: What the runtime is going to obey.
        graph: The contract's wiring.

    Raises:
        PolicyError: If the file is no network, or its inputs and outputs are not those of the wiring.
    """

    def __init__(self, model_bytes: bytes, contract: PolicyContract, graph: GraphSpec) -> None:
        self._graph = graph
        super().__init__(model_bytes, contract)
        starts, start = {}, 0
        for term in contract.observations:
            starts[term.name] = start
            start += term.size * term.history
        self._columns = {item.name: starts[item.term] + np.array(item.order) for item in graph.inputs}
        self._order = np.array(graph.order)
        self._wanted = [graph.output, *(state.output for state in graph.states)]
        self._offset = np.array([contract.action.offset_rad], dtype=np.float32)
        self._scale = np.array([contract.action.scale], dtype=np.float32)
        self.initial_state: State = {state.name: _initial(state) for state in graph.states}
        """Memory of the first step."""

    def step(self, observation: FloatArray, state: State) -> tuple[FloatArray, State]:
        """Run the network.

        Args:
            observation: Shape (1, contract.observation_size), raw signals with the scales of their terms.
            state: What the network remembers.

        Returns:
            Action (1, n), dimensionless, and the memory for the next step.

        Raises:
            PolicyError: If an input has another shape, the network computes for too long, or the action or a state is
                not finite.
        """
        if observation.shape != (1, self.contract.observation_size):
            raise PolicyError(
                f"The observation has shape {observation.shape}, expected (1, {self.contract.observation_size})."
            )
        feeds = {name: observation[:, columns] for name, columns in self._columns.items()}
        target, *kept = self._network.run(self._wanted, {**feeds, **state})
        for item, values in zip(self._graph.states, kept, strict=True):
            if not np.isfinite(values).all():
                raise PolicyError(f"The network's output '{item.output}', which it remembers, is not finite.")
        action = (target[:, self._order] - self._offset) / self._scale
        following = {item.name: values for item, values in zip(self._graph.states, kept, strict=True)}
        return self._checked(observation, action), following

    def __call__(self, observation: FloatArray, images: Any = None, base_action: Any = None) -> FloatArray:
        """Action (1, n), dimensionless, of a first step with an observation (1, contract.observation_size)."""
        return self.step(observation, self.initial_state)[0]

    def _check_kind(self) -> None:
        """Anything else is refused by its inputs and outputs."""

    def _check_sizes(self, output: tuple[int, ...]) -> tuple[str, str]:
        """Refuse inputs and outputs of other names, shapes or types than the wiring's; further outputs are not read."""
        graph = self._graph
        states = [((state.name, state.output), state.shape, state.dtype) for state in graph.states]
        wanted: dict[str, tuple[tuple[int, ...], str]]
        wanted = {item.name: ((1, len(item.order)), "float32") for item in graph.inputs}
        given: dict[str, tuple[tuple[int, ...], str]] = {graph.output: (output, "float32")}
        for (name, source), shape, dtype in states:
            wanted[name], given[source] = (shape, dtype), (shape, dtype)
        inputs = {item.name: item for item in self._network.inputs}
        outputs = {item.name: item for item in self._network.outputs}
        if set(inputs) != set(wanted):
            found, expected = (", ".join(sorted(names)) for names in (inputs, wanted))
            raise PolicyError(f"{self.FILE} has the inputs {found}, the contract says {expected}.")
        if missing := sorted(set(given) - set(outputs)):
            raise PolicyError(f"{self.FILE} has no output '{missing[0]}'; it has {', '.join(sorted(outputs))}.")
        for tensors, fits in ((inputs, wanted), (outputs, given)):
            for name, (shape, dtype) in fits.items():
                found = tuple(tensors[name].shape), ONNX_TYPES.get(tensors[name].type, tensors[name].type)
                if found != (shape, dtype):
                    raise PolicyError(
                        f"The network's '{name}' is {found[1]} of shape {found[0]}, the contract says {dtype} of shape "
                        f"{shape}."
                    )
        return next(iter(wanted), ""), graph.output


def _initial(state: GraphState) -> NDArray[Any]:
    values = np.array(state.initial) if state.initial else np.zeros(int(np.prod(state.shape)))
    array = values.astype(state.dtype).reshape(state.shape)
    array.setflags(write=False)
    return array
