"""The learned policy as it is run: base, correction, scalers and clamp in one, for evaluation and as a bundle."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from gantry_policies.common.batched_env import STATE, Observation, on_device
from gantry_policies.off_policy.bases import BasePolicy
from gantry_policies.off_policy.learner import Learner


def acting_parts(learner: Learner) -> dict[str, nn.Module]:
    """Modules of a learner that its actions depend on, by name."""
    parts: dict[str, nn.Module] = {
        "encoder": learner.encoder,
        "actor": learner.actor,
        "state_scaler": learner.state_scaler,
        "action_scaler": learner.action_scaler,
    }
    return parts if learner.gripper is None else {**parts, "gripper": learner.gripper}


class PolicyModule(nn.Module):
    """Learned policy, frozen: raw observations in, actions of the environment out; without state.

    The queue of a base's chunks stays outside: the caller gives the base's action of this very step.

    Args:
        learner: Is copied; what it learns later does not change this.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.encoder, self.actor = copy.deepcopy(learner.encoder), copy.deepcopy(learner.actor)
        self.state_scaler, self.action_scaler = (
            copy.deepcopy(learner.state_scaler),
            copy.deepcopy(learner.action_scaler),
        )
        self.gripper = copy.deepcopy(learner.gripper)
        self.correction_scale = learner.correction_scale
        self.residual = learner.cfg.actor.residual
        self.requires_grad_(False)

    def forward(self, obs: Observation, base_action: Tensor | None = None) -> Tensor:
        """``(N, n)`` actions in the environment's range.

        Args:
            obs: ``(N, ...)`` by key, as the environment gives it.
            base_action: ``(N, n)``: what the base wants now, in the environment's range; for a residual alone.
        """
        features = self.encoder.features({**obs, STATE: self.state_scaler(obs[STATE])})
        base = self.action_scaler.scale(base_action) if self.residual and base_action is not None else None
        action = self.actor.act_deterministic(features, base, self.correction_scale).action
        return self.action_scaler.unscale(action if self.gripper is None else self.gripper.completed(features, action))


class LearnedPolicy:
    """A learner's best actions for N environments, on top of its base.

    Args:
        learner: Is asked as it is at the time.
        base: Its base; None for an actor without one. Its queues are this policy's alone while it acts.
    """

    def __init__(self, learner: Learner, base: BasePolicy | None) -> None:
        self.learner = learner
        self.base = base
        self.last_base_action: Tensor | None = None
        """``(N, n)`` in the environment's range: what the base wanted at the last step."""

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin; see :meth:`~gantry_policies.off_policy.bases.BasePolicy.reset`."""
        if self.base is not None:
            self.base.reset(env_ids)

    @torch.no_grad()
    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in the environment's range."""
        scaler, device = self.learner.action_scaler, self.learner.device
        self.last_base_action = None if self.base is None else self.base.act(obs)
        scaled = None if self.last_base_action is None else scaler.scale(self.last_base_action.to(device))
        seen_on = next(iter(obs.values())).device
        return scaler.unscale(self.learner.act(on_device(obs, device), scaled)).to(seen_on)
