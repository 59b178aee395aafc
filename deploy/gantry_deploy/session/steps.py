"""Steps of a correction session as they are recorded, sent to a learner, and learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.compat import StrEnum

if TYPE_CHECKING:  # Datasets load no network runtime.
    from gantry_deploy.policy.runner import PolicyOutput

FloatArray = NDArray[np.float32]
Observation = Mapping[str, NDArray[np.generic]]
"""By key: ``state`` (s,) float32, and ``image/<camera>`` (3, height, width) uint8."""


class Actor(StrEnum):
    """Source of the action of a step."""

    POLICY = "policy"
    PERSON = "person"


@dataclass(frozen=True)
class SessionStep:
    """One control step of an attempt: observation, source of the action, what was really sent, and reward."""

    episode: int
    """Number of the attempt in the session, from 0."""
    index: int
    """Number of the step in the attempt, from 0."""
    stamp_s: float
    """Start of the step on the robot's clock."""
    obs: Observation
    """Observation before the action."""
    action: FloatArray
    """Shape (a,), action that was executed, in the policy's own units and frame, after every limit: what the robot's
    ``write`` returned, as an action."""
    policy_action: FloatArray
    """Shape (a,), action that the policy wanted, also where a person acted."""
    actor: Actor
    """Source of the action; known by the session, never read back from an environment."""
    reward: float = 0.0
    """Reward of the step."""
    penalty: float = 0.0
    """Penalty of a gripper command that opened or closed, at most 0; for a discrete gripper critic alone."""
    terminated: bool = False
    """The attempt has ended for good: success, failure, or the object is out of reach."""
    truncated: bool = False
    """The attempt has ended for lack of time, or because the person ended it without a verdict."""
    success: bool = False
    """The attempt has succeeded with this step."""
    base_action: FloatArray | None = None
    """Shape (a,), action of the frozen base of a residual policy; None without one."""
    last_obs: Observation | None = None
    """Observation after the last step of an attempt; None in every other step."""
    last_base_action: FloatArray | None = None
    """Shape (a,), the base's action at ``last_obs``; None in other steps and without a base."""
    parameters_version: int = 0
    """Version of the weights that the policy acted with."""

    @property
    def is_last(self) -> bool:
        """Whether the attempt ended with this step."""
        return self.terminated or self.truncated

    @property
    def is_intervention(self) -> bool:
        """Whether a person acted."""
        return self.actor is Actor.PERSON


def observation_of(seen: PolicyOutput) -> Observation:
    """Observation of a policy's step, in the units of the contract: ``state`` (s,), ``image/<camera>`` (3, h, w)."""
    images = {} if seen.images is None else {f"image/{name}": pixels for name, pixels in seen.images.items()}
    return {"state": seen.observation.copy(), **images}
