"""Policy that answers with all that it plans, for callers that keep their own queue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.policy.onnx_policy import Images, OnnxPolicy
from gantry_deploy.policy.policy import Policy, PolicyAction

FloatArray = NDArray[np.float32]


class Planner:
    """A policy that tells all that it plans, and keeps no queue of its own.

    Args:
        policy: Of one client.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.plan: FloatArray = np.zeros((0, 0), np.float32)
        """Plan (horizon, n) of the last call, dimensionless, within the contract's clip."""

    @property
    def network(self) -> OnnxPolicy:
        """Network of ``policy.onnx``."""
        return self._policy.network

    @property
    def remembers(self) -> bool:
        """Whether an answer depends on earlier ones: single steps that correct a plan, of which more is left, or a
        network with a state."""
        contract = self.network.contract
        corrects = contract.planned_steps() is None and contract.planned_steps(base=True) is not None
        return corrects or bool(contract.recurrent)

    def reset(self) -> None:
        """Forget what was planned."""
        self._policy.reset()

    def copy(self) -> Planner:
        """A planner with a memory of its own."""
        return Planner(self._policy.copy())

    def __call__(self, observation: FloatArray, images: Images | None = None) -> PolicyAction:
        """The first action (1, n), dimensionless, for an observation (1, obs); :attr:`plan` holds all.

        Raises:
            PolicyError: If an input has another shape, or an action is not finite.
        """
        contract = self.network.contract
        if contract.planned_steps() is None:
            plan = self._policy(observation, images).action
        else:
            plan = self.network(observation, images)[0]
        self.plan = np.clip(plan, -contract.action.clip, contract.action.clip)
        return PolicyAction(self.plan[:1])
