"""One call for every policy, asked in each step or planning ahead: observation and images to this step's action."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.graph_spec import GraphSpec
from gantry_deploy.contract.parts import ChunkSpec
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.action_queue import ActionQueue
from gantry_deploy.policy.graph_network import GraphNetwork
from gantry_deploy.policy.onnx_policy import Images, OnnxBase, OnnxPolicy

FloatArray = NDArray[np.float32]


class PolicyAction(NamedTuple):
    """Action of a policy in one step."""

    action: FloatArray
    """Shape (1, contract.action_size), before the clip, dimensionless."""
    base_action: FloatArray | None = None
    """Of a residual policy the base's action that it corrected, the same shape."""


class Policy(Protocol):
    """A policy with what it remembers between steps."""

    @property
    def network(self) -> OnnxPolicy:
        """Network of ``policy.onnx``."""
        ...

    def reset(self) -> None:
        """Forget what was planned: an episode begins, or something else was in control meanwhile."""
        ...

    def copy(self) -> Policy:
        """The same networks with a memory of their own, which is empty: for another robot or environment."""
        ...

    def __call__(self, observation: FloatArray, images: Images | None = None) -> PolicyAction:
        """The action of this step, which is thereby used up.

        Args:
            observation: Shape (1, contract.observation_size).
            images: Picture (3, height, width) of each of the contract's cameras.

        Raises:
            PolicyError: If an input has another shape, or an action is not finite.
        """
        ...


class StepPolicy:
    """A network that is asked in every step.

    Args:
        bundle: Its contract has no chunk.

    Raises:
        PolicyError: If network and contract do not fit.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.network = OnnxPolicy(bundle.model_bytes, bundle.contract)

    def reset(self) -> None:
        """See :meth:`Policy.reset`; nothing is remembered."""

    def copy(self) -> StepPolicy:
        """See :meth:`Policy.copy`."""
        return self

    def __call__(self, observation: FloatArray, images: Images | None = None) -> PolicyAction:
        """See :meth:`Policy.__call__`; the observation is (1, contract.observation_size), dimensionless."""
        return PolicyAction(self.network(observation, images))


class GraphPolicy:
    """A network that takes raw signals one by one, and what it remembers between steps.

    Args:
        bundle: A policy with wiring.
        graph: Its contract's.

    Raises:
        PolicyError: If network and contract do not fit.
    """

    def __init__(self, bundle: Bundle, graph: GraphSpec) -> None:
        self.network = GraphNetwork(bundle.model_bytes, bundle.contract, graph)
        self._state = self.network.initial_state

    def reset(self) -> None:
        """See :meth:`Policy.reset`."""
        self._state = self.network.initial_state

    def copy(self) -> GraphPolicy:
        """See :meth:`Policy.copy`."""
        other = copy(self)
        other.reset()
        return other

    def __call__(self, observation: FloatArray, images: Images | None = None) -> PolicyAction:
        """See :meth:`Policy.__call__`; the observation is (1, contract.observation_size), dimensionless."""
        action, self._state = self.network.step(observation, self._state)
        return PolicyAction(action)


class PlannedBase:
    """A frozen base of a residual policy: it plans ahead, and its plan is used up one action per step.

    Args:
        bundle: With ``base.onnx``.
        chunk: Its contract's.

    Raises:
        PolicyError: If the base is missing, or network and contract do not fit.
    """

    def __init__(self, bundle: Bundle, chunk: ChunkSpec) -> None:
        if bundle.base_bytes is None:
            raise PolicyError("A residual policy needs base.onnx; the bundle has none.")
        self._network = OnnxBase(bundle.base_bytes, bundle.contract)
        self._queue = ActionQueue(chunk.execute, chunk.ensemble_decay)

    def reset(self) -> None:
        """Forget the plan."""
        self._queue.reset()

    def __call__(self, observation: FloatArray, images: Images | None = None) -> FloatArray:
        """The base's action (1, n) of this step, thereby used up; the observation is (1, obs), dimensionless."""
        if self._queue.wants_chunk:
            self._queue.push(self._network(observation, images)[0])
        return self._queue.pop()[None]


class ChunkedPolicy:
    """A network that plans several actions, and the queue between it and a loop.

    A residual policy corrects the plan of a frozen base in every step (ResFiT, arXiv 2509.19301). It needs to know what
    the base does in this very step, so the queue of the base's plan lives here and not in a graph.

    Args:
        bundle: A policy that plans.
        chunk: Its contract's.

    Raises:
        PolicyError: If a network and the contract do not fit.
    """

    def __init__(self, bundle: Bundle, chunk: ChunkSpec) -> None:
        self.network = OnnxPolicy(bundle.model_bytes, bundle.contract)
        self._base: OnnxBase | None = None
        if chunk.residual:
            if bundle.base_bytes is None:
                raise PolicyError("A residual policy needs base.onnx; the bundle has none.")
            self._base = OnnxBase(bundle.base_bytes, bundle.contract)
        self._chunk = chunk
        self._queue = ActionQueue(chunk.execute, chunk.ensemble_decay)

    def reset(self) -> None:
        """See :meth:`Policy.reset`."""
        self._queue.reset()

    def copy(self) -> ChunkedPolicy:
        """See :meth:`Policy.copy`."""
        other = copy(self)
        other._queue = ActionQueue(self._chunk.execute, self._chunk.ensemble_decay)
        return other

    def __call__(self, observation: FloatArray, images: Images | None = None) -> PolicyAction:
        """See :meth:`Policy.__call__`; the observation is (1, contract.observation_size), dimensionless."""
        if self._queue.wants_chunk:
            planner = self.network if self._base is None else self._base
            self._queue.push(planner(observation, images)[0])
        planned = self._queue.pop()[None]
        if self._base is None:
            return PolicyAction(planned)
        return PolicyAction(self.network(observation, images, planned), planned)


def open_policy(bundle: Bundle) -> Policy:
    """The policy of a bundle.

    Raises:
        PolicyError: If a network and the contract do not fit.
    """
    if bundle.contract.graph is not None:
        return GraphPolicy(bundle, bundle.contract.graph)
    chunk = _chunk_of(bundle)
    return StepPolicy(bundle) if chunk is None else ChunkedPolicy(bundle, chunk)


def open_base(bundle: Bundle) -> PlannedBase | None:
    """The base of a bundle whose policy corrects one; None for any other.

    Raises:
        PolicyError: If the base is missing, or network and contract do not fit.
    """
    chunk = _chunk_of(bundle)
    return PlannedBase(bundle, chunk) if chunk is not None and chunk.residual else None


def _chunk_of(bundle: Bundle) -> ChunkSpec | None:
    return bundle.contract.chunk
