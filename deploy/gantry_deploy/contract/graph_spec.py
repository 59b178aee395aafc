"""Part of a policy contract for networks that take raw signals one by one and keep a state between steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gantry_deploy.errors import ContractError

MAX_STATE = 1_000_000
"""Most numbers of one state."""
STATE_TYPES = ("float32", "float64", "int64", "int32", "bool")
"""Types that a state may have."""


@dataclass(frozen=True)
class GraphInput:
    """An input (1, k) of the network that holds numbers of one observation term."""

    name: str
    """Name of the input."""
    term: str
    """Term of the contract's observation, which must have no history."""
    order: tuple[int, ...]
    """Per number of the input, its place among the term's numbers."""


@dataclass(frozen=True)
class GraphState:
    """Memory of the network: what an output gives in one step, an input takes in the next."""

    name: str
    """Name of the input."""
    output: str
    """Name of the output."""
    shape: tuple[int, ...]
    """Shape of both."""
    dtype: str = "float32"
    """Type of both, one of :data:`STATE_TYPES`."""
    initial: tuple[float, ...] = ()
    """Values in the first step, row by row; empty for zeros."""


@dataclass(frozen=True)
class GraphSpec:
    """Wiring of a network with raw signals in and absolute joint targets out, as LEAPP bundles have.

    The action of such a policy is what gives the targets by way of the contract's action: (target - offset) / scale.
    """

    inputs: tuple[GraphInput, ...]
    """Inputs that signals go to."""
    output: str
    """Output (1, n) with the joint targets, rad."""
    order: tuple[int, ...]
    """Per joint of the contract, its place in that output."""
    states: tuple[GraphState, ...] = ()
    """Memory of the network."""

    def __post_init__(self) -> None:
        names = [item.name for item in (*self.inputs, *self.states)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ContractError(f"graph feeds the input '{twice[0]}' twice.")
        for state in self.states:
            size = math.prod(state.shape)
            if not 1 <= size <= MAX_STATE:
                raise ContractError(f"graph.states '{state.name}' has {size} numbers, expected 1 to {MAX_STATE}.")
            if state.dtype not in STATE_TYPES:
                raise ContractError(
                    f"graph.states '{state.name}' is {state.dtype}, expected one of {', '.join(STATE_TYPES)}."
                )
            if state.initial and len(state.initial) != size:
                raise ContractError(
                    f"graph.states '{state.name}' begins with {len(state.initial)} numbers, expected {size} or none."
                )

    def check(self, sizes: dict[str, int], joints: int) -> None:
        """Refuse wiring that names terms or numbers that are not there.

        Args:
            sizes: Term of the observation to its number of values, of those without history.
            joints: Number of the contract's joints.

        Raises:
            ContractError: With the input and what exists.
        """
        for item in self.inputs:
            if item.term not in sizes:
                raise ContractError(
                    f"graph.inputs '{item.name}' takes the term '{item.term}', expected one without history: "
                    f"{', '.join(sizes) or '(none)'}."
                )
            if not item.order or max(item.order) >= sizes[item.term]:
                raise ContractError(
                    f"graph.inputs '{item.name}' takes the numbers {list(item.order)} of '{item.term}', which has "
                    f"{sizes[item.term]}."
                )
        if sorted(self.order) != list(range(joints)):
            raise ContractError(f"graph.order is {list(self.order)}, expected each of 0 to {joints - 1} once.")
