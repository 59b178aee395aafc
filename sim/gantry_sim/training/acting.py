"""Bundles as policies that act in all environments of a task, as on a robot."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.action_queue import ActionQueue
from gantry_deploy.policy.onnx_policy import OnnxBase, OnnxPolicy
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE, Observation


class BundleActor:
    """A bundle in N environments: its networks run by onnxruntime row by row as on the robot, and a queue for each row.

    Args:
        bundle: A verified bundle.
        env: The environments that it acts in; N is taken from the observations.

    Raises:
        PolicyError: If a network and the contract do not fit.
    """

    def __init__(self, bundle: Bundle, env: Any = None) -> None:
        del env
        contract = bundle.contract
        chunk = contract.chunk
        self._policy = OnnxPolicy(bundle.model_bytes, contract)
        self._planner: OnnxPolicy | None = None if chunk is None else self._policy
        self._corrects = chunk is not None and chunk.residual
        if chunk is not None and chunk.residual:
            if bundle.base_bytes is None:
                raise PolicyError("A residual policy needs base.onnx; the bundle has none.")
            self._planner = OnnxBase(bundle.base_bytes, contract)
        self._chunk = chunk
        self._queues: list[ActionQueue | None] = []
        self.last_base_action: Tensor | None = None
        """``(N, n)``: what the base of a residual policy wanted at the last step."""

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        for row in range(len(self._queues)) if env_ids is None else env_ids.tolist():
            queue = self._queues[row]
            if queue is not None:
                queue.reset()

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in the environment's range."""
        chunk, rows = self._chunk, len(obs[STATE])
        while len(self._queues) < rows:
            self._queues.append(None if chunk is None else ActionQueue(chunk.execute, chunk.ensemble_decay))
        pairs = [self._act(row, obs, queue) for row, queue in enumerate(self._queues[:rows])]
        if self._corrects:
            self.last_base_action = torch.from_numpy(np.stack([planned for _, planned in pairs]))
        return torch.from_numpy(np.stack([action for action, _ in pairs])).to(obs[STATE].device)

    def _act(self, row: int, obs: Observation, queue: ActionQueue | None) -> tuple[np.ndarray, np.ndarray]:
        """The action of one environment and what was planned for it, ``(n,)`` each."""
        observation = obs[STATE][row : row + 1].cpu().numpy()
        images = {
            key.removeprefix(IMAGE_PREFIX): value[row].cpu().numpy()
            for key, value in obs.items()
            if key.startswith(IMAGE_PREFIX)
        }
        if queue is None or self._planner is None:
            action = self._policy(observation, images)[0]
            return action, action
        if queue.wants_chunk:
            queue.push(self._planner(observation, images)[0])
        planned = queue.pop()
        return (self._policy(observation, images, planned[None])[0] if self._corrects else planned), planned
