"""Bundles as policies that act in all environments of a task, as on a robot."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.policy.policy import Policy, open_policy
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE, Observation


class BundleActor:
    """A bundle in N environments: its networks run by onnxruntime row by row as on the robot.

    Args:
        bundle: A verified bundle.
        env: The environments that it acts in; N is taken from the observations.

    Raises:
        PolicyError: If a network and the contract do not fit.
    """

    def __init__(self, bundle: Bundle, env: Any = None) -> None:
        del env
        self._policy = open_policy(bundle)
        self._rows: list[Policy] = []
        self.last_base_action: Tensor | None = None
        """``(N, n)``: action of a residual policy's base at the last step."""

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        for row in range(len(self._rows)) if env_ids is None else env_ids.tolist():
            self._rows[row].reset()

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in the environment's range."""
        observations = obs[STATE].cpu().numpy()
        while len(self._rows) < len(observations):
            self._rows.append(self._policy.copy())
        images = {
            key.removeprefix(IMAGE_PREFIX): v.cpu().numpy() for key, v in obs.items() if key.startswith(IMAGE_PREFIX)
        }
        answers = [
            self._rows[row](observations[row : row + 1], {name: values[row] for name, values in images.items()})
            for row in range(len(observations))
        ]
        planned = [answer.base_action for answer in answers if answer.base_action is not None]
        self.last_base_action = torch.from_numpy(np.concatenate(planned)) if planned else None
        return torch.from_numpy(np.concatenate([answer.action for answer in answers])).to(obs[STATE].device)
