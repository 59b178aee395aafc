"""Recorded observations as inputs of an exported network, and the comparison of onnxruntime with torch on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.golden import network_tolerance
from gantry_deploy.policy.onnx_policy import BASE_ACTION, IMAGE_PREFIX, OBSERVATION, OnnxPolicy
from gantry_policies.common.batched_env import STATE

MIN_OBSERVATIONS = 1000
"""Fewest recorded observations that an export compares."""
MIN_IMAGES = 50
"""The same for a policy with cameras."""


class OneByOne(nn.Module):
    """A network that takes an observation by key, with its inputs one by one as a graph has them.

    Args:
        net: Module ``(observation by key)``, or ``(observation by key, base_action)``.
        names: Names of the graph's inputs; a base's action comes last.
    """

    def __init__(self, net: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.net = net
        self.keys = [STATE if name == OBSERVATION else name for name in names if name != BASE_ACTION]

    def forward(self, *inputs: Tensor) -> Tensor:
        """Inputs ``(N, ...)`` in the order of the names."""
        count = len(self.keys)
        return self.net(dict(zip(self.keys, inputs[:count], strict=True)), *inputs[count:])


def input_names(contract: PolicyContract) -> list[str]:
    """Names of a graph's inputs: the observation, and one picture of each camera."""
    return [OBSERVATION, *(IMAGE_PREFIX + item.name for item in contract.cameras)]


def recorded_inputs(contract: PolicyContract, golden: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Recorded inputs ``(M, ...)`` by their names in the graph, the observation first, in the units of the contract.

    Raises:
        PolicyError: If one of them is missing, or M is less than an export compares.
    """
    names = input_names(contract)
    if missing := [name for name in names if name not in golden]:
        raise PolicyError(f"What was recorded lacks {', '.join(missing)}; it holds: {', '.join(sorted(golden))}.")
    count, least = len(golden[OBSERVATION]), MIN_IMAGES if contract.cameras else MIN_OBSERVATIONS
    if count < least:
        raise PolicyError(f"{count} observations recorded, an export compares at least {least}.")
    rows = {name: torch.from_numpy(np.ascontiguousarray(golden[name])) for name in names}
    return {**rows, OBSERVATION: rows[OBSERVATION].float()}


def first_row(rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Inputs ``(1, ...)``, the first of recorded rows ``(M, ...)``, in the units of the contract."""
    return {name: values[:1] for name, values in rows.items()}


def answers(net: nn.Module, rows: Mapping[str, Tensor]) -> np.ndarray:
    """Actions ``(M, ...)``, dimensionless: what torch answers, row by row as the runtime asks."""
    with torch.inference_mode():
        return torch.cat([net(*inputs) for inputs in _each(rows)]).numpy()


def _each(rows: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, ...]]:
    for index in range(len(rows[OBSERVATION])):
        yield tuple(values[index : index + 1] for values in rows.values())


def difference(
    policy: OnnxPolicy, rows: Mapping[str, Tensor], expected: np.ndarray, attention: np.ndarray | None = None
) -> float:
    """Largest absolute difference between what a network computes, run as on a robot, and what is expected.

    Args:
        policy: The network.
        rows: Its inputs ``(M, ...)`` by name, as :func:`recorded_inputs` gives them.
        expected: Actions ``(M, ...)``, dimensionless.
        attention: Weights ``(M, rows, cols)`` of a network that shows them, dimensionless; None compares actions alone.
    """
    worst = []
    for index, inputs in enumerate(_each(rows)):
        named = {name: values.numpy() for name, values in zip(rows, inputs, strict=True)}
        images = {name.removeprefix(IMAGE_PREFIX): v[0] for name, v in named.items() if name.startswith(IMAGE_PREFIX)}
        if attention is None:
            action = policy(named[OBSERVATION], images, named.get(BASE_ACTION))
        else:
            action, weights = policy.with_attention(named[OBSERVATION])
            worst.append(np.abs(weights[0] - attention[index]).max())
        worst.append(np.abs(action[0] - expected[index]).max())
    return float(np.max(worst))


def require_same(
    policy: OnnxPolicy, rows: Mapping[str, Tensor], expected: np.ndarray, attention: np.ndarray | None = None
) -> None:
    """Refuse a network that computes something else than torch; arguments as of :func:`difference`.

    Raises:
        PolicyError: If an action or a weight differs by more than the contract's network may
            (:func:`gantry_deploy.policy.golden.network_tolerance`), or is not finite.
    """
    worst, allowed = difference(policy, rows, expected, attention), network_tolerance(policy.contract)
    if not worst <= allowed:
        raise PolicyError(
            f"onnxruntime and torch differ by {worst:.2e} on {len(expected)} observations of {policy.FILE}, "
            f"allowed is {allowed:.0e}; nothing was written."
        )
