"""Policies that act in all environments of a manipulation task: scripts, bundles as on a robot, and a meter around
them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.action_queue import ActionQueue
from gantry_deploy.policy.onnx_policy import OnnxBase, OnnxPolicy
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE, Observation, BatchedEnv
from gantry_policies.common.evaluation import ActingPolicy
from gantry_sim.tasks.manipulation.registry import ScriptedExpert


class ExpertActor:
    """A scripted expert behind the interface of a policy; it sees the simulator and not the observations.

    Args:
        expert: Acts in the environments.
        num_envs: N.
    """

    def __init__(self, expert: ScriptedExpert, num_envs: int) -> None:
        self._expert, self._num_envs = expert, num_envs

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        rows = torch.zeros(self._num_envs, dtype=torch.bool)
        rows[slice(None) if env_ids is None else env_ids.cpu()] = True
        self._expert.reset(rows)

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in [-1, 1]."""
        del obs
        return self._expert.act()


class BundleActor:
    """A bundle in N environments: its networks run by onnxruntime row by row as on the robot, and a queue for each row.

    Args:
        bundle: A verified bundle.
        num_envs: N.

    Raises:
        PolicyError: If a network and the contract do not fit.
    """

    def __init__(self, bundle: Bundle, num_envs: int) -> None:
        contract = bundle.contract
        chunk = contract.chunk
        self._policy = OnnxPolicy(bundle.model_bytes, contract)
        self._planner: OnnxPolicy | None = None if chunk is None else self._policy
        self._corrects = chunk is not None and chunk.residual
        if chunk is not None and chunk.residual:
            if bundle.base_bytes is None:
                raise PolicyError("A residual policy needs base.onnx; the bundle has none.")
            self._planner = OnnxBase(bundle.base_bytes, contract)
        self._queues = [
            None if chunk is None else ActionQueue(chunk.execute, chunk.ensemble_decay) for _ in range(num_envs)
        ]
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
        pairs = [self._act(row, obs, queue) for row, queue in enumerate(self._queues)]
        if self._corrects:
            self.last_base_action = torch.from_numpy(np.stack([planned for _, planned in pairs]))
        return torch.from_numpy(np.stack([action for action, _ in pairs]))

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


class Meter:
    """Wrapper that acts as another policy does, and measures how large its actions are and how large its corrections of
    a base.

    Args:
        policy: Policy that acts; what its base wanted, if it has one, it tells as ``last_base_action``.
        on_episodes: Told how many episodes have ended so far.
    """

    def __init__(self, policy: ActingPolicy, on_episodes: Callable[[int], None] = lambda count: None) -> None:
        self._policy, self._on_episodes = policy, on_episodes
        self._episodes = 0
        self._sums = torch.zeros(3, dtype=torch.float64)
        self._steps = 0
        self._has_base = False

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        self._policy.reset(env_ids)
        if env_ids is not None:
            self._episodes += env_ids.numel()
            self._on_episodes(self._episodes)

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in the environment's range."""
        action = self._policy.act(obs)
        base = getattr(self._policy, "last_base_action", None)
        parts = [action.abs().mean()]
        if base is not None:
            self._has_base = True
            base = base.to(action.device)
            parts += [base.abs().mean(), (action - base).abs().mean()]
        self._sums[: len(parts)] += torch.stack(parts).double().cpu()
        self._steps += 1
        return action

    def magnitudes(self) -> dict[str, float]:
        """Mean size of a number of the action, of the base's, and of the correction, where there is one; without unit,
        the environment's range being -1 to 1."""
        means = (self._sums / max(1, self._steps)).tolist()
        names = ("mean_action", "mean_base_action", "mean_residual")
        return dict(zip(names, means, strict=True)) if self._has_base else {names[0]: means[0]}


def expert_actor(
    make: Callable[[BatchedEnv, float, int], ScriptedExpert], badness: float, seed: int
) -> Callable[[BatchedEnv], ActingPolicy]:
    """From environments to the expert that acts in them.

    Args:
        make: (environments, badness, seed) -> an expert.
        badness: 0 to 1.
        seed: Of its mistakes.
    """
    return lambda env: ExpertActor(make(env, badness, seed), env.num_envs)
